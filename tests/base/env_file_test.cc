#include "base/env_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

Environment Parse(std::string_view text) {
  Result<Environment> env = ParseEnvFile(text, "job.env");
  EXPECT_TRUE(env.ok()) << env.status().ToString();
  return env.ok() ? *env : Environment{};
}

TEST(EnvFile, LinesOfEnvAreNamesAndValues) {
  EXPECT_THAT(Parse("A=1\nB=x y=z\nC=\n"), UnorderedElementsAre(Pair("A", "1"), Pair("B", "x y=z"), Pair("C", "")));
}

TEST(EnvFile, NulSeparatedAsInProcIsRead) {
  EXPECT_THAT(Parse(std::string_view("A=1\0B=line\nbreak\0junk\0=x\0", 24)),
              UnorderedElementsAre(Pair("A", "1"), Pair("B", "line\nbreak")));
}

TEST(EnvFile, ExportsQuotesCommentsAndCarriageReturnsAreUnderstood) {
  EXPECT_THAT(
      Parse("\xef\xbb\xbf# job\r\nexport A=1\r\n\r\ndeclare -x B=\"a \\\"b\\\" $c\"\nC='it is'  # why\nD=$'x\\ty'\n"),
      UnorderedElementsAre(Pair("A", "1"), Pair("B", "a \"b\" $c"), Pair("C", "it is"), Pair("D", "x\ty")));
}

TEST(EnvFile, QuotedValuesMaySpanLines) {
  EXPECT_THAT(Parse("A=\"one\ntwo\"\nB=3\n"), UnorderedElementsAre(Pair("A", "one\ntwo"), Pair("B", "3")));
}

TEST(EnvFile, LinesWithoutANameContinueThePlainValueBefore) {
  EXPECT_THAT(Parse("IPS=10.0.0.1\n10.0.0.2\nBASH_FUNC_ml%%=() {  eval x\n}\nB=3\n"),
              UnorderedElementsAre(Pair("IPS", "10.0.0.1\n10.0.0.2"), Pair("BASH_FUNC_ml%%", "() {  eval x\n}"),
                                   Pair("B", "3")));
}

TEST(EnvFile, TheLastOfTwoEqualNamesCounts) { EXPECT_EQ(Parse("A=1\nA=2\n").at("A"), "2"); }

TEST(EnvFile, WhatIsNoEnvironmentIsAnErrorWithItsLine) {
  Result<Environment> env = ParseEnvFile("# fine\nnot a variable\n", "job.env");
  ASSERT_FALSE(env.ok());
  EXPECT_THAT(env.status().message(), HasSubstr("job.env:2"));
  EXPECT_THAT(env.status().message(), HasSubstr("not a variable"));
}

TEST(EnvFile, AnOpenQuoteIsAnErrorWithItsLine) {
  Result<Environment> env = ParseEnvFile("A=1\nB='open\nC=2\n", "job.env");
  ASSERT_FALSE(env.ok());
  EXPECT_THAT(env.status().message(), HasSubstr("job.env:2"));
}

TEST(EnvFile, AnEmptyFileIsAnEmptyEnvironment) { EXPECT_TRUE(Parse("").empty()); }

}  // namespace
}  // namespace lockstep
