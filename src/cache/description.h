// What a namespace of the cache is: everything features depend on beside the items themselves, and how they are stored.
// Its digest is the namespace's name, so features of another encoder, preprocessing or storage are never found by
// mistake. Also the key of a record over its whole ordered context. Plain values, any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor_info.h"
#include "cache/digest.h"

namespace lockstep::cache {

inline constexpr int kFormatVersion = 1;

// What features of an item depend on beside the item.
enum class Context {
  kIndependent,   // nothing: one item a record
  kOrdered,       // all items of the record, in their order
  kReferenceSet,  // the first item, and the set of the others
};

enum class Storage { kSame, kBf16, kF8, kInt8 };

std::string_view Name(Context context);
std::string_view Name(Storage storage);
Result<Context> ParseContext(std::string_view name);
Result<Storage> ParseStorage(std::string_view name);

struct FieldSpec {
  std::string name;
  Dtype dtype = Dtype::kF32;  // as the encoder gives it
  Storage stored = Storage::kSame;
  std::vector<int64_t> shape;  // of one record
  bool per_item = false;       // the first axis counts the record's items

  uint64_t bytes() const;  // of one record as the encoder gives it
};

// One tensor of a unit without its first axis: a field, or the scales of a quantised one.
struct Column {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;  // of one row
};

struct Description {
  nlohmann::json encoder = nlohmann::json::object();
  std::string weights;  // "sha256:..."
  nlohmann::json preprocessing = nlohmann::json::object();
  Context context = Context::kIndependent;
  std::string stem;
  std::vector<FieldSpec> fields;

  // The line whose digest is the id.
  std::string Line() const;
  std::string Id() const;
  std::vector<Column> Columns() const;
  uint64_t RowBytes() const;
  Status Check() const;
  static Result<Description> Parse(std::string_view line, const std::string& source);
};

struct RecordKey {
  Digest key{};
  // Item i as given lies at place order[i] of the record; empty: as given.
  std::vector<uint32_t> order;
};

// An error for no items, or more than one where features are independent.
Result<RecordKey> KeyOf(const std::string& namespace_id, Context context, std::span<const ItemDigest> items);

// Which samples a build covers, and in which units.
struct Plan {
  std::string source;    // what identifies the samples
  uint64_t samples = 0;  // of the source
  uint64_t rows = 1;     // samples of a unit

  std::string Line() const;
  std::string Id() const;
  uint64_t units() const { return (samples + rows - 1) / rows; }
  std::string UnitName(uint64_t number) const;
  static Result<Plan> Parse(std::string_view line, const std::string& source);
};

}  // namespace lockstep::cache
