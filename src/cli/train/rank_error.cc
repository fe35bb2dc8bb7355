#include "cli/train/rank_error.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"

namespace lockstep::cli {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

int FailRank(const std::string& command, const Status& status, bool say, bool refused) {
  const std::string file = Environment("TORCHELASTIC_ERROR_FILE");
  // What is refused before the training begins, our launcher says in its summary.
  const bool launcher_says = refused && !file.empty() && !Environment("LOCKSTEP_RUN_DIR").empty();
  if (say && !launcher_says) fmt::print(stderr, "lockstep {}: {}\n", command, status.ToString());
  // The launcher reads the cause from here, as it does from PyTorch programs.
  if (!file.empty()) {
    const nlohmann::json error = {{"message",
                                   {{"message", status.message()},
                                    // Without py_callstack: torchrun would show that instead of the message.
                                    {"extraInfo",
                                     {{"hint", status.hint()},
                                      {"refused", refused},
                                      {"timestamp", std::to_string(static_cast<int64_t>(UnixSeconds()))}}}}}};
    if (Status written = WriteFileAtomic(file, ToJsonLine(error), 0644, Durability::kProcess); !written.ok())
      LogWarn("{}", written.message());
  }
  return ExitCode(status);
}

}  // namespace lockstep::cli
