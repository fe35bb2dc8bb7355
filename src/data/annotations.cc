#include "data/annotations.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"

namespace lockstep::data {
namespace {

using nlohmann::json;

constexpr size_t kMaxAnnotations = size_t{4} << 30;
constexpr const char* kHint = "docs/formats/annotations.md shows the form: {\"list\": [{\"path\": \"a.mp4\"}, ...]}";

Status Wrong(const std::string& where, const std::string& what) {
  return Status(Code::kUsage, where + ": " + what, kHint);
}

Result<std::string> PathOf(const json& entry, const std::string& where) {
  if (!entry.is_object()) return Wrong(where, fmt::format("expected an object, found {}", entry.type_name()));
  const char* key = entry.contains("path") ? "path" : "full_path";
  const auto it = entry.find(key);
  if (it == entry.end()) return Wrong(where, "expected 'path' or 'full_path', found neither");
  if (!it->is_string()) return Wrong(where + "." + key, fmt::format("expected text, found {}", it->type_name()));
  const auto& path = it->get_ref<const std::string&>();
  if (path.empty()) return Wrong(where + "." + key, "the path is empty");
  if (path.find('\0') != std::string::npos) return Wrong(where + "." + key, "the path contains a zero byte");
  return path;
}

}  // namespace

Result<Annotations> ParseAnnotations(std::string_view text, const std::string& source) {
  Result<json> document = ParseJson(text, source);
  if (!document.ok()) return document.status();
  if (!document->is_object()) {
    return Wrong(source, fmt::format("expected an object with 'list', found {}", document->type_name()));
  }
  const auto list = document->find("list");
  if (list == document->end()) return Wrong(source, "the object has no 'list'");
  if (!list->is_array()) return Wrong(source, fmt::format("'list' must be an array, found {}", list->type_name()));
  if (list->empty()) return Wrong(source, "'list' is empty");
  Annotations annotations;
  annotations.paths.reserve(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    Result<std::string> path = PathOf((*list)[i], fmt::format("{}: list[{}]", source, i));
    if (!path.ok()) return path.status();
    annotations.paths.push_back(std::move(*path));
  }
  annotations.digest = fmt::format("{:016x}", static_cast<uint64_t>(XXH64(text.data(), text.size(), 0)));
  return annotations;
}

Result<Annotations> ReadAnnotations(const std::string& path) {
  Result<std::string> text = ReadFile(path, kMaxAnnotations);
  if (!text.ok()) return text.status();
  return ParseAnnotations(*text, path);
}

}  // namespace lockstep::data
