#include "cli/command_line.h"

#include <fmt/format.h>

#include <cstdio>

namespace lockstep::cli {

int Complain(const std::string& command, const Status& status) {
  fmt::print(stderr, "lockstep {}: {}\n", command, status.message());
  if (!status.hint().empty()) fmt::print(stderr, "  do: {}\n", status.hint());
  return ExitCode(status);
}

std::optional<int> ParseCommand(Arguments& arguments, int argc, char** argv) {
  const Result<bool> go_on = arguments.Read(argc, argv);
  if (!go_on.ok()) {
    return Complain(arguments.name(),
                    go_on.status().WithHint(fmt::format("see `lockstep {} --help`", arguments.name())));
  }
  if (*go_on) return std::nullopt;
  fmt::print("{}", arguments.Help("lockstep"));
  return 0;
}

}  // namespace lockstep::cli
