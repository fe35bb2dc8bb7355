// Reads the places where people write settings for distributed training (environments, shell scripts, sbatch files,
// Kubernetes manifests, Dockerfiles, Markdown, nccl.conf, DeepSpeed and accelerate configurations, Python) and reports
// what nothing reads, what was renamed, what contradicts itself or the machine, and what harms. The rules are a table
// (docs/formats/lint-rules.md). Nothing is executed and nothing is changed. Any thread.
//
//   LintContext context;
//   context.hardware = hardware::ScanHardware({.env = env});
//   for (const LintFinding& finding : LintEnvironment(env, context)) ...
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hardware/hardware.h"
#include "hardware/library_strings.h"

namespace lockstep::lint {

enum class Severity { kNote, kWarning, kError };

struct LintFinding {
  std::string file;
  int line = 0, column = 0;  // from 1; 0: the whole
  std::string variable;      // what it is about: a variable, a flag, a key
  std::string rule;
  Severity severity = Severity::kNote;
  std::string what, why, fix, source;
};

// A library the job will load, with the names it was built to know.
struct KnownLibrary {
  std::string path, version;
  hardware::LibraryNames names;
};

struct LintContext {
  std::optional<hardware::Hardware> hardware;  // of the machine the settings are for; nothing: not known
  std::optional<KnownLibrary> nccl, torch;     // nothing: the table of names that ships with this program decides
  Environment environment;                     // of the job, where it is known: it wins over files like nccl.conf
};

// What a file is.
enum class FileType {
  kEnvironment,
  kShell,
  kSbatch,
  kManifest,
  kDockerfile,
  kMarkdown,
  kConf,
  kConfig,
  kPython,
};

std::optional<FileType> FileTypeFromName(std::string_view name);  // "env", "shell", "sbatch", "manifest", ...
const char* Name(FileType type);
const char* Name(Severity severity);

// By content first, then by the name of the file; nothing: it looks like none of them (binary data, prose).
std::optional<FileType> Recognise(std::string_view text, const std::string& file);

std::vector<LintFinding> LintEnvironment(const Environment& env, const LintContext& context);

// Findings in order of place. An error says why the text cannot be read at all.
Result<std::vector<LintFinding>> LintText(std::string_view text, const std::string& file, FileType type,
                                          const LintContext& context);

// The names a library knows. `version` may be empty.
Result<KnownLibrary> ReadKnownLibrary(const std::string& path, const std::string& version);

nlohmann::json ToJson(const LintFinding& finding);

}  // namespace lockstep::lint
