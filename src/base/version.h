// Which build this is: the version of CMakeLists.txt and the git commit it was built from. Programs know their commit;
// unit tests and benchmarks do not (commit is empty there), so that a new commit relinks the programs and nothing else
// (cmake/version.cmake). Pure functions, any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lockstep {

struct BuildVersion {
  std::string version;      // "0.2.0"
  std::string commit;       // "1a2b3c4", "1a2b3c4-dirty" with changes not committed; empty: unknown
  std::string commit_date;  // "2026-11-16", empty with an empty commit
};

const BuildVersion& ThisBuild();

// "lockstep 0.2.0 (commit 1a2b3c4, 2026-11-16)", or "lockstep 0.2.0 (commit unknown: ...)". No newline.
std::string VersionText(std::string_view program, const BuildVersion& build = ThisBuild());

// {"program": "lockstep", "version": "0.2.0", "commit": "1a2b3c4", "commit_date": "2026-11-16"}; an unknown commit and
// its date are null.
nlohmann::json VersionJson(std::string_view program, const BuildVersion& build = ThisBuild());

}  // namespace lockstep
