#include "lint/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <regex>
#include <set>

#include "base/text.h"
#include "lint/variables.h"

namespace lockstep::lint {
namespace {

const Variable* Row(const Fact& fact) {
  const Variable* row = Variables::Table().Find(fact.name);
  return row != nullptr && row->name.back() == '*' ? nullptr : row;
}

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  return text;
}

bool OneOf(const std::string& value, std::initializer_list<const char*> words) {
  const std::string lower = Lower(value);
  return std::any_of(words.begin(), words.end(), [&](const char* word) { return lower == word; });
}

// The library whose business this variable is.
const KnownLibrary* Owner(const Fact& fact, const LintContext& context) {
  if (fact.name.rfind("NCCL_", 0) == 0 && context.nccl) return &*context.nccl;
  if ((fact.name.rfind("TORCH_", 0) == 0 || fact.name.rfind("GLOO_", 0) == 0) && context.torch) return &*context.torch;
  return nullptr;
}

bool InLibrary(const Fact& fact, const LintContext& context) {
  return (context.nccl && context.nccl->names.Knows(fact.name)) ||
         (context.torch && context.torch->names.Knows(fact.name));
}

// A script's own variable, by how its name ends or because the script reads it.
bool OwnVariable(const Fact& fact) {
  if (fact.used) return true;
  for (std::string_view end :
       {"_VER",  "_VERSION", "_IMAGE", "_TAG",  "_SCRIPT", "_PATH", "_DIR",       "_HOME", "_LOG",   "_CMD", "_BIN",
        "_EXIT", "_STATUS",  "_PID",   "_ROOT", "_NAME",   "_ARGS", "_CONTAINER", "_URL",  "_TESTS", "_ENV"}) {
    if (fact.name.size() > end.size() && fact.name.compare(fact.name.size() - end.size(), end.size(), end) == 0)
      return true;
  }
  return false;
}

bool Mentioned(const Unit& unit, const char* what) {
  return std::any_of(unit.facts.begin(), unit.facts.end(),
                     [&](const Fact& fact) { return fact.kind == "mention" && fact.name == what; });
}

bool Unknown(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  const bool small = std::any_of(fact.name.begin(), fact.name.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  if (small && !Variables::Table().Meant(fact.name)) return false;
  if (fact.used || (OwnVariable(fact) && !Variables::Table().Meant(fact.name))) return false;
  if (!Variables::Complete(fact.name) || Variables::Table().Find(fact.name) != nullptr) return false;
  if (InLibrary(fact, context)) return false;
  const KnownLibrary* library = Owner(fact, context);
  words["by"] = library != nullptr                 ? fmt::format("{} ({})", library->path,
                                                 library->version.empty() ? "version unknown" : library->version)
                : fact.name.rfind("NCCL_", 0) == 0 ? "NCCL (2.3 to 2.30)"
                : fact.name.rfind("GLOO_", 0) == 0 ? "Gloo"
                                                   : "PyTorch";
  return true;
}

bool UnknownFar(const Fact& fact, const Unit& unit, const LintContext& context, Words& words) {
  return Unknown(fact, unit, context, words) && !Variables::Table().Meant(fact.name);
}

bool Misspelt(const Fact& fact, const Unit& unit, const LintContext& context, Words& words) {
  const Variable* known = Variables::Table().Find(fact.name);
  if (fact.used || (known != nullptr && known->name.back() != '*') || InLibrary(fact, context)) return false;
  if (known == nullptr && Variables::Complete(fact.name) && !Unknown(fact, unit, context, words)) return false;
  const std::optional<std::string> meant = Variables::Table().Meant(fact.name);
  if (!meant) return false;
  words["nearest"] = *meant;
  words["by"] = words.count("by") != 0 ? words["by"] : "anything";
  return true;
}

// The table says it is there, the library that will be loaded says it is not.
bool NotInLibrary(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  const Variable* row = Row(fact);
  if (row == nullptr || row->owner != "nccl" || row->status != "current") return false;
  if (!context.nccl || context.nccl->names.whole.empty() || context.nccl->names.Knows(fact.name)) return false;
  words["by"] = fmt::format("{} ({})", context.nccl->path, context.nccl->version);
  words["since"] = row->since.empty() ? "another version" : "NCCL " + row->since;
  return true;
}

bool NeverExisted(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  const Variable* row = Row(fact);
  if (row == nullptr || row->status != "never" || fact.used || InLibrary(fact, context)) return false;
  words["note"] = row->note;
  words["owner"] = row->owner == "nccl" ? "NCCL" : row->owner == "gloo" ? "Gloo" : "PyTorch";
  return true;
}

std::string VersionOf(const Variable& row, const LintContext& context) {
  if (row.owner == "nccl" && context.nccl) return context.nccl->version;
  if (row.owner == "torch" && context.torch) return context.torch->version;
  return "";
}

bool Renamed(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  const Variable* row = Row(fact);
  if (row == nullptr || row->NewName().empty()) return false;
  const std::string version = VersionOf(*row, context);
  if (!version.empty() && !row->until.empty() && CompareVersions(version, row->until) < 0) return false;
  words["new"] = row->NewName();
  words["note"] = row->note;
  words["until"] = row->until;
  return true;
}

// Renamed so lately that without a version in hand the old name may well be the right one.
bool RenamedLately(const Fact& fact, const Unit& unit, const LintContext& context, Words& words) {
  const Variable* row = Row(fact);
  return Renamed(fact, unit, context, words) && row->owner == "torch" && !row->until.empty() &&
         CompareVersions(row->until, "2.9") >= 0;
}

bool RenamedLongAgo(const Fact& fact, const Unit& unit, const LintContext& context, Words& words) {
  return Renamed(fact, unit, context, words) && !RenamedLately(fact, unit, context, words);
}

bool RenamedForThisVersion(const Fact& fact, const Unit& unit, const LintContext& context, Words& words) {
  return RenamedLately(fact, unit, context, words) && !VersionOf(*Row(fact), context).empty();
}

bool Removed(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  const Variable* row = Row(fact);
  if (row == nullptr || row->status != "removed") return false;
  const std::string version = VersionOf(*row, context);
  words["until"] = row->until;
  if (!version.empty()) return CompareVersions(version, row->until) > 0;
  return CompareVersions(row->until, row->owner == "nccl" ? "2.22" : "2.4") < 0;  // later ones may still be in use
}

bool IsDefault(const Fact& fact, const Unit&, const LintContext&, Words& words) {
  const Variable* row = Row(fact);
  if (row == nullptr || row->fallback.empty() || fact.value != row->fallback) return false;
  words["default"] = row->fallback;
  return true;
}

// What the reader of a page is to fill in: PORT, GPU_ID, xxxx, N.
bool Placeholder(const std::string& value) {
  if (value.find_first_not_of("xX") == std::string::npos || value == "N") return true;
  const bool capitals = value.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == std::string::npos;
  return capitals && value.size() > 1 &&
         !OneOf(value, {"true", "false", "on", "off", "yes", "no", "auto", "all", "none", "inf"});
}

bool WantsNumber(const Variable* row) { return row != nullptr && (row->type == "int" || row->type == "size"); }

// NCCL takes the digits at the front and drops the rest: true is 0, 8M is 8.
bool BoolWord(const Fact& fact, const Unit&, const LintContext&, Words& words) {
  const Variable* row = Row(fact);
  if (!WantsNumber(row) || row->owner != "nccl") return false;
  const bool on = OneOf(fact.value, {"true", "yes", "on", "enable", "enabled", "t", "y"});
  if (!on && !OneOf(fact.value, {"false", "no", "off", "disable", "disabled", "f", "n"})) return false;
  words["meant"] = on ? "1" : "0";
  return true;
}

bool NotInteger(const Fact& fact, const Unit& unit, const LintContext& context, Words& words) {
  const Variable* row = Row(fact);
  if (!WantsNumber(row) || !fact.exported || fact.value.empty() || BoolWord(fact, unit, context, words)) return false;
  if (fact.value.find_first_of("$`{") != std::string::npos || Placeholder(fact.value)) return false;
  const std::string value(Trim(fact.value));
  char* end = nullptr;
  // As NCCL and PyTorch read it: any base, signs and blanks.
  const long long number = std::strtoll(value.c_str(), &end, 0);
  if (end != nullptr && *end == '\0' && end != value.c_str()) return false;
  words["taken"] = row->owner == "nccl" ? fmt::format("NCCL takes it as {}", number) : "it is no number";
  words["unit"] = row->type == "size" ? "bytes" : "a whole number";
  return true;
}

bool OutOfRange(const Fact& fact, const Unit& unit, const LintContext&, Words& words) {
  const Variable* row = Row(fact);
  double number = 0;
  if (!WantsNumber(row) || !fact.exported || row->range.empty() || !AsNumber(std::string(Trim(fact.value)), number))
    return false;
  const size_t dots = row->range.find("..");
  if (dots == std::string::npos) return false;
  const double low = std::strtod(row->range.c_str(), nullptr);
  const std::string high = row->range.substr(dots + 2);
  words["range"] = high.empty() ? fmt::format("{} or more", low) : fmt::format("{} to {}", low, high);
  if (number >= low && (high.empty() || number <= std::strtod(high.c_str(), nullptr))) return false;
  return row->owner != "nccl" || !Mentioned(unit, "rocm");  // RCCL has limits of its own
}

bool NotInEnum(const Fact& fact, const Unit&, const LintContext&, Words& words) {
  const Variable* row = Row(fact);
  if (row == nullptr || fact.value.empty()) return false;
  const std::string list = " " + Lower(row->range) + " ";
  auto listed = [&](const std::string& word) { return list.find(" " + Lower(word) + " ") != std::string::npos; };
  words["range"] = row->range;
  if (row->type == "enum") return !listed(std::string(Trim(fact.value)));
  if (row->type == "subsys") {
    for (std::string word : Split(fact.value, ',')) {
      word = std::string(Trim(word));
      if (!word.empty() && word[0] == '^') word = word.substr(1);
      if (!word.empty() && !listed(word)) {
        words["detail"] = word;
        return true;
      }
    }
    return false;
  }
  if (row->type == "level") {  // strcmp: capitals, or the numbers of old
    const std::string exact = " " + row->range + " ";
    const bool digits = fact.value.find_first_not_of("0123456789") == std::string::npos;
    return !digits && exact.find(" " + fact.value + " ") == std::string::npos;
  }
  return false;
}

bool NotTorchBool(const Fact& fact, const Unit&, const LintContext&, Words&) {
  const Variable* row = Row(fact);
  if (row == nullptr || row->type != "torch-bool" || fact.value.empty()) return false;
  return !OneOf(fact.value, {"y", "yes", "1", "t", "true", "n", "no", "0", "f", "false"});
}

bool NotPowerOfTwo(const Fact& fact, const Unit&, const LintContext&, Words&) {
  double number = 0;
  if (!AsNumber(fact.value, number) || number < 1) return false;
  return std::exp2(std::round(std::log2(number))) != number;
}

bool NotMultipleOf32(const Fact& fact, const Unit&, const LintContext&, Words&) {
  double number = 0;
  return AsNumber(fact.value, number) && std::fmod(number, 32) != 0;
}

bool Quoted(const Fact& fact, const Unit& unit, const LintContext&, Words&) {
  if (!Variables::Complete(fact.name) && Row(fact) == nullptr) return false;
  const std::string& value = fact.value;
  if (unit.dialect == "conf") return false;  // conf-line says it
  // Quotes that a word processor made are letters everywhere.
  for (std::string_view quote : {"\u201c", "\u201d", "\u2018", "\u2019"}) {
    if (value.find(quote) != std::string::npos) return true;
  }
  return value.size() >= 2 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0];
}

bool Spaced(const Fact& fact, const Unit&, const LintContext&, Words&) {
  const Variable* row = Row(fact);
  if (row == nullptr || row->owner != "nccl") return false;
  if (row->type == "list") return fact.value.find_first_of(" \t\r\n") != std::string::npos;
  if (row->type == "subsys") return fact.value.find_first_of(" \t") != std::string::npos;
  return (row->type == "enum" || row->type == "level") && fact.value != Trim(fact.value);
}

// An entry like mlx5_1, which also begins mlx5_10.
bool PrefixAmbiguous(const Fact& fact, const Unit&, const LintContext&, Words& words) {
  std::string value = fact.value;
  if (!value.empty() && value[0] == '^') value = value.substr(1);
  if (value.empty() || value[0] == '=') return false;
  for (const std::string& entry : Split(value, ',')) {
    const std::string device(Trim(entry.substr(0, entry.find(':'))));
    const size_t digits = device.find_last_not_of("0123456789") + 1;
    if (digits == 0 || digits >= device.size() || device[digits - 1] != '_') continue;
    if (device.substr(digits) == "0") continue;  // no device is called mlx5_00
    words["detail"] = fmt::format("{} also begins {}0 to {}9", device, device, device);
    return true;
  }
  return false;
}

bool UnknownTorchrunFlag(const Fact& fact, const Unit&, const LintContext&, Words& words) {
  static const std::vector<std::string> kFlags = {"--nnodes",
                                                  "--nproc-per-node",
                                                  "--rdzv-backend",
                                                  "--rdzv-endpoint",
                                                  "--rdzv-id",
                                                  "--rdzv-conf",
                                                  "--standalone",
                                                  "--max-restarts",
                                                  "--monitor-interval",
                                                  "--start-method",
                                                  "--event-log-handler",
                                                  "--role",
                                                  "--module",
                                                  "--no-python",
                                                  "--run-path",
                                                  "--log-dir",
                                                  "--redirects",
                                                  "--tee",
                                                  "--local-ranks-filter",
                                                  "--duplicate-stdout-filters",
                                                  "--duplicate-stderr-filters",
                                                  "--node-rank",
                                                  "--master-addr",
                                                  "--master-port",
                                                  "--local-addr",
                                                  "--logs-specs",
                                                  "--numa-binding",
                                                  "--signals-to-handle",
                                                  "--shutdown-timeout",
                                                  "--virtual-local-rank",
                                                  "--help",
                                                  "--use-env"};
  const std::string flag = fact.name.substr(fact.name.find(' ') + 1);
  if (flag.rfind("--", 0) != 0 || flag.size() < 3) return false;
  int beginnings = 0;
  for (const std::string& known : kFlags) {
    if (known == flag) return false;
    beginnings += known.rfind(flag, 0) == 0 ? 1 : 0;  // argparse takes a unique beginning
  }
  if (beginnings >= 1) return false;
  words["nearest"] = DidYouMean(flag, kFlags);
  return true;
}

// A count of threads or sockets whose product with its partner is too large: 16 x 8.
bool SocketsTooMany(const Fact& fact, const Unit& unit, const LintContext&, Words& words) {
  double own = 0, other = 0;
  if (!AsNumber(fact.value, own)) return false;
  for (const Fact& one : unit.facts) {
    if (one.kind != "variable" || one.name != "NCCL_NSOCKS_PERTHREAD" || !Together(fact, one)) continue;
    if (!one.known || !AsNumber(one.value, other) || own * other <= 64) continue;
    words["detail"] = fmt::format("{} x {} = {}", own, other, own * other);
    return true;
  }
  return false;
}

// Tree without a partner for the collectives it cannot do.
bool TreeAlone(const Fact& fact, const Unit&, const LintContext&, Words&) {
  std::string value = Lower(fact.value);
  if (value.find(':') != std::string::npos || value.find(';') != std::string::npos || value.rfind("^", 0) == 0)
    return false;
  for (const std::string& word : Split(value, ',')) {
    if (Trim(word) != "tree" && Trim(word) != "collnetchain" && Trim(word) != "nvlstree") return false;
  }
  return !value.empty();
}

bool UnknownAlgorithm(const Fact& fact, const Unit&, const LintContext&, Words& words) {
  static const std::set<std::string> kAlgorithms = {"tree", "ring",     "collnetdirect", "collnetchain",
                                                    "nvls", "nvlstree", "pat",           "collnet"};
  static const std::set<std::string> kProtocols = {"ll", "ll128", "simple"};
  const std::set<std::string>& known = fact.name == "NCCL_ALGO" ? kAlgorithms : kProtocols;
  static const std::set<std::string> kCollectives = {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"};
  const std::vector<std::string> parts = Split(Lower(fact.value), ';');
  for (const std::string& part : parts) {
    const size_t colon = part.find(':');
    std::string list = colon == std::string::npos ? part : part.substr(colon + 1);
    if (colon != std::string::npos && kCollectives.count(part.substr(0, colon)) == 0) {
      words["detail"] = fmt::format("collective '{}'", part.substr(0, colon));
      return true;
    }
    if (colon == std::string::npos && &part != &parts[0] && !part.empty()) {
      words["detail"] = fmt::format("'{}' without a collective behind the first ';'", part);
      return true;
    }
    if (!list.empty() && list[0] == '^') list = list.substr(1);
    for (const std::string& word : Split(list, ',')) {
      if (word.empty() || known.count(word) != 0) continue;
      words["detail"] = word == Trim(word) ? word : fmt::format("'{}', with the blank", word);
      return true;
    }
  }
  return false;
}

bool BadPort(const Fact& fact, const Unit&, const LintContext&, Words& words) {
  double port = 0;
  if (!AsNumber(fact.value, port) || port > 65535) return false;
  words["detail"] =
      port < 1024 ? "below 1024 only root may listen" : "the kernel hands out 32768 to 60999 to outgoing connections";
  return (port > 0 && port < 1024) || (port >= 32768 && port <= 60999);
}

// A list of GPUs with a number twice, or a hole of blanks.
bool BadGpuList(const Fact& fact, const Unit&, const LintContext&, Words& words) {
  std::set<std::string> seen;
  for (const std::string& entry : Split(fact.value, ',')) {
    const std::string gpu(Trim(entry));
    const bool index = gpu.find_first_not_of("0123456789", gpu.rfind("-", 0) == 0 ? 1 : 0) == std::string::npos;
    const bool named = gpu.rfind("GPU-", 0) == 0 || gpu.rfind("MIG-", 0) == 0;
    if (!index && !named && !Placeholder(gpu) && !OneOf(gpu, {"none", "void", "nodevfiles"})) {
      words["detail"] = fmt::format("'{}' is neither a number nor a UUID", gpu);
      return true;
    }
    if (gpu != entry && !gpu.empty()) {
      words["detail"] = "a blank in the list ends it there";
      return true;
    }
    if (gpu.empty() && fact.value.find_first_not_of(',') != std::string::npos) {
      words["detail"] = "an empty entry ends the list there";
      return true;
    }
    if (!gpu.empty() && !seen.insert(gpu).second) {
      words["detail"] = fmt::format("{} is there twice, and then no GPU is visible", gpu);
      return true;
    }
  }
  return false;
}

// Whether any fact of the unit speaks of one of these.
bool Speaks(const Unit& unit, std::initializer_list<const char*> wanted) {
  for (const Fact& fact : unit.facts) {
    const std::string text = Lower(fact.name + " " + fact.value.substr(0, 2000) + " " + fact.detail);
    for (const char* word : wanted) {
      if (text.find(word) != std::string::npos) return true;
    }
  }
  return false;
}

// The settings of a cloud's network plugin come as a set, and its vendor measured them.
bool NoCloudPlugin(const Fact&, const Unit& unit, const LintContext&, Words&) {
  for (const Fact& fact : unit.facts) {
    if (fact.kind == "mention" && fact.name == "cloud-plugin") return false;
    if (fact.kind != "variable") continue;
    for (const char* beginning : {"NCCL_GPUDIRECTTCPX", "NCCL_FASTRAK", "NCCL_GIB", "FI_", "NCCL_OFI",
                                  "NCCL_TUNER_CONFIG", "NCCL_TUNER_PLUGIN", "NCCL_NET_PLUGIN", "NCCL_SHIMNET"}) {
      if (fact.name.rfind(beginning, 0) == 0) return false;
    }
    if (fact.name == "NCCL_NET" && !OneOf(fact.value, {"ib", "socket"})) return false;
  }
  return true;
}

bool NoMegatron(const Fact&, const Unit& unit, const LintContext&, Words&) {
  return !Speaks(unit, {"megatron",
                        "tensor-model-parallel",
                        "tensor_model_parallel",
                        "sequence-parallel",
                        "sequence_parallel",
                        "pretrain_gpt",
                        "pretrain_bert",
                        "pretrain_t5",
                        "nemo",
                        "transformer_engine",
                        "tp-comm-overlap",
                        "tensor_parallel",
                        "tensor-parallel",
                        "mcore",
                        "jax",
                        "xla",
                        "nanotron",
                        "colossal",
                        "neox",
                        "internevo",
                        "flagscale"});
}

bool Sharded(const Fact&, const Unit& unit, const LintContext&, Words&) {
  return Speaks(unit,
                {"fsdp", "zero2", "zero3", "zero_", "zero-", "deepspeed", "fully_shard", "distributed-optimizer"});
}

// Gloo's interface and NCCL's, where both are plain names.
bool DiffersFromNccl(const Fact& fact, const Unit& unit, const LintContext&, Words&) {
  bool differs = false;
  for (const Fact& other : unit.facts) {
    if (other.kind != "variable" || other.name != "NCCL_SOCKET_IFNAME" || !other.known || !Together(fact, other))
      continue;
    const std::string name = other.value.rfind("=", 0) == 0 ? other.value.substr(1) : other.value;
    differs = fact.value.rfind(name, 0) != 0;  // NCCL's may be a beginning
  }
  return differs;
}

// A file like nccl.conf sets what the environment sets otherwise.
bool Shadowed(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  auto at = context.environment.find(fact.name);
  if (at == context.environment.end() || at->second == fact.value) return false;
  words["other_value"] = Printable(at->second, 80);
  return true;
}

// CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=4
bool FewerGpusThanWorkers(const Fact& fact, const Unit& unit, const LintContext&, Words& words) {
  if (fact.value.empty() || fact.value.find_first_not_of("0123456789,") != std::string::npos) return false;
  const double gpus = static_cast<double>(std::count(fact.value.begin(), fact.value.end(), ',')) + 1;
  for (const Fact& other : unit.facts) {
    double workers = 0;
    if (other.kind != "flag" || other.name != "torchrun --nproc-per-node" || !Together(fact, other)) continue;
    if (!fact.lasting && other.line != fact.line) continue;
    if (other.line < fact.line || !other.known || !AsNumber(other.value, workers) || workers <= gpus) continue;
    words["detail"] =
        fmt::format("{} workers, and CUDA_VISIBLE_DEVICES shows {} GPU{}", workers, gpus, gpus == 1 ? "" : "s");
    return true;
  }
  return false;
}

// all_reduce_perf and the other NCCL tests: a measurement may force what it measures.
bool NoBenchmark(const Fact&, const Unit& unit, const LintContext&, Words&) {
  return !Speaks(unit, {"all_reduce_perf", "_perf ", "_perf\"", "nccl-tests", "nccl_tests", "nccl-perf"});
}

// A profiler stops a process for longer than a watchdog bears.
bool NoProfiler(const Fact&, const Unit& unit, const LintContext&, Words&) {
  return !Speaks(unit, {"nsys ", "/nsys", "ncu ", "compute-sanitizer", "cuda-gdb"});
}

// --nnodes=$WORLD_SIZE: names the platforms give, in capitals.
bool FromPlatform(const Fact& fact, const Unit&, const LintContext&, Words&) {
  static const std::regex* const kPlatformNames = new std::regex("\\$\\{?(WORLD_SIZE|RANK)\\b");
  return std::regex_search(fact.value.substr(0, 2000), *kPlatformNames);
}

bool NoFallback(const Fact& fact, const Unit&, const LintContext&, Words&) { return !fact.fallback; }

bool Launched(const Fact& fact, const Unit&, const LintContext&, Words&) { return fact.launched; }

constexpr NamedCheck kChecks[] = {
    {"from-platform", FromPlatform},
    {"no-benchmark", NoBenchmark},
    {"no-profiler", NoProfiler},
    {"no-fallback", NoFallback},
    {"launched", Launched},
    {"differs-from-nccl", DiffersFromNccl},
    {"shadowed", Shadowed},
    {"fewer-gpus-than-workers", FewerGpusThanWorkers},
    {"no-cloud-plugin", NoCloudPlugin},
    {"no-megatron", NoMegatron},
    {"sharded", Sharded},
    {"unknown", UnknownFar},
    {"misspelt", Misspelt},
    {"not-in-library", NotInLibrary},
    {"never-existed", NeverExisted},
    {"renamed-long-ago", RenamedLongAgo},
    {"renamed-for-this-version", RenamedForThisVersion},
    {"removed", Removed},
    {"default", IsDefault},
    {"bool-word", BoolWord},
    {"not-integer", NotInteger},
    {"out-of-range", OutOfRange},
    {"not-in-enum", NotInEnum},
    {"not-torch-bool", NotTorchBool},
    {"not-power-of-two", NotPowerOfTwo},
    {"not-multiple-of-32", NotMultipleOf32},
    {"quoted", Quoted},
    {"spaced", Spaced},
    {"prefix-ambiguous", PrefixAmbiguous},
    {"unknown-torchrun-flag", UnknownTorchrunFlag},
    {"sockets-too-many", SocketsTooMany},
    {"tree-alone", TreeAlone},
    {"unknown-algorithm", UnknownAlgorithm},
    {"bad-port", BadPort},
    {"bad-gpu-list", BadGpuList},
};

}  // namespace

Check FindIn(std::span<const NamedCheck> table, const std::string& name) {
  for (const NamedCheck& one : table) {
    if (name == one.name) return one.check;
  }
  return nullptr;
}

Check FindCheck(const std::string& name) {
  const Check check = FindIn(kChecks, name);
  return check != nullptr ? check : FindValueCheck(name);
}

bool AsNumber(const std::string& text, double& number) {
  if (text.empty() || text.size() > 40) return false;
  char* end = nullptr;
  number = std::strtod(text.c_str(), &end);
  return end != nullptr && *end == '\0' && end != text.c_str() && std::isfinite(number);
}

}  // namespace lockstep::lint
