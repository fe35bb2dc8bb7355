// `eval "$(lockstep env)"`: the placement as variables of the calling shell. On an error nothing is printed that eval
// could use but `false`, so that `set -e` and `||` see it; the reason goes to stderr.
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/exit_codes.h"
#include "cli/commands.h"
#include "cli/explain.h"
#include "place/describe.h"

namespace lockstep::cli {

namespace {

constexpr char kEnvHelp[] =
    "usage: lockstep env [flags of `lockstep explain`] [PROGRAM ...]\n\n"
    "Prints the placement of this process (RANK, WORLD_SIZE, MASTER_ADDR, ...) as export lines for a shell. When there "
    "is\n"
    "an error it prints `false`, so that eval fails; the reason is on standard error.\n\n"
    "examples:\n"
    "  eval \"$(lockstep env)\"\n"
    "  eval \"$(lockstep env --nnodes 2 --node-rank 0 --master-addr node-a)\"\n\n"
    "`lockstep explain --help` lists the flags.\n";

}  // namespace

int EnvMain(int argc, char** argv) {
  if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    fmt::print("{}", kEnvHelp);
    return 0;
  }
  const Question question = Ask(argc, argv);
  if (question.print) {
    fmt::print("{}", *question.print);
    return 0;
  }
  for (const std::string& warning : question.warnings) fmt::print(stderr, "lockstep env: {}\n", warning);
  for (const std::string& warning : question.placement.warnings) fmt::print(stderr, "lockstep env: {}\n", warning);
  if (!question.placement.error.ok()) {
    fmt::print(stderr, "lockstep env: {}\n", question.placement.error.ToString());
    fmt::print("false\n");
    return kExitUsage;
  }
  fmt::print("{}", place::ToShell(question.placement));
  return 0;
}

}  // namespace lockstep::cli
