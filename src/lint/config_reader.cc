// Configuration files as trees of keys: DeepSpeed's JSON, accelerate's YAML, any other.
#include <fmt/format.h>

#include "base/json.h"
#include "base/text.h"
#include "lint/readers.h"
#include "lint/yaml_text.h"

namespace lockstep::lint {
namespace {

constexpr int kMostKeys = 20000;
constexpr int kDeepestConfig = 64;

void Walk(const YamlText& yaml, const YAML::Node& node, const std::string& path, int depth, int& budget, Unit& unit) {
  if (!node.IsDefined() || depth > kDeepestConfig) return;
  if (node.IsMap()) {
    for (const auto& pair : node) {
      if (--budget < 0) return;
      const std::string name = path.empty() ? Scalar(pair.first) : path + "." + Scalar(pair.first);
      Fact fact;
      fact.kind = "key";
      fact.name = name;
      fact.value = Scalar(pair.second);
      fact.known = !pair.second.IsScalar() || fact.value != "auto";
      fact.line = yaml.Line(pair.first);
      fact.column = yaml.Column(pair.first);
      unit.facts.push_back(std::move(fact));
      Walk(yaml, pair.second, name, depth + 1, budget, unit);
    }
  } else if (node.IsSequence()) {
    for (const YAML::Node& item : node) {
      if (--budget < 0) return;
      Walk(yaml, item, path + "[]", depth + 1, budget, unit);
    }
  }
}

bool IsDeepSpeed(std::string_view text) {
  for (const char* key : {"\"zero_optimization\"", "\"train_micro_batch_size_per_gpu\"", "\"zero_allow_untested",
                          "\"stage3_", "\"offload_optimizer\""}) {
    if (text.find(key) != std::string_view::npos) return true;
  }
  return false;
}

// Where two texts of the same length differ first.
size_t FirstDifference(std::string_view a, std::string_view b, int& line, int& column) {
  column = 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i] != b[i]) return i;
    if (a[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return a.size();
}

}  // namespace

void ReadConfig(std::string_view text, int line, bool fragment, Units& units, bool comments_allowed) {
  Unit unit;
  unit.dialect = "config";
  std::string readable(text);
  const std::string_view trimmed = Trim(text);
  const bool json = !trimmed.empty() && (trimmed[0] == '{' || trimmed[0] == '[') && trimmed.substr(0, 2) != "{{";
  if (json) {
    Result<std::string> blanked = BlankJsonComments(text, "");
    const bool strict = ParseJson(text, "").ok();
    const bool lenient = strict || (blanked.ok() && ParseJson(*blanked, "").ok());
    // An editor's launch.json may hold both.
    const bool editor =
        text.find("\"request\"") != std::string_view::npos && text.find("\"type\"") != std::string_view::npos;
    if (!strict && lenient && !comments_allowed && !editor) {
      Fact fact;
      fact.kind = "shape";
      fact.name = IsDeepSpeed(text) ? "json-comments-deepspeed" : "json-comments";
      fact.line = line;
      const size_t at = FirstDifference(text, *blanked, fact.line, fact.column);
      fact.detail = at < text.size() && text[at] == ',' ? "a comma behind the last entry" : "comments";
      unit.facts.push_back(std::move(fact));
    } else if (!lenient && !fragment) {
      Fact fact;
      fact.kind = "shape";
      fact.name = "json-broken";
      fact.detail = ParseJson(blanked.ok() ? *blanked : readable, "").status().message();
      fact.line = line;
      fact.column = 1;
      unit.facts.push_back(std::move(fact));
    }
    if (blanked.ok()) readable = *blanked;
    for (char& c : readable) c = c == '\t' ? ' ' : c;
  }
  Result<YamlText> yaml = YamlText::Read(readable, line);
  if (yaml.ok()) {
    int budget = kMostKeys;
    try {
      for (const YAML::Node& document : yaml->documents()) {
        Walk(*yaml, document, "", 0, budget, unit);
        ReadSettings(*yaml, document, false, unit, units);
      }
    } catch (const std::exception&) {  // what was read so far stays
    }
  }
  units.push_back(std::move(unit));
}

}  // namespace lockstep::lint
