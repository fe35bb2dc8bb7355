// The numbers of the contract are those of its page.
#include "base/exit_codes.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "paths.h"

namespace lockstep {
namespace {

TEST(ExitCodes, ThePageListsThem) {
  std::ifstream page(SourceDir() + "/docs/exit-codes.md");
  std::set<int> listed;
  const std::regex row(R"(^\| ([0-9, ]+) \|.*)"), number("[0-9]+");
  std::smatch match;
  for (std::string line; std::getline(page, line);) {
    if (!std::regex_match(line, match, row)) continue;
    const std::string cell = match[1];
    for (std::sregex_iterator at(cell.begin(), cell.end(), number), end; at != end; ++at) {
      listed.insert(std::stoi(at->str()));
    }
  }
  // 1 belongs to `lint` alone, and stands in the rules below the table.
  EXPECT_EQ(listed,
            (std::set<int>{kExitOk, kExitUsage, kExitEnvironment, kExitRendezvous, kExitRankFailed, kExitNodeLost,
                           kExitStalled, kExitResume, ExitOfSignal(SIGINT), ExitOfSignal(SIGTERM)}));
}

}  // namespace
}  // namespace lockstep
