// The feature cache alone, for bench/feature_cache.py: writes records, reads them in random order with verification, or
// reads the same places raw. Prints one JSON line.
//
//   feature_cache_bench write ROOT RECORDS BYTES
//   feature_cache_bench read ROOT RECORDS BYTES READS [DEPTH]
//   feature_cache_bench raw ROOT RECORDS BYTES READS [DEPTH]
//   feature_cache_bench arbitrate ROOT RECORDS BYTES READS POLICY MICROSECONDS
//
// arbitrate: a training that reads a record or has it encoded, which takes so many microseconds (it sleeps, as the CPU
// does while a GPU encodes). POLICY: read, live, auto. Two threads read ahead by at most two batches.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cache/arbiter.h"
#include "cache/block_reader.h"
#include "cache/folder.h"
#include "cache/reader.h"
#include "cache/unit.h"

namespace {

using namespace lockstep;
using namespace lockstep::cache;

constexpr uint64_t kUnitBytes = 64u << 20;
constexpr size_t kAtOnce = 32;

[[noreturn]] void Fail(const Status& status) {
  fmt::print(stderr, "feature_cache_bench: {}\n", status.ToString());
  std::exit(1);
}

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) Fail(result.status());
  return std::move(*result);
}

Folder Open(const std::string& root, uint64_t bytes) {
  Description description;
  description.encoder = {{"kind", "bench"}};
  description.weights = "sha256:" + std::string(64, '0');
  description.fields = {{"features", Dtype::kU8, Storage::kSame, {static_cast<int64_t>(bytes)}, false}};
  return Must(Folder::Create(root, description));
}

RecordKey Key(const Folder& folder, uint64_t number) {
  const ItemDigest item = DigestItem(&number, sizeof number);
  return Must(KeyOf(folder.id(), Context::kIndependent, {&item, 1}));
}

void Write(const Folder& folder, uint64_t records, uint64_t bytes) {
  const Plan plan{"bench", records, std::max<uint64_t>(1, kUnitBytes / bytes)};
  std::vector<uint64_t> noise(bytes / 8 + 1);
  std::mt19937_64 random(1);
  for (uint64_t& word : noise) word = random();
  for (uint64_t unit = 0; unit < plan.units(); ++unit) {
    UnitBuilder builder(folder.description().Columns(), plan.rows);
    for (uint64_t i = unit * plan.rows; i < std::min(records, (unit + 1) * plan.rows); ++i) {
      noise[0] = i;
      std::memcpy(builder.Add(Key(folder, i).key)[0], noise.data(), bytes);
    }
    Must(builder.Publish(folder.UnitPath(plan.UnitName(unit)), {{"namespace", folder.id()}, {"plan", plan.Id()}}));
  }
}

std::vector<uint64_t> Shuffled(uint64_t records) {
  std::vector<uint64_t> order(records);
  for (uint64_t i = 0; i < records; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
  return order;
}

struct Buffers {
  explicit Buffers(uint64_t bytes, size_t count = kAtOnce) : each((bytes + 2 * kBlock) / kBlock * kBlock) {
    data = memory.Grow(each * count);
    std::memset(data, 0, each * count);  // a training's buffers have been touched, too
  }
  BlockMemory memory;
  uint64_t each;
  std::byte* data;
};

constexpr uint64_t kBatch = 8, kAhead = 2;  // records of a batch, batches read ahead

// Seconds for `order`, and how many of them were read.
std::pair<double, uint64_t> Arbitrate(const Folder& folder, const std::vector<uint64_t>& order, uint64_t bytes,
                                      const std::string& policy, std::chrono::microseconds encode) {
  const std::unique_ptr<Reader> reader = Must(Reader::Open(folder));
  Arbiter arbiter;
  const double cost = std::chrono::duration<double>(encode).count();
  arbiter.Encoded(1, cost);  // as a training measures it at its start
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t next = 0, consumed = 0, reads = 0;
  std::vector<uint64_t> ready((order.size() + kBatch - 1) / kBatch, 0), missing(ready.size(), 0);
  const auto load = [&] {
    Buffers buffers(bytes, 1);
    std::unique_lock<std::mutex> hold(mutex);
    while (true) {
      changed.wait(hold, [&] { return next == order.size() || next < (consumed + 1 + kAhead) * kBatch; });
      if (next == order.size()) return;
      const uint64_t i = next++;
      hold.unlock();
      const bool read = policy == "read" || (policy == "auto" && arbiter.ReadNext());
      if (read) {
        std::vector<Request> one(1);
        one[0].key = Key(folder, order[i]);
        one[0].fields = {buffers.data};
        arbiter.ReadBegins();
        reader->Read(one);
        arbiter.ReadEnds();
        if (one[0].outcome != Outcome::kHit) Fail(Status(Code::kInternal, one[0].why));
      }
      hold.lock();
      ++ready[i / kBatch];
      ++(read ? reads : missing[i / kBatch]);
      changed.notify_all();
    }
  };
  const TimePoint start = Now();
  std::thread first(load), second(load);
  for (uint64_t batch = 0; batch < ready.size(); ++batch) {
    std::unique_lock<std::mutex> hold(mutex);
    const uint64_t whole = std::min<uint64_t>(kBatch, order.size() - batch * kBatch);
    changed.wait(hold, [&] { return ready[batch] == whole; });
    const uint64_t live = missing[batch];
    hold.unlock();
    if (live > 0) {
      const TimePoint began = Now();
      std::this_thread::sleep_for(live * encode);
      arbiter.Encoded(live, SecondsSince(began));
    }
    hold.lock();
    ++consumed;
    changed.notify_all();
  }
  first.join();
  second.join();
  return {SecondsSince(start), reads};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    fmt::print(stderr, "usage: feature_cache_bench write|read|raw|arbitrate ROOT RECORDS BYTES [READS] [DEPTH]\n");
    return 2;
  }
  const std::string what = argv[1];
  const uint64_t records = std::stoull(argv[3]), bytes = std::stoull(argv[4]);
  const bool arbitrate = what == "arbitrate";  // goes through the records more than once
  const uint64_t asked = argc > 5 ? std::stoull(argv[5]) : records,
                 reads = arbitrate ? asked : std::min(records, asked);
  const unsigned depth = argc > 6 && !arbitrate ? static_cast<unsigned>(std::stoul(argv[6])) : 8;
  const Folder folder = Open(argv[2], bytes);
  if (what == "write") {
    const TimePoint start = Now();
    Write(folder, records, bytes);
    fmt::print("{{\"seconds\": {}, \"records\": {}}}\n", SecondsSince(start), records);
    return 0;
  }
  std::vector<uint64_t> order = Shuffled(records);
  for (uint64_t i = 0; order.size() < reads; ++i) order.push_back(order[i]);
  order.resize(reads);
  if (arbitrate) {
    if (argc < 8) Fail(Status(Code::kUsage, "arbitrate needs a policy and microseconds"));
    const auto [seconds, taken] =
        Arbitrate(folder, order, bytes, argv[6], std::chrono::microseconds(std::stoul(argv[7])));
    fmt::print("{{\"seconds\": {}, \"records\": {}, \"read\": {}}}\n", seconds, reads, taken);
    return 0;
  }
  Buffers buffers(bytes);
  if (what == "read") {
    const std::unique_ptr<Reader> reader = Must(Reader::Open(folder, {.depth = depth}));
    const TimePoint start = Now();
    for (size_t at = 0; at < order.size(); at += kAtOnce) {
      std::vector<Request> batch(std::min(kAtOnce, order.size() - at));
      for (size_t i = 0; i < batch.size(); ++i) {
        batch[i].key = Key(folder, order[at + i]);
        batch[i].fields = {buffers.data + i * buffers.each};
      }
      reader->Read(batch);
      for (size_t i = 0; i < batch.size(); ++i) {
        uint64_t number = 0;
        std::memcpy(&number, batch[i].fields[0], 8);
        if (batch[i].outcome != Outcome::kHit || number != order[at + i]) Fail(Status(Code::kInternal, batch[i].why));
      }
    }
    fmt::print("{{\"seconds\": {}, \"records\": {}, \"how\": \"{}\"}}\n", SecondsSince(start), reads,
               reader->Describe());
    return 0;
  }
  const Plan plan{"bench", records, std::max<uint64_t>(1, kUnitBytes / bytes)};
  std::vector<std::shared_ptr<const UnitFile>> units;
  for (uint64_t unit = 0; unit < plan.units(); ++unit) {
    units.push_back(
        Must(UnitFile::Open(folder.UnitPath(plan.UnitName(unit)), folder.id(), folder.description().Columns())));
  }
  const std::unique_ptr<BlockReader> blocks = MakeBlockReader(depth);
  const TimePoint start = Now();
  for (size_t at = 0; at < order.size(); at += kAtOnce) {
    std::vector<BlockRead> batch(std::min(kAtOnce, order.size() - at));
    for (size_t i = 0; i < batch.size(); ++i) {
      const UnitFile& unit = *units[order[at + i] / plan.rows];
      const uint64_t offset = unit.offset(order[at + i] % plan.rows, 0), skip = offset % kBlock;
      batch[i] = {unit.fd(),
                  offset - skip,
                  (skip + bytes + kBlock - 1) / kBlock * kBlock,
                  skip + bytes,
                  buffers.data + i * buffers.each,
                  0};
    }
    blocks->Read(batch, [](size_t) {});
    for (const BlockRead& read : batch) {
      if (read.error != 0) Fail(Status(Code::kInternal, ErrnoText(read.error)));
    }
  }
  fmt::print("{{\"seconds\": {}, \"records\": {}, \"how\": \"{}\"}}\n", SecondsSince(start), reads, blocks->name());
  return 0;
}
