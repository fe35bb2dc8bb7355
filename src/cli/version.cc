// `lockstep version` and `lockstep --version`: which build this is.
#include "base/version.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/commands.h"

namespace lockstep::cli {

int VersionMain(int argc, char** argv) {
  bool json = false;
  Arguments args("Prints the version and the git commit this program was built from.", "version");
  args.Flag("--json", &json, "one JSON document: program, version, commit, commit_date");
  if (const auto leave = ParseCommand(args, argc, argv)) return *leave;
  fmt::print("{}\n", json ? VersionJson("lockstep").dump(2) : VersionText("lockstep"));
  return 0;
}

}  // namespace lockstep::cli
