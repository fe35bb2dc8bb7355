#include "base/version.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace lockstep {

// A program's generated commit.cc holds strong definitions (cmake/version.cmake); these stand in everywhere else.
[[gnu::weak]] extern const char kBuildCommit[];
[[gnu::weak]] extern const char kBuildCommitDate[];
const char kBuildCommit[] = "";
const char kBuildCommitDate[] = "";

const BuildVersion& ThisBuild() {
  static const BuildVersion build{LOCKSTEP_VERSION, kBuildCommit, kBuildCommitDate};
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
