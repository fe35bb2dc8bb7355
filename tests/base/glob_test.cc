#include "base/glob.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

TEST(Glob, MatchesWholeNames) {
  struct {
    const char* pattern;
    const char* name;
    bool matches;
  } const cases[] = {
      {"*", "", true},
      {"encoder.*", "encoder.0.weight", true},
      {"encoder.*", "my.encoder.0", false},
      {"*.bias", "a.b.bias", true},
      {"*.bias", "a.bias.x", false},
      {"*a*b?", "xxayybz", true},
      {"a?c", "ac", false},
      {"*-*", "gpu-7", true},
      {"*-*", "gpu", false},
      {"", "", true},
      {"", "a", false},
      {"a*", "b", false},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(GlobMatches(test.pattern, test.name), test.matches) << test.pattern << " and " << test.name;
  }
}

TEST(Glob, ManyStarsCostNoExponentialTime) {
  std::string pattern, name(2000, 'a');
  for (int i = 0; i < 200; ++i) pattern += "a*";
  EXPECT_FALSE(GlobMatches(pattern + "b", name));
}

}  // namespace
}  // namespace lockstep
