#include "cache/description.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <tuple>

#include "base/json.h"
#include "base/text.h"

namespace lockstep::cache {
namespace {

constexpr char kFormat[] = "lockstep-cache";
constexpr char kPlanFormat[] = "lockstep-cache-plan";
constexpr char kKeyText[] = "lockstep-record-1";

constexpr std::array<std::pair<Context, std::string_view>, 3> kContexts = {{{Context::kIndependent, "independent"},
                                                                            {Context::kOrdered, "ordered"},
                                                                            {Context::kReferenceSet, "reference+set"}}};
constexpr std::array<std::pair<Storage, std::string_view>, 4> kStorages = {
    {{Storage::kSame, "same"}, {Storage::kBf16, "bf16"}, {Storage::kF8, "f8_e4m3"}, {Storage::kInt8, "int8"}}};

template <typename T, size_t Size>
std::string_view NameIn(const std::array<std::pair<T, std::string_view>, Size>& table, T value) {
  for (const auto& [known, name] : table) {
    if (known == value) return name;
  }
  return "";
}

template <typename T, size_t Size>
Result<T> ParseIn(const std::array<std::pair<T, std::string_view>, Size>& table, std::string_view text,
                  const char* what) {
  std::vector<std::string> names;
  for (const auto& [value, name] : table) {
    if (name == text) return value;
    names.emplace_back(name);
  }
  return Status(Code::kUsage, fmt::format("{} '{}' is unknown", what, Printable(text)), "one of " + Join(names, ", "));
}

Column MakeColumn(std::string name, Dtype dtype, std::vector<int64_t> shape) {
  const Result<uint64_t> bytes = TensorBytes(dtype, shape);
  return {std::move(name), dtype, std::move(shape), bytes.ok() ? *bytes : 0};
}

bool Floating(Dtype dtype) { return dtype == Dtype::kF32 || dtype == Dtype::kF16 || dtype == Dtype::kBF16; }

Status WrongVersion(const std::string& source, const nlohmann::json& json, const char* format) {
  return Status(Code::kUsage,
                fmt::format("{}: expected format {} version {}, found '{}' version {}", source, format, kFormatVersion,
                            Printable(GetString(json, "format")), GetInt(json, "version")),
                "read it with the version of lockstep that wrote it, or build the cache again");
}

}  // namespace

std::string_view Name(Context context) { return NameIn(kContexts, context); }
std::string_view Name(Storage storage) { return NameIn(kStorages, storage); }
Result<Context> ParseContext(std::string_view name) { return ParseIn(kContexts, name, "context"); }
Result<Storage> ParseStorage(std::string_view name) { return ParseIn(kStorages, name, "storage"); }

uint64_t FieldSpec::bytes() const { return MakeColumn(name, dtype, shape).bytes; }

std::string Description::Line() const {
  nlohmann::json list = nlohmann::json::array();
  for (const FieldSpec& field : fields) {
    list.push_back({{"name", field.name},
                    {"dtype", DtypeName(field.dtype)},
                    {"stored", Name(field.stored)},
                    {"shape", field.shape},
                    {"per_item", field.per_item}});
  }
  return ToJsonLine({{"format", kFormat},
                     {"version", kFormatVersion},
                     {"encoder", encoder},
                     {"weights", weights},
                     {"preprocessing", preprocessing},
                     {"context", Name(context)},
                     {"stem", stem},
                     {"fields", list}});
}

std::string Description::Id() const { return Hex(DigestOf(Line())).substr(0, 32); }

std::vector<Column> Description::Columns() const {
  std::vector<Column> columns;
  for (const FieldSpec& field : fields) {
    Dtype dtype = field.dtype;
    if (field.stored == Storage::kBf16) dtype = Dtype::kBF16;
    if (field.stored == Storage::kF8) dtype = Dtype::kF8E4M3;
    if (field.stored == Storage::kInt8) dtype = Dtype::kI8;
    columns.push_back(MakeColumn(field.name, dtype, field.shape));
    if (field.stored == Storage::kF8 || field.stored == Storage::kInt8) {
      columns.push_back(MakeColumn(field.name + ".scale", Dtype::kF32,
                                   std::vector<int64_t>(field.shape.begin(), field.shape.end() - 1)));
    }
  }
  return columns;
}

uint64_t Description::RowBytes() const {
  uint64_t sum = 0;
  for (const Column& column : Columns()) sum += column.bytes;
  return sum;
}

Status Description::Check() const {
  const auto bad = [](const std::string& what) { return Status(Code::kUsage, "feature cache: " + what); };
  if (!weights.starts_with("sha256:") || weights.size() != 71) return bad("'weights' must be sha256:<64 hex digits>");
  if (fields.empty()) return bad("a namespace has at least one field");
  std::set<std::string> names;
  for (const FieldSpec& field : fields) {
    const std::string who = fmt::format("field '{}': ", Printable(field.name));
    if (field.name.empty() || field.name.starts_with("__") || field.name.ends_with(".scale")) {
      return bad(who + "names must not be empty, begin with __ or end in .scale");
    }
    if (!IsUtf8(field.name)) return bad(who + "names must be UTF-8");
    if (!names.insert(field.name).second) return bad(who + "it is there twice");
    const Result<uint64_t> bytes = TensorBytes(field.dtype, field.shape);
    if (!bytes.ok()) return bad(who + bytes.status().message());
    if (*bytes == 0) return bad(who + "it has no elements");
    if (field.stored == Storage::kSame) continue;
    if (!Floating(field.dtype)) return bad(who + "only F32, F16 and BF16 can be stored in another type");
    if (field.shape.empty()) return bad(who + "a scale per token needs an axis");
    if (field.per_item && field.shape.size() < 2) return bad(who + "per_item needs an axis beside the items");
  }
  return Status::Ok();
}

Result<Description> Description::Parse(std::string_view line, const std::string& source) {
  const Result<nlohmann::json> json = ParseJson(line, source);
  if (!json.ok()) return json.status();
  if (GetString(*json, "format") != kFormat || GetInt(*json, "version") != kFormatVersion) {
    return WrongVersion(source, *json, kFormat);
  }
  Description made;
  try {
    made.encoder = json->at("encoder");
    made.weights = json->at("weights").get<std::string>();
    made.preprocessing = json->at("preprocessing");
    const Result<Context> context = ParseContext(json->at("context").get<std::string>());
    if (!context.ok()) return context.status().Context(source);
    made.context = *context;
    made.stem = json->at("stem").get<std::string>();
    for (const nlohmann::json& entry : json->at("fields")) {
      const std::optional<Dtype> dtype = ParseDtype(entry.at("dtype").get<std::string>());
      const Result<Storage> stored = ParseStorage(entry.at("stored").get<std::string>());
      if (!dtype || !stored.ok()) {
        return Status(Code::kUsage, source + ": a field has a type that this version does not know");
      }
      made.fields.push_back({entry.at("name").get<std::string>(), *dtype, *stored,
                             entry.at("shape").get<std::vector<int64_t>>(), entry.at("per_item").get<bool>()});
    }
  } catch (const nlohmann::json::exception& error) {
    return Status(Code::kUsage, fmt::format("{}: not the description of a namespace: {}", source, error.what()));
  }
  const Status right = made.Check();
  if (!right.ok()) return right.Context(source);
  return made;
}

Result<RecordKey> KeyOf(const std::string& namespace_id, Context context, std::span<const ItemDigest> items) {
  if (items.empty() || (context == Context::kIndependent && items.size() != 1)) {
    return Status(Code::kInternal,
                  fmt::format("a record of {} items with the context '{}'", items.size(), Name(context)));
  }
  RecordKey made;
  std::vector<size_t> at(items.size());  // canonical place -> item
  std::iota(at.begin(), at.end(), size_t{0});
  if (context == Context::kReferenceSet) {
    std::sort(at.begin() + 1, at.end(),
              [&](size_t a, size_t b) { return std::tie(items[a], a) < std::tie(items[b], b); });
    made.order.resize(items.size());
    for (size_t place = 0; place < at.size(); ++place) made.order[at[place]] = static_cast<uint32_t>(place);
  }
  Sha256 sum;
  sum.Text(kKeyText);
  sum.Text(namespace_id);
  sum.Text(Name(context));
  sum.Update(uint64_t{items.size()});
  for (const size_t item : at) sum.Update(items[item].data(), items[item].size());
  made.key = sum.Finish();
  return made;
}

std::string Plan::Line() const {
  return ToJsonLine(
      {{"format", kPlanFormat}, {"version", kFormatVersion}, {"source", source}, {"samples", samples}, {"rows", rows}});
}

std::string Plan::Id() const { return Hex(DigestOf(Line())).substr(0, 16); }

std::string Plan::UnitName(uint64_t number) const { return fmt::format("{}-{:08}", Id(), number); }

Result<Plan> Plan::Parse(std::string_view line, const std::string& source) {
  const Result<nlohmann::json> json = ParseJson(line, source);
  if (!json.ok()) return json.status();
  if (GetString(*json, "format") != kPlanFormat || GetInt(*json, "version") != kFormatVersion) {
    return WrongVersion(source, *json, kPlanFormat);
  }
  Plan plan{GetString(*json, "source"), static_cast<uint64_t>(GetInt(*json, "samples")),
            static_cast<uint64_t>(GetInt(*json, "rows"))};
  if (plan.rows == 0) return Status(Code::kUsage, source + ": a plan needs rows above 0");
  return plan;
}

}  // namespace lockstep::cache
