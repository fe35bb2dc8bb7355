// The feature cache alone, for bench/feature_cache.py: writes records, reads them in random order with verification, or
// reads the same places raw. Prints one JSON line.
//
//   feature_cache_bench write ROOT RECORDS BYTES
//   feature_cache_bench read ROOT RECORDS BYTES READS [DEPTH]
//   feature_cache_bench raw ROOT RECORDS BYTES READS [DEPTH]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
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
  explicit Buffers(uint64_t bytes) : each((bytes + 2 * kBlock) / kBlock * kBlock) {
    data = memory.Grow(each * kAtOnce);
    std::memset(data, 0, each * kAtOnce);  // a training's buffers have been touched, too
  }
  BlockMemory memory;
  uint64_t each;
  std::byte* data;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    fmt::print(stderr, "usage: feature_cache_bench write|read|raw ROOT RECORDS BYTES [READS] [DEPTH]\n");
    return 2;
  }
  const std::string what = argv[1];
  const uint64_t records = std::stoull(argv[3]), bytes = std::stoull(argv[4]);
  const uint64_t reads = argc > 5 ? std::min<uint64_t>(records, std::stoull(argv[5])) : records;
  const unsigned depth = argc > 6 ? static_cast<unsigned>(std::stoul(argv[6])) : 8;
  const Folder folder = Open(argv[2], bytes);
  if (what == "write") {
    const TimePoint start = Now();
    Write(folder, records, bytes);
    fmt::print("{{\"seconds\": {}, \"records\": {}}}\n", SecondsSince(start), records);
    return 0;
  }
  std::vector<uint64_t> order = Shuffled(records);
  order.resize(reads);
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
