// A small namespace for tests: made-up features that are a function of the key, so that any wrong one shows.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/files.h"
#include "cache/build.h"
#include "cache/folder.h"
#include "cache/quantise.h"
#include "cache/reader.h"
#include "cache/unit.h"

namespace lockstep::cache {

inline Description SmallDescription(Storage stored = Storage::kSame, Context context = Context::kOrdered) {
  Description made;
  made.encoder = {{"kind", "test"}, {"compute", "F32"}};
  made.weights = "sha256:" + std::string(64, '0');
  made.preprocessing = {{"resize", "bicubic"}, {"mean", 0.5}};
  made.context = context;
  made.fields = {{"tokens", Dtype::kF32, stored, {7, 33}, false}, {"pooled", Dtype::kF32, Storage::kSame, {5}, false}};
  return made;
}

// A namespace in a folder of its own.
struct SmallCache {
  Result<TempDir> dir = TempDir::Create();
  Folder folder;
  explicit SmallCache(Storage stored = Storage::kSame)
      : folder(*Folder::Create(dir->path(), SmallDescription(stored))) {}
};

inline ItemDigest Item(uint64_t number) { return DigestItem(&number, sizeof number); }

inline Digest KeyOfNumber(const Folder& folder, uint64_t number) {
  const std::vector<ItemDigest> items = {Item(number), Item(number + 1)};
  return KeyOf(folder.id(), folder.description().context, items)->key;
}

// Values of a record's field: small fractions, another sequence for each number.
inline std::vector<float> Values(uint64_t number, size_t field, size_t count) {
  std::vector<float> values(count);
  uint64_t state = number * 0x9e3779b97f4a7c15 + field + 1;
  for (float& value : values) {
    state = state * 6364136223846793005 + 1442695040888963407;
    value = static_cast<float>(static_cast<int64_t>(state >> 40)) / (1 << 23) - 1.0f;
  }
  return values;
}

inline const std::byte* Bytes(const std::vector<float>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

// Adds record `number` to a unit.
inline void AddRecord(const Folder& folder, uint64_t number, UnitBuilder* unit) {
  const std::vector<std::byte*> columns = unit->Add(KeyOfNumber(folder, number));
  const std::vector<FieldSpec>& fields = folder.description().fields;
  PackError error;
  size_t column = 0;
  for (size_t i = 0; i < fields.size(); ++i) {
    const size_t width = fields[i].stored == Storage::kF8 || fields[i].stored == Storage::kInt8 ? 2 : 1;
    const std::vector<float> values = Values(number, i, fields[i].bytes() / 4);
    ASSERT_TRUE(Pack(fields[i], Bytes(values), std::span(columns).subspan(column, width), &error).ok());
    column += width;
  }
}

inline std::string WriteUnit(const Folder& folder, uint64_t number, uint64_t first, uint64_t rows) {
  const Plan plan{"test", 1000, rows};
  UnitBuilder unit(folder.description().Columns(), rows);
  for (uint64_t i = 0; i < rows; ++i) AddRecord(folder, first + i, &unit);
  const Result<bool> published =
      unit.Publish(folder.UnitPath(plan.UnitName(number)), {{"namespace", folder.id()}, {"plan", plan.Id()}});
  EXPECT_TRUE(published.ok()) << published.status().ToString();
  return folder.UnitPath(plan.UnitName(number));
}

struct Got {
  Outcome outcome;
  std::string why;
  std::vector<float> tokens, pooled;
};

inline std::vector<Got> ReadNumbers(Reader& reader, const std::vector<uint64_t>& numbers) {
  std::vector<Got> got(numbers.size());
  std::vector<Request> requests(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    got[i].tokens.resize(7 * 33);
    got[i].pooled.resize(5);
    requests[i].key.key = KeyOfNumber(reader.folder(), numbers[i]);
    requests[i].fields = {reinterpret_cast<std::byte*>(got[i].tokens.data()),
                          reinterpret_cast<std::byte*>(got[i].pooled.data())};
  }
  reader.Read(requests);
  for (size_t i = 0; i < numbers.size(); ++i) {
    got[i].outcome = requests[i].outcome;
    got[i].why = requests[i].why;
  }
  return got;
}

inline bool IsRecord(const Got& got, uint64_t number) {
  return got.outcome == Outcome::kHit && got.tokens == Values(number, 0, 7 * 33) && got.pooled == Values(number, 1, 5);
}

inline Status PutNumber(const Folder& folder, uint64_t number, UnitSink& sink) {
  const RecordKey key{KeyOfNumber(folder, number), {}};
  if (!sink.Wanted(key.key)) return Status::Ok();
  const std::vector<float> tokens = Values(number, 0, 7 * 33), pooled = Values(number, 1, 5);
  const std::vector<const std::byte*> fields = {Bytes(tokens), Bytes(pooled)};
  return sink.Put(key, fields);
}

// Encodes samples that are numbers.
inline EncodeUnit Numbers(const Folder& folder) {
  return [&folder](uint64_t first, uint64_t count, UnitSink& sink) {
    for (uint64_t i = first; i < first + count; ++i) LOCKSTEP_RETURN_IF_ERROR(PutNumber(folder, i, sink));
    return Status::Ok();
  };
}

// How many of the numbers [0, samples) a new reader does not hand out, or wrong.
inline int Missing(const Folder& folder, uint64_t samples) {
  const auto reader = Reader::Open(folder);
  std::vector<uint64_t> numbers;
  for (uint64_t i = 0; i < samples; ++i) numbers.push_back(i);
  const std::vector<Got> got = ReadNumbers(**reader, numbers);
  int missing = 0;
  for (uint64_t i = 0; i < samples; ++i) missing += IsRecord(got[i], i) ? 0 : 1;
  return missing;
}

// Mounts of this process alone, as root or in a user namespace.
inline bool OwnMounts() {
  const uid_t user = ::getuid();
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
  }
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

inline void FlipBit(const std::string& path, uint64_t bit) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  char byte = 0;
  ASSERT_EQ(::pread(fd.get(), &byte, 1, static_cast<off_t>(bit / 8)), 1);
  byte = static_cast<char>(byte ^ (1 << (bit % 8)));
  ASSERT_EQ(::pwrite(fd.get(), &byte, 1, static_cast<off_t>(bit / 8)), 1);
}

}  // namespace lockstep::cache
