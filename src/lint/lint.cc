#include "lint/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <regex>
#include <set>

#include "base/files.h"
#include "base/text.h"
#include "lint/checks.h"
#include "lint/readers.h"
#include "lint/rules.h"

namespace lockstep::lint {
namespace {

constexpr size_t kLongestMatched = 2000;  // bytes of a value that a pattern looks at

bool Search(const std::string& text, const std::string& pattern) {
  static std::mutex mutex;
  static std::map<std::string, std::regex>* compiled = new std::map<std::string, std::regex>();
  std::lock_guard<std::mutex> lock(mutex);
  auto at = compiled->find(pattern);
  if (at == compiled->end()) {
    at = compiled->emplace(pattern, std::regex(pattern, std::regex::ECMAScript | std::regex::icase)).first;
  }
  return std::regex_search(text.substr(0, kLongestMatched), at->second);
}

bool Equal(const std::string& value, const std::string& alternatives) {
  auto same = [](const std::string& a, const std::string& b) {
    return a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return std::tolower(x) == std::tolower(y); });
  };
  for (const std::string& one : Split(alternatives, '|')) {
    if (same(value, std::string(Trim(one)))) return true;
  }
  return false;
}

bool Compare(const Fact& fact, const Condition& condition) {
  const std::string& comparison = condition.comparison;
  if (comparison.empty()) return true;
  // Comments and commands are looked at as they are written; a value that is computed is not known.
  const bool text = fact.kind == "comment" || fact.kind == "command" || fact.kind == "operands" || fact.kind == "call";
  if (comparison == "~" || comparison == "!~") {
    if (!fact.known && !text && condition.operand.find("\\$") == std::string::npos) return comparison == "!~";
    return Search(fact.value, condition.operand) == (comparison == "~");
  }
  if (!fact.known) return false;
  if (comparison == "=" || comparison == "!=") return Equal(fact.value, condition.operand) == (comparison == "=");
  double value = 0, limit = 0;
  if (!AsNumber(fact.value, value) || !AsNumber(condition.operand, limit)) return false;
  return comparison == ">" ? value > limit : value < limit;
}

// Whether another fact of the unit is as the condition says.
const Fact* Another(const Fact& fact, const Unit& unit, const Condition& condition) {
  for (const Fact& other : unit.facts) {
    if (&other == &fact || other.kind != condition.kind || !MatchesPattern(other.name, condition.name)) continue;
    if (Together(fact, other) && Compare(other, condition)) return &other;
  }
  return nullptr;
}

bool Holds(const Condition& condition, const Fact& fact, const Unit& unit, const LintContext& context, Words& words) {
  if (condition.verb == "value") return Compare(fact, condition);
  if (condition.verb == "lasting") return fact.lasting;
  if (condition.verb == "in" || condition.verb == "not-in") {
    const bool inside = Equal(unit.dialect, condition.operand);
    return inside == (condition.verb == "in");
  }
  if (condition.verb == "also" || condition.verb == "without") {
    const Fact* other = Another(fact, unit, condition);
    if (condition.verb == "without") return other == nullptr;
    if (other == nullptr) return false;
    words["other"] = other->name;
    words["other_value"] = Printable(other->value, 80);
    words["other_line"] = std::to_string(other->line);
    return true;
  }
  if (condition.verb == "hardware" || condition.verb == "not-hardware") {
    const Check check = FindHardwareCheck(condition.operand);
    const bool wanted = condition.verb == "hardware";
    if (!context.hardware || check == nullptr || !fact.known) return !wanted;
    return check(fact, unit, context, words) == wanted;
  }
  const Check check = FindCheck(condition.operand);
  // What a name means does not depend on a value that is not known.
  static const char* const kOfNames[] = {"unknown",          "misspelt",
                                         "not-in-library",   "never-existed",
                                         "renamed-long-ago", "renamed-for-this-version",
                                         "removed",          "unknown-torchrun-flag",
                                         "from-platform"};
  const bool of_name = std::any_of(std::begin(kOfNames), std::end(kOfNames),
                                   [&](const char* name) { return condition.operand == name; });
  return check != nullptr && (fact.known || of_name) && check(fact, unit, context, words);
}

std::string Fill(const std::string& text, const Words& words) {
  std::string filled;
  for (size_t at = 0; at < text.size();) {
    const size_t close = text[at] == '{' ? text.find('}', at) : std::string::npos;
    if (close == std::string::npos) {
      filled += text[at++];
      continue;
    }
    auto word = words.find(text.substr(at + 1, close - at - 1));
    filled += word == words.end() ? text.substr(at, close + 1 - at) : word->second;
    at = close + 1;
  }
  return filled;
}

bool About(const Rule& rule, const Fact& fact) {
  return rule.kind == fact.kind && std::any_of(rule.names.begin(), rule.names.end(), [&](const std::string& name) {
           return MatchesPattern(fact.name, name);
         });
}

void Judge(const Fact& fact, const Unit& unit, const std::string& file, const LintContext& context,
           std::vector<LintFinding>& findings) {
  std::vector<std::string> spoken;
  for (const Rule& rule : Rules()) {
    if (!About(rule, fact)) continue;
    const bool covered = std::any_of(rule.unless_rules.begin(), rule.unless_rules.end(), [&](const std::string& other) {
      return std::find(spoken.begin(), spoken.end(), other) != spoken.end();
    });
    if (covered) continue;
    Words words = {{"name", fact.name}, {"value", Printable(fact.value, 80)}, {"detail", fact.detail}};
    if (fact.kind == "flag")
      words["flag"] = fact.detail.empty() ? fact.name.substr(fact.name.find(' ') + 1) : fact.detail;
    const bool holds = std::all_of(rule.when.begin(), rule.when.end(), [&](const Condition& condition) {
      return Holds(condition, fact, unit, context, words);
    });
    if (!holds) continue;
    spoken.push_back(rule.id);
    LintFinding finding;
    finding.file = file;
    finding.line = fact.line;
    finding.column = fact.column;
    finding.variable = fact.kind == "shape" || fact.kind == "comment" || fact.kind == "command" ? "" : fact.name;
    if (fact.kind == "flag") finding.variable = words["flag"];
    finding.rule = rule.id;
    finding.severity = rule.severity;
    finding.what = Fill(rule.what, words);
    finding.why = Fill(rule.why, words);
    finding.fix = Fill(rule.fix, words);
    finding.source = rule.source;
    findings.push_back(std::move(finding));
  }
}

std::vector<LintFinding> LintUnits(const Units& units, const std::string& file, const LintContext& context) {
  std::vector<LintFinding> findings;
  for (const Unit& unit : units) {
    for (const Fact& fact : unit.facts) Judge(fact, unit, file, context, findings);
  }
  std::sort(findings.begin(), findings.end(), [](const LintFinding& a, const LintFinding& b) {
    return std::tie(a.line, a.column, a.rule, a.what) < std::tie(b.line, b.column, b.rule, b.what);
  });
  findings.erase(std::unique(findings.begin(), findings.end(),
                             [](const LintFinding& a, const LintFinding& b) {
                               return a.line == b.line && a.column == b.column && a.rule == b.rule && a.what == b.what;
                             }),
                 findings.end());
  return findings;
}

// Software named anywhere in a file changes what is right in all of it: a block of exports says nothing about what it
// is for, the page around it does.
void AddMentions(std::string_view text, const std::string& file, Units& units) {
  struct Mention {
    const char* name;
    std::vector<const char*> words;
  };
  static const std::vector<Mention> kMentions = {
      {"megatron",
       {"megatron", "tensor-model-parallel", "tensor_model_parallel", "nemo_", "transformer_engine", "xla_flags",
        "nanotron", "colossal"}},
      {"cloud-plugin",
       {"fi_provider", "nccl_fastrak", "gpudirecttcpx", "aws-ofi", "nccl_gib", "/gib/", "tcpxo",
        "vpc.amazonaws.com/efa"}},
      {"rocm", {"rocm", "rccl", "hip_visible", "hsa_", "amd.com/gpu", "mi300", "mi250"}},
      {"deterministic", {"determinis", "batch_invariant", "reproducib"}},
      {"scheduler", {"slurm", "sbatch", "kubectl", "kubernetes", "qsub", "bsub"}},
      // Machines of one image: their interfaces have the same names.
      {"machines-alike",
       {"azure", "ndv4", "ndv5", "nd96", "azurehpc", "/microsoft/", "bm.gpu", "hyperpod", "p4d.24", "p5.48", "a3-mega",
        "a3-high"}},
      // Platforms known to count nodes in WORLD_SIZE.
      {"counts-nodes", {"dlc", "pai-", "aliyun", "alibaba", "baidu", "ti-one", "tione", "kubebrain"}},
  };
  std::string lower = file + "\n" + std::string(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const Mention& mention : kMentions) {
    const bool found = std::any_of(mention.words.begin(), mention.words.end(),
                                   [&](const char* word) { return lower.find(word) != std::string::npos; });
    if (!found) continue;
    Fact fact;
    fact.kind = "mention";
    fact.name = mention.name;
    for (Unit& unit : units) unit.facts.push_back(fact);
  }
}

}  // namespace

const char* Name(Severity severity) {
  return severity == Severity::kError ? "error" : severity == Severity::kWarning ? "warning" : "note";
}

std::vector<LintFinding> LintEnvironment(const Environment& env, const LintContext& context) {
  return LintUnits({EnvironmentFacts(env)}, "", context);
}

Result<std::vector<LintFinding>> LintText(std::string_view text, const std::string& file, FileType type,
                                          const LintContext& context) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);  // a mark of the encoding, no character
  Units units;
  switch (type) {
    case FileType::kEnvironment:
      ReadEnvironment(text, units);
      break;
    case FileType::kShell:
      ReadScript(text, 1, 1, false, "script", units);
      break;
    case FileType::kSbatch:
      ReadScript(text, 1, 1, false, "sbatch", units);
      break;
    case FileType::kManifest:
      ReadManifest(text, 1, units);
      break;
    case FileType::kDockerfile:
      ReadDockerfile(text, 1, units);
      break;
    case FileType::kMarkdown:
      ReadMarkdown(text, units);
      break;
    case FileType::kConf:
      ReadConf(text, 1, units);
      break;
    case FileType::kConfig:
      ReadConfig(text, 1, false, units, file.size() > 6 && file.compare(file.size() - 6, 6, ".jsonc") == 0);
      break;
    case FileType::kPython:
      ReadPython(text, 1, 1, units);
      break;
  }
  AddMentions(text, file, units);
  // What one block of a page sets, another may use.
  std::set<std::string> used;
  for (const Unit& unit : units) used.insert(unit.used.begin(), unit.used.end());
  for (Unit& unit : units) {
    for (Fact& fact : unit.facts) fact.used = fact.used || (fact.kind == "variable" && used.count(fact.name) != 0);
  }
  return LintUnits(units, file, context);
}

namespace {

// torch/lib/libtorch_cuda.so stands beside torch/version.py; libnccl prints its own.
std::string VersionOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  if (path.find("libtorch", slash == std::string::npos ? 0 : slash) == std::string::npos) {
    return hardware::TextAfter(path, "NCCL version ", "0123456789.").value_or("");
  }
  const Result<std::string> text = ReadFile(folder + "/../version.py", 1 << 16);
  const size_t at = text.ok() ? text->find("__version__ = '") : std::string::npos;
  if (at == std::string::npos) return "";
  const std::string version = text->substr(at + 15, text->find('\'', at + 15) - at - 15);
  return version.substr(0, version.find('+'));
}

}  // namespace

Result<KnownLibrary> ReadKnownLibrary(const std::string& path, const std::string& version) {
  Result<hardware::LibraryNames> names =
      hardware::NamesWithPrefix(path, {"NCCL_", "TORCH_NCCL_", "TORCH_FR_", "TORCH_GLOO_", "GLOO_"});
  if (!names.ok()) return names.status();
  KnownLibrary library{path, version, std::move(*names)};
  if (library.version.empty()) library.version = VersionOf(path);
  return library;
}

nlohmann::json ToJson(const LintFinding& finding) {
  return {{"file", finding.file},         {"line", finding.line}, {"column", finding.column},
          {"variable", finding.variable}, {"rule", finding.rule}, {"severity", Name(finding.severity)},
          {"what", finding.what},         {"why", finding.why},   {"fix", finding.fix},
          {"source", finding.source}};
}

}  // namespace lockstep::lint
