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

Result<std::vector<std::string>> PathsOfDocument(std::string_view text, const std::string& source) {
  Result<json> document = ParseJson(text, source);
  if (!document.ok()) return document.status();
  if (!document->is_object() && !document->is_array()) {
    return Wrong(source, fmt::format("expected an object with 'list', found {}", document->type_name()));
  }
  const bool bare = document->is_array();
  const auto it = bare ? document->end() : document->find("list");
  if (!bare && it == document->end()) return Wrong(source, "the object has no 'list'");
  const json& list = bare ? *document : *it;
  if (!list.is_array()) return Wrong(source, fmt::format("'list' must be an array, found {}", list.type_name()));
  std::vector<std::string> paths;
  paths.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    Result<std::string> path = PathOf(list[i], fmt::format("{}: {}[{}]", source, bare ? "" : "list", i));
    if (!path.ok()) return path.status();
    paths.push_back(std::move(*path));
  }
  return paths;
}

// One entry a line; empty lines are passed over.
Result<std::vector<std::string>> PathsOfLines(std::string_view text, const std::string& source) {
  std::vector<std::string> paths;
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{} line {}", source, number);
    Result<json> entry = ParseJson(line, where);
    if (!entry.ok()) return entry.status();
    Result<std::string> path = PathOf(*entry, where);
    if (!path.ok()) return path.status();
    paths.push_back(std::move(*path));
  }
  return paths;
}

}  // namespace

Result<Annotations> ParseAnnotations(std::string_view text, const std::string& source) {
  Result<std::vector<std::string>> paths =
      source.ends_with(".jsonl") ? PathsOfLines(text, source) : PathsOfDocument(text, source);
  if (!paths.ok()) return paths.status();
  if (paths->empty()) return Wrong(source, source.ends_with(".jsonl") ? "it has no entry" : "'list' is empty");
  Annotations annotations{std::move(*paths), ""};
  annotations.digest = fmt::format("{:016x}", static_cast<uint64_t>(XXH64(text.data(), text.size(), 0)));
  return annotations;
}

Result<Annotations> ReadAnnotations(const std::string& path) {
  Result<std::string> text = ReadFile(path, kMaxAnnotations);
  if (!text.ok()) return text.status();
  return ParseAnnotations(*text, path);
}

}  // namespace lockstep::data
