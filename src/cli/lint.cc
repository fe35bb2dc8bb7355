// `lockstep lint`: mistakes in environments, scripts, manifests and configurations, before the job is started.
#include "lint/lint.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "hardware/hardware.h"
#include "place/machine.h"

namespace lockstep::cli {
namespace {

using lint::FileType;
using lint::LintContext;
using lint::LintFinding;
using lint::Severity;

constexpr size_t kLargest = 64u << 20;  // of a file people wrote

struct LintFlags {
  std::vector<std::string> files;
  bool env = false, json = false;
  std::string nccl, torch, hardware = "auto", as, severity = "note", fail_on = "warning";
};

struct Source {
  std::string name;
  std::string text;
};

std::optional<Severity> SeverityOf(const std::string& name) {
  for (Severity one : {Severity::kNote, Severity::kWarning, Severity::kError}) {
    if (name == lint::Name(one)) return one;
  }
  return std::nullopt;
}

Result<std::string> ReadInput(const std::string& path) {
  if (path != "-") {
    struct stat found{};
    if (::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) {
      return Status(Code::kUsage, fmt::format("'{}' is a folder", path), "name the files in it");
    }
    return ReadFile(path, kLargest);
  }
  std::string text;
  char buffer[65536];
  for (size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) {
    text.append(buffer, got);
    if (text.size() > kLargest) return Status(Code::kUsage, "standard input is larger than 64 MiB: no script");
  }
  return text;
}

// The machine and the libraries the findings are to be judged by.
Result<LintContext> Context(const LintFlags& asked, const Environment& env) {
  LintContext context;
  if (asked.hardware != "none") {
    const bool here = asked.hardware == "auto" || asked.hardware == "here";
    hardware::Hardware machine;
    if (here) {
      hardware::HardwareOptions options;
      options.env = env;
      machine = hardware::ScanHardware(options);
    } else {
      Result<nlohmann::json> json = ReadJsonFile(asked.hardware);
      if (!json.ok()) return json.status().Context("--hardware");
      Result<hardware::Hardware> read = hardware::HardwareFromJson(*json);
      if (!read.ok()) return read.status().Context("--hardware " + asked.hardware);
      machine = std::move(*read);
    }
    for (auto [library, known] : {std::pair{&machine.nccl, &context.nccl}, std::pair{&machine.torch, &context.torch}}) {
      if (!here || !library->has_value()) continue;
      Result<lint::KnownLibrary> names = lint::ReadKnownLibrary((*library)->path, (*library)->version);
      if (names.ok()) *known = std::move(*names);
    }
    // A laptop or login node says nothing about where the job will run.
    const bool relevant = !machine.gpus.empty() || !machine.ib.empty();
    if (asked.hardware != "auto" || relevant) context.hardware = std::move(machine);
  }
  for (auto [path, known] : {std::pair{&asked.nccl, &context.nccl}, std::pair{&asked.torch, &context.torch}}) {
    if (path->empty()) continue;
    Result<lint::KnownLibrary> names = lint::ReadKnownLibrary(*path, "");
    if (!names.ok()) return names.status();
    *known = std::move(*names);
  }
  return context;
}

void PrintFinding(const LintFinding& finding, bool colour) {
  const char* paint = !colour                                  ? ""
                      : finding.severity == Severity::kError   ? "\x1b[1;31m"
                      : finding.severity == Severity::kWarning ? "\x1b[1;33m"
                                                               : "\x1b[1;36m";
  const std::string place =
      finding.line > 0 ? fmt::format("{}:{}:{}", finding.file, finding.line, finding.column) : finding.file;
  fmt::print("{}: {}{}[{}]{}: {}\n", Printable(place, 4096), paint, lint::Name(finding.severity), finding.rule,
             colour ? "\x1b[0m" : "", finding.what);
  fmt::print("    why: {}\n    fix: {}\n", finding.why, finding.fix);
}

void PrintSummary(const std::vector<LintFinding>& findings, size_t sources, const LintContext& context) {
  int counts[3] = {};
  for (const LintFinding& finding : findings) ++counts[static_cast<int>(finding.severity)];
  auto count = [](int number, const char* word) {
    return fmt::format("{} {}{}", number, word, number == 1 ? "" : "s");
  };
  std::string by = context.nccl ? fmt::format("names by {} {}", context.nccl->path, context.nccl->version)
                                : "names by the table of NCCL 2.3 to 2.30";
  if (context.hardware)
    by += fmt::format(", hardware of {}", context.hardware->host.empty() ? "a file" : context.hardware->host);
  fmt::print("{}: {}, {}, {} ({})\n", count(static_cast<int>(sources), "source"), count(counts[2], "error"),
             count(counts[1], "warning"), count(counts[0], "note"), by);
}

// nccl.conf of the user and of the machine: they set variables as the environment does.
std::vector<std::string> ConfFiles(const Environment& env) {
  std::vector<std::string> files;
  if (auto named = env.find("NCCL_CONF_FILE"); named != env.end() && !named->second.empty()) {
    files.push_back(named->second);
  } else if (auto home = env.find("HOME"); home != env.end()) {
    files.push_back(home->second + "/.nccl.conf");
  }
  files.emplace_back("/etc/nccl.conf");
  std::vector<std::string> there;
  for (const std::string& file : files) {
    if (::access(file.c_str(), R_OK) == 0) there.push_back(file);
  }
  return there;
}

}  // namespace

int LintMain(int argc, char** argv) {
  LintFlags asked;
  Arguments args(
      "Finds settings that nothing reads, that were renamed, contradict each other or the machine, or do harm:\n"
      "in environments, shell and sbatch scripts, Kubernetes manifests, Dockerfiles, Markdown, nccl.conf,\n"
      "DeepSpeed and accelerate configurations and Python.",
      "lint");
  args.Option("FILE", &asked.files, "files to read; - is standard input");
  args.Flag("--env", &asked.env, "the environment of this process, and the nccl.conf files it would read");
  args.Option("--as", &asked.as,
              "what the files are: env, shell, sbatch, manifest, dockerfile, markdown, nccl.conf,\n"
              "config, python (default: by content and name)")
      .Named("KIND");
  args.Option("--libnccl", &asked.nccl, "the libnccl the job will load: names are read out of it").Named("FILE");
  args.Option("--libtorch", &asked.torch, "the libtorch_cuda or libtorch_cpu the job will load").Named("FILE");
  args.Option("--hardware", &asked.hardware,
              "machine the settings are for: here, none, or a file of `lockstep doctor hardware --json`\n"
              "(default: here, where it has GPUs or RDMA)")
      .Named("here|none|FILE");
  args.Option("--severity", &asked.severity, "least severity shown: note, warning, error")
      .Named("note|warning|error")
      .ShowDefault();
  args.Option("--fail-on", &asked.fail_on, "least severity that makes the exit code 1")
      .Named("note|warning|error")
      .ShowDefault();
  args.Flag("--json", &asked.json, "one JSON document");
  args.Footer(
      "Exit code: 0 nothing found (notes allowed), 1 findings, 2 usage, 3 a file cannot be read.\n\n"
      "examples:\n"
      "  lockstep lint train.sbatch job.yaml Dockerfile\n"
      "  lockstep lint --env\n"
      "  lockstep lint --as env /proc/4711/environ\n"
      "  kubectl get job fit -o yaml | lockstep lint -\n"
      "  lockstep lint --severity warning --json docs/*.md | jq '.findings[].rule'");
  if (std::optional<int> code = ParseCommand(args, argc, argv)) return *code;
  auto usage = [](const std::string& message, const std::string& hint) {
    return Complain("lint", Status(Code::kUsage, message, hint));
  };
  if (asked.files.empty() && !asked.env)
    return usage("nothing to read", "name files, or - for standard input, or --env");
  const std::optional<Severity> shown = SeverityOf(asked.severity), fails = SeverityOf(asked.fail_on);
  if (!shown || !fails) return usage("--severity and --fail-on take note, warning or error", "");
  std::optional<FileType> as;
  if (!asked.as.empty()) {
    as = lint::FileTypeFromName(asked.as);
    if (!as) {
      return usage(fmt::format("--as '{}': unknown", asked.as),
                   "env, shell, sbatch, manifest, dockerfile, markdown, nccl.conf, config or python");
    }
  }

  const Environment env = CurrentEnvironment();
  Result<LintContext> context = Context(asked, env);
  if (!context.ok()) return Complain("lint", context.status());
  std::vector<LintFinding> findings;
  size_t sources = 0;
  if (asked.env) {
    ++sources;
    for (LintFinding& finding : lint::LintEnvironment(env, *context)) {
      finding.file = "environment";
      findings.push_back(std::move(finding));
    }
    LintContext with_env = *context;
    with_env.environment = env;
    for (const std::string& file : ConfFiles(env)) {
      Result<std::string> text = ReadFile(file, kLargest);
      if (!text.ok()) continue;
      ++sources;
      Result<std::vector<LintFinding>> found = lint::LintText(*text, file, FileType::kConf, with_env);
      if (found.ok()) findings.insert(findings.end(), found->begin(), found->end());
    }
  }
  int unreadable = 0;
  for (const std::string& file : asked.files) {
    Result<std::string> text = ReadInput(file);
    if (!text.ok()) {
      unreadable = std::max(unreadable, Complain("lint", text.status()));
      continue;
    }
    const std::string name = file == "-" ? "<stdin>" : file;
    const std::optional<FileType> type = as ? as : lint::Recognise(*text, file);
    if (!type) {
      unreadable = std::max(
          unreadable,
          Complain("lint", Status(Code::kUsage,
                                  fmt::format("'{}' is {}", name,
                                              text->empty() ? "empty" : "none of the kinds of files lint reads"),
                                  "say what it is with --as")));
      continue;
    }
    ++sources;
    Result<std::vector<LintFinding>> found = lint::LintText(*text, name, *type, *context);
    if (!found.ok()) {
      unreadable = std::max(unreadable, Complain("lint", found.status()));
      continue;
    }
    findings.insert(findings.end(), found->begin(), found->end());
  }

  const bool failed = std::any_of(findings.begin(), findings.end(),
                                  [&](const LintFinding& finding) { return finding.severity >= *fails; });
  std::erase_if(findings, [&](const LintFinding& finding) { return finding.severity < *shown; });
  if (asked.json) {
    nlohmann::json document = {{"findings", nlohmann::json::array()}, {"sources", sources}};
    for (const LintFinding& finding : findings) document["findings"].push_back(lint::ToJson(finding));
    for (const Severity one : {Severity::kError, Severity::kWarning, Severity::kNote}) {
      document["counts"][lint::Name(one)] = std::count_if(
          findings.begin(), findings.end(), [&](const LintFinding& finding) { return finding.severity == one; });
    }
    if (context->nccl) document["nccl"] = {{"path", context->nccl->path}, {"version", context->nccl->version}};
    if (context->torch) document["torch"] = {{"path", context->torch->path}, {"version", context->torch->version}};
    fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    const bool colour = UseColour(STDOUT_FILENO);
    for (const LintFinding& finding : findings) PrintFinding(finding, colour);
    if (sources > 0) PrintSummary(findings, sources, *context);
  }
  if (std::fflush(stdout) != 0) {
    return Complain("lint", Status(Code::kEnvironment, fmt::format("cannot write the findings: {}", ErrnoText(errno))));
  }
  return unreadable != 0 ? unreadable : failed ? kExitFindings : kExitOk;
}

}  // namespace lockstep::cli
