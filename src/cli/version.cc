// `lockstep version` and `lockstep --version`: which build this is, and whose software is inside.
#include "base/version.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/exit_codes.h"
#include "cli/command_line.h"
#include "cli/commands.h"

namespace lockstep {
// Named by cmake/notices.cmake.
extern const unsigned char notices_of_lockstep[];  // NOLINT(readability-identifier-naming)
extern const size_t notices_of_lockstep_size;      // NOLINT(readability-identifier-naming)
}  // namespace lockstep

namespace lockstep::cli {

int VersionMain(int argc, char** argv) {
  bool json = false, licenses = false;
  Arguments args("Prints the version and the git commit this program was built from.", "version");
  const Argument as_json = args.Flag("--json", &json, "one JSON document: program, version, commit, commit_date");
  args.Flag("--licenses", &licenses, "notices and license texts of the software inside this program").Excludes(as_json);
  args.Footer(
      "examples:\n"
      "  lockstep version --json\n"
      "  lockstep version --licenses\n\n"
      "`lockstep train --version` and `lockstep train --licenses` say the same about the training engine.");
  if (const auto leave = ParseCommand(args, argc, argv)) return *leave;
  if (licenses) {
    const bool written =
        std::fwrite(notices_of_lockstep, 1, notices_of_lockstep_size, stdout) == notices_of_lockstep_size;
    return written ? kExitOk : kExitEnvironment;
  }
  fmt::print("{}\n", json ? VersionJson("lockstep").dump(2) : VersionText("lockstep"));
  return 0;
}

}  // namespace lockstep::cli
