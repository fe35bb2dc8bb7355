// `lockstep submit`: description -> job file -> the platform's client.
#include <fmt/format.h>
#include <unistd.h>

#include <climits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/own_program.h"
#include "base/text.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/submit_flags.h"
#include "launch/auth.h"
#include "lint/lint.h"
#include "submit/client.h"
#include "submit/render.h"

namespace lockstep::cli {
namespace {

using submit::Client;
using submit::Job;
using submit::JobRecord;
using submit::Platform;

constexpr size_t kLargestTemplate = 1u << 20;

Result<const Platform*> ChoosePlatform(const SubmitAsk& ask, const Environment& env,
                                       std::vector<std::string>* evidence) {
  if (!ask.job.platform.empty()) {
    *evidence = {fmt::format("asked for: {}", ask.job.platform)};
    return submit::FindPlatform(ask.job.platform);
  }
  const std::string path = ValueOf(env, "PATH");
  const submit::Detected found =
      submit::Detect(env, !ask.job.hosts.empty(), [&](const std::string& name) { return FindExecutable(name, path); });
  *evidence = found.evidence;
  if (found.platform != nullptr) return found.platform;
  if (found.evidence.empty()) {
    return Status(Code::kUsage, "which platform? none of sbatch, bsub, qsub and kubectl is in PATH",
                  fmt::format("--platform {}", Join(submit::PlatformNames(), "|")));
  }
  return Status(Code::kUsage, fmt::format("which platform? {}", Join(found.evidence, "; ")),
                "choose with --platform, or platform: in the description");
}

// A script that the nodes of a cluster with shared folders would not find. Empty: nothing to say.
std::string MissingProgram(const Job& job, const Platform& platform, const std::string& folder) {
  const submit::Command command = submit::CommandOf(job);
  if (!platform.shared_folder || !job.image.empty() || command.subcommand != "run" || command.words.empty()) return "";
  if (platform.name == "ssh" || platform.name == "kubebrain") return "";  // its nodes have folders of their own
  const std::string& program = command.words[0];
  if (!program.ends_with(".py") && !program.ends_with(".sh")) return "";
  const std::string& start = job.workdir.empty() ? folder : job.workdir;
  const std::string path = program.starts_with('/') ? program : start + "/" + program;
  if (access(path.c_str(), F_OK) == 0) return "";
  return fmt::format("program: there is no '{}' here; the nodes look for it in {}", Printable(program),
                     Printable(start));
}

// A folder of the output that is not there: schedulers make none, SLURM fails the job without a word, the others lose
// its output. Empty: nothing to say.
std::string MissingFolder(const Job& job, const Platform& platform, const std::string& folder) {
  if (job.output.empty() || job.output.find('/') == std::string::npos || platform.name == "ssh") return "";
  std::string path = job.output.substr(0, job.output.find('%'));  // what stands behind is known later
  path = path.substr(0, path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  if (!job.output.starts_with('/')) path = folder + "/" + path;
  if (path.empty() || access(path.c_str(), F_OK) == 0) return "";
  return fmt::format("output: there is no folder '{}' here, and {} makes none: the output would be lost",
                     Printable(path), platform.what);
}

// The job, its platform and its file; nothing is written yet.
struct Prepared {
  Job job;
  const Platform* platform = nullptr;
  std::vector<std::string> evidence, warnings;
  std::string text;
  JobRecord record;
};

Result<Prepared> PrepareSubmit(const SubmitAsk& ask, const Environment& env) {
  Prepared out;
  Result<const Platform*> platform = ChoosePlatform(ask, env, &out.evidence);
  if (!platform.ok()) return platform.status();
  out.platform = *platform;
  submit::Surroundings here;
  here.lockstep = OwnExecutable("lockstep");
  char folder[PATH_MAX];
  if (getcwd(folder, sizeof folder) == nullptr) {
    return Status(Code::kEnvironment, fmt::format("cannot tell the working directory: {}", ErrnoText(errno)));
  }
  here.folder = folder;
  here.token = launch::MakeNonce();
  out.job = submit::Complete(ask.job, *out.platform, here);
  const submit::Findings findings = submit::Check(out.job, *out.platform);
  LOCKSTEP_RETURN_IF_ERROR(
      submit::ToStatus(findings.errors, ask.source, ask.description ? &*ask.description : nullptr));
  out.warnings = findings.warnings;
  if (std::string missing = MissingProgram(out.job, *out.platform, here.folder); !missing.empty()) {
    out.warnings.push_back(std::move(missing));
  }
  if (std::string missing = MissingFolder(out.job, *out.platform, here.folder); !missing.empty()) {
    out.warnings.push_back(std::move(missing));
  }
  Result<std::string> root = submit::RecordsRoot(env);
  const bool script = out.platform->kind.empty();
  JobRecord& record = out.record;
  record.name = out.job.name;
  record.platform = out.job.platform;
  record.name_space = out.job.name_space;
  record.folder = here.folder;
  record.nodes = out.job.nodes;
  record.submitted = UnixSeconds();
  if (root.ok() && script) {
    // Unique: two submissions of a name in one second are two jobs.
    here.file = fmt::format("{}/{}-{:.0f}-{}.{}", *root, out.job.name, record.submitted,
                            launch::MakeNonce().substr(0, 8), out.platform->extension);
    record.file = here.file;
  }
  if (out.platform->name == "ssh") {
    record.output = out.job.output.empty() ? fmt::format("{}/{}.out", here.folder, out.job.name) : out.job.output;
    if (!record.output.starts_with('/')) record.output = here.folder + "/" + record.output;
  }
  Result<std::string> text = Status(Code::kInternal, "");
  if (ask.template_file.empty()) {
    text = submit::Render(out.job, *out.platform, here);
  } else {
    Result<std::string> form = ReadFile(ask.template_file, kLargestTemplate);
    if (!form.ok()) return form.status();
    if (form->find("{{") == std::string::npos) {
      return Status(Code::kUsage,
                    fmt::format("{}: no {{{{name}}}} in it: the same text for every job", Printable(ask.template_file)),
                    "docs/submit.md shows a template and lists the values");
    }
    text = submit::RenderTemplate(*form, ask.template_file, out.job, *out.platform, here);
  }
  if (!text.ok()) return text.status();
  out.text = *text;
  return out;
}

// What lint has to say about the file, warnings and worse.
std::vector<std::string> LintFindings(const Prepared& prepared) {
  std::vector<std::string> lines;
  const std::string name = fmt::format("job.{}", prepared.platform->extension);
  const std::optional<lint::FileType> type = lint::Recognise(prepared.text, name);
  if (!type) return lines;
  Result<std::vector<lint::LintFinding>> found = lint::LintText(prepared.text, name, *type, {});
  if (!found.ok()) return {found.status().message()};
  for (const lint::LintFinding& one : *found) {
    if (one.severity < lint::Severity::kWarning) continue;
    lines.push_back(fmt::format("line {}: {}: {} (fix: {})", one.line, one.rule, one.what, one.fix));
  }
  return lines;
}

int PrintSubmitJson(const nlohmann::json& document) {
  fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  return 0;
}

nlohmann::json DescribeJob(const Prepared& prepared) {
  return {{"name", prepared.job.name},     {"platform", prepared.job.platform}, {"nodes", prepared.job.nodes},
          {"evidence", prepared.evidence}, {"warnings", prepared.warnings},     {"file", prepared.record.file}};
}

int CheckJobFile(const Prepared& prepared, const Client& client, bool json) {
  std::vector<std::string> findings = LintFindings(prepared);
  if (prepared.platform->kind.empty()) {
    const std::string errors = client.SyntaxErrors(prepared.text);
    if (!errors.empty()) findings.push_back(fmt::format("bash cannot read it: {}", Printable(errors, 1000)));
  }
  nlohmann::json document = DescribeJob(prepared);
  document["findings"] = findings;
  std::string asked = "its client was not asked: it has no such check";
  if (!prepared.platform->check.empty()) {
    if (!client.Program().ok()) {
      asked = fmt::format("{} is not in PATH and was not asked", prepared.platform->client);
    } else {
      JobRecord record = prepared.record;
      std::optional<TempDir> folder;
      if (!prepared.platform->file_as_input) {
        Result<TempDir> made = TempDir::Create("lockstep-submit");
        if (!made.ok()) return Complain("submit", made.status());
        folder = std::move(*made);
        record.file = *folder / fmt::format("job.{}", prepared.platform->extension);
        if (const Status kept = WriteFileAtomic(record.file, prepared.text, 0600, Durability::kProcess); !kept.ok()) {
          return Complain("submit", kept);
        }
      }
      Result<std::string> said = client.Check(record, prepared.text);
      if (!said.ok()) {
        for (const std::string& line : findings) fmt::print(stderr, "{}\n", line);
        return Complain("submit", said.status());
      }
      asked = fmt::format("{} says: {}", prepared.platform->client, said->empty() ? "nothing against it" : *said);
    }
  }
  document["client"] = asked;
  if (json) {
    PrintSubmitJson(document);
  } else {
    for (const std::string& line : findings) fmt::print("{}\n", line);
    fmt::print("{}: {} on {}, {}\n  {}\n", prepared.job.name, Count(prepared.job.nodes, "node"),
               prepared.platform->what, findings.empty() ? "nothing wrong found" : Count(findings.size(), "finding"),
               Printable(asked, 2000));
  }
  return findings.empty() ? 0 : kExitFindings;
}

int ShowJobFile(const Prepared& prepared, const Client& client, bool json) {
  std::vector<std::string> lines;
  if (!prepared.platform->client.empty()) lines = client.SubmitLines(prepared.record);
  if (json) {
    nlohmann::json document = DescribeJob(prepared);
    document["commands"] = lines;
    document["text"] = prepared.text;
    return PrintSubmitJson(document);
  }
  fmt::print("platform  {} ({})\n", prepared.platform->what, Join(prepared.evidence, "; "));
  if (!prepared.record.file.empty() && !lines.empty()) fmt::print("writes    {}\n", prepared.record.file);
  for (const std::string& line : lines) fmt::print("runs      {}\n", line);
  if (lines.empty()) fmt::print("runs      nothing: {}\n", prepared.platform->from);
  fmt::print("\n{}", prepared.text);
  return 0;
}

// Where a scheduler writes the job's output, once its id is known; arrays have several.
std::string OutputOf(const Prepared& prepared) {
  const Job& job = prepared.job;
  if (!job.array.empty()) return "";
  static const std::map<std::string, std::string> defaults = {
      {"slurm", "{name}-%j.out"}, {"lsf", "{name}-%J.out"}, {"pbs", "{name}.o%j"}};
  const auto known = defaults.find(job.platform);
  if (known == defaults.end()) return prepared.record.output;
  std::string path = job.output.empty() ? known->second : job.output;
  const std::string id = prepared.record.id.substr(0, prepared.record.id.find('.'));
  for (const auto& [mark, value] :
       {std::pair<std::string, std::string>{"{name}", job.name}, {"%j", id}, {"%J", id}, {"%x", job.name}}) {
    for (size_t at; (at = path.find(mark)) != std::string::npos;) path.replace(at, mark.size(), value);
  }
  return path.starts_with('/') ? path : prepared.record.folder + "/" + path;
}

Status SubmitJob(Prepared* prepared, const Client& client, const Environment& env) {
  if (const Result<std::string> program = client.Program(); !program.ok()) {
    const Status& missing = program.status();
    return prepared->platform->client.empty() ? missing
                                              : Status(missing.code(), missing.message(),
                                                       missing.hint() + "; --render prints the job file without it");
  }
  Result<std::string> root = submit::RecordsRoot(env);
  if (!root.ok()) return root.status();
  if (!prepared->record.file.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(MakeDirs(*root, 0700));
    LOCKSTEP_RETURN_IF_ERROR(WriteFileAtomic(prepared->record.file, prepared->text, 0700));
  }
  prepared->record.cluster = client.Cluster();
  if (prepared->record.name_space.empty()) prepared->record.name_space = client.NameSpace();
  // Everything or nothing: an object that cannot be made is found before the others are.
  if (!prepared->platform->kind.empty()) {
    Result<std::string> checked = client.Check(prepared->record, prepared->text);
    if (!checked.ok()) return checked.status();
    LOCKSTEP_RETURN_IF_ERROR(MakeDirs(*root, 0700));
  }
  if (Status status = client.Submit(prepared->text, &prepared->record); !status.ok()) {
    if (!prepared->record.file.empty()) (void)RemoveAll(prepared->record.file);
    return status;
  }
  prepared->record.output = OutputOf(*prepared);
  const JobRecord& record = prepared->record;
  Status kept = submit::WriteRecord(*root, record);
  if (kept.ok()) return kept;
  const std::string space = record.name_space.empty() ? "" : fmt::format(" --namespace {}", record.name_space);
  const std::string cancel = record.pid > 0  // over ssh
                                 ? fmt::format("kill {}", record.pid)
                                 : fmt::format("lockstep cancel --platform {}{} {}", record.platform, space, record.id);
  return Status(kept.code(), fmt::format("job {} was submitted, and cannot be noted: {}", record.id, kept.message()),
                fmt::format("lockstep jobs does not know its name; {} ends it", cancel));
}

}  // namespace

int SubmitMain(int argc, char** argv) {
  const Environment env = CurrentEnvironment();
  Result<SubmitAsk> ask = ParseSubmit({argv + 1, argv + argc});
  if (!ask.ok()) return Complain("submit", ask.status());
  if (ask->help || argc < 2) {
    fmt::print(argc < 2 ? stderr : stdout, "{}", SubmitHelp());
    return argc < 2 ? kExitUsage : 0;
  }
  if (static_cast<int>(ask->render) + static_cast<int>(ask->check) + static_cast<int>(ask->dry_run) > 1) {
    return Complain(
        "submit", Status(Code::kUsage, "--render, --check and --dry-run: each does another thing", "give one of them"));
  }
  Result<Prepared> prepared = PrepareSubmit(*ask, env);
  if (!prepared.ok()) return Complain("submit", prepared.status());
  for (const std::string& warning : prepared->warnings) fmt::print(stderr, "lockstep submit: warning: {}\n", warning);
  if (ask->render) {
    if (ask->json) {
      nlohmann::json document = DescribeJob(*prepared);
      document["text"] = prepared->text;
      return PrintSubmitJson(document);
    }
    std::fwrite(prepared->text.data(), 1, prepared->text.size(), stdout);
    return std::fflush(stdout) == 0 ? 0 : kExitEnvironment;
  }
  const Client client(*prepared->platform, env);
  if (ask->check) return CheckJobFile(*prepared, client, ask->json);
  if (ask->dry_run) return ShowJobFile(*prepared, client, ask->json);
  if (const Status status = SubmitJob(&*prepared, client, env); !status.ok()) return Complain("submit", status);
  if (ask->json) {
    nlohmann::json document = DescribeJob(*prepared);
    document["id"] = prepared->record.id;
    document["output"] = prepared->record.output;
    return PrintSubmitJson(document);
  }
  fmt::print("submitted {} to {}: {}\n  lockstep jobs; lockstep logs -f {}; lockstep cancel {}\n", prepared->job.name,
             prepared->platform->what, prepared->record.id, prepared->job.name, prepared->job.name);
  return 0;
}

}  // namespace lockstep::cli
