// `eval "$(lockstep env)"`: the placement as variables of the calling shell. On an error nothing is printed that eval
// could use but `false`, so that `set -e` and `||` see it; the reason goes to stderr.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/explain.h"
#include "place/describe.h"

namespace lockstep::cli {

int EnvMain(int argc, char** argv) {
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
    return 2;
  }
  fmt::print("{}", place::ToShell(question.placement));
  return 0;
}

}  // namespace lockstep::cli
