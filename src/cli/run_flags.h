// The command line of `lockstep run` (and of `lockstep explain` and `lockstep env`, which take the same flags):
// torchrun's whole flag set and ours, as one table. A pure function of argv and the environment it is given; owns
// nothing, any thread.
//
//   Result<RunFlags> flags = ParseRunFlags(argc, argv, env, ParseMode::kRun);   // argv[0] is the command's name
//   if (!flags.ok()) return Fail(flags.status());                               // usage: exit 2
//   if (flags->print_and_exit) { fmt::print("{}", flags->text); return 0; }     // --help, --version, --dump-flags
//   for (auto& w : flags->warnings) Warn(w);
//   Launch(flags->options);
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/flag_engine.h"
#include "launch/options.h"
#include "place/placement.h"

namespace lockstep::cli {

enum class ParseMode {
  kRun,      // a program is required
  kExplain,  // no program needed; --env-file and --assume-* are known
};

// What only `lockstep explain` and `lockstep env` take. The caller reads env_file and, when it is set, parses once more
// with that environment, because PET_* defaults come from there.
struct ExplainFlags {
  std::string env_file;
  std::optional<int> assume_gpus, assume_cpus;
  std::string assume_host;
};

struct RunFlags {
  launch::RunOptions options;
  ExplainFlags explain;
  std::vector<std::string> warnings;  // accepted, but worth a line: flags without effect, mapped values
  bool print_and_exit = false;        // print `text` to stdout and exit 0
  std::string text;
};

// `env` gives the PET_* defaults of torchrun's flags; the command line wins over them.
Result<RunFlags> ParseRunFlags(int argc, char** argv, const Environment& env, ParseMode mode);

// The command line of a command that takes run's flags beside its own: the own ones in the order written (index into
// `own`, which win where names are equal), run's spelled out for ParseRunFlags, then what is no flag.
struct SplitLine {
  std::vector<ScannedFlag> own;
  std::vector<std::string> run;
  bool help = false;
  std::optional<std::string> program;
  std::vector<std::string> args;
};
Result<SplitLine> SplitRunFlags(const std::vector<FlagSpec>& own, const std::vector<std::string>& args,
                                const std::string& hint, const MeantInstead& meant = {});

// The text of --help, and the table as JSON (name, aliases, PET variable, group, torchrun status and reason).
std::string RunHelp(ParseMode mode);
std::string RunFlagsJson();

}  // namespace lockstep::cli
