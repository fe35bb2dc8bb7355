#include "base/version.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace lockstep {

// Defined in a program's generated commit.cc (cmake/version.cmake), and nowhere in other programs: null there. A weak
// definition here would not do: g++ takes the value of a constant that it sees.
[[gnu::weak]] extern const char kBuildCommit[];
[[gnu::weak]] extern const char kBuildCommitDate[];

const BuildVersion& ThisBuild() {
  const char *const commit = kBuildCommit, *const date = kBuildCommitDate;
  static const BuildVersion build{LOCKSTEP_VERSION, commit != nullptr ? commit : "", date != nullptr ? date : ""};
  return build;
}

std::string VersionText(std::string_view program, const BuildVersion& build) {
  if (build.commit.empty()) {
    return fmt::format("{} {} (commit unknown: built from sources without git)", program, build.version);
  }
  return fmt::format("{} {} (commit {}, {})", program, build.version, build.commit, build.commit_date);
}

nlohmann::json VersionJson(std::string_view program, const BuildVersion& build) {
  const auto or_null = [](const std::string& text) { return text.empty() ? nlohmann::json() : nlohmann::json(text); };
  return {{"program", program},
          {"version", build.version},
          {"commit", or_null(build.commit)},
          {"commit_date", or_null(build.commit_date)}};
}

}  // namespace lockstep
