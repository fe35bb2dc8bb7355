// `lockstep restore`: the train program answers in our place, or, with a flag of `lockstep run` (--nproc-per-node 2),
// is started as ranks that share the work. Its summary then comes through a file, so that stdout holds it alone.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/exit_codes.h"
#include "base/files.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/run_flags_table.h"
#include "cli/train_program.h"
#include "hardware/cpu_share.h"

namespace lockstep::cli {
namespace {

// Flags of both, which the command means itself.
const std::vector<std::string> kOwn = {"--json", "--help", "--version"};

struct RestoreLine {
  std::vector<std::string> run, engine;
};

Result<RestoreLine> SplitRestoreLine(const std::vector<std::string>& words) {
  RestoreLine line;
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    std::string name = words[i].substr(0, equals);
    std::replace(name.begin() + std::min<ptrdiff_t>(2, std::ssize(name)), name.end(), '_', '-');
    const auto row = std::ranges::find_if(RunFlagTable(), [&](const FlagRow& one) { return name == one.name; });
    if (row == RunFlagTable().end() || row->explain_only || std::ranges::find(kOwn, name) != kOwn.end()) {
      line.engine.push_back(words[i]);
      continue;
    }
    line.run.push_back(words[i]);
    const bool wants_value = row->value != nullptr && row->value[0] != '[' && equals == std::string::npos;
    if (!wants_value) continue;
    if (i + 1 == words.size()) {
      return Status(Code::kUsage, fmt::format("{}: expected a value", name), fmt::format("{} {}", name, row->value));
    }
    line.run.push_back(words[++i]);
  }
  return line;
}

int FailRestore(const Status& status) {
  fmt::print(stderr, "lockstep restore: {}\n", status.ToString());
  return ExitCode(status);
}

}  // namespace

int RestoreMain(int argc, char** argv) {
  Result<RestoreLine> line = SplitRestoreLine({argv + 1, argv + argc});
  if (!line.ok()) return FailRestore(line.status());
  const bool help = std::ranges::any_of(line->engine, [](const std::string& w) { return w == "--help" || w == "-h"; });
  if (line->run.empty() || help) return EngineMain(argc, argv);
  const Result<std::string> named = TakeProgramFlag(&line->engine);
  if (!named.ok()) return FailRestore(named.status());
  const Result<std::string> engine = FindTrainProgram(*named);
  if (!engine.ok()) return FailRestore(engine.status());
  const Result<TempDir> folder = TempDir::Create("lockstep-restore");
  if (!folder.ok()) return FailRestore(folder.status());
  const std::string summary = *folder / "summary";
  hardware::LetWaitingThreadsSleep();  // of the ranks
  std::vector<std::string> words = {"run"};
  words.insert(words.end(), line->run.begin(), line->run.end());
  words.insert(words.end(), {"--train-program", "--no-python", *engine, "restore", "--summary-file", summary});
  words.insert(words.end(), line->engine.begin(), line->engine.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int code = RunMain(static_cast<int>(words.size()), arguments.data());
  if (code != kExitOk) return code;
  // Rank 0 may be on another node, whose launcher prints it.
  const Result<std::string> text = ReadFile(summary);
  if (text.ok()) fmt::print("{}", *text);
  return code;
}

}  // namespace lockstep::cli
