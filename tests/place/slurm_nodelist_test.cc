// Golden values: `scontrol show hostnames` of SLURM 22.05; text behind a bracket, which that version refuses,
// by hand.
#include "place/slurm_nodelist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::place {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Nodes(std::string_view list) {
  Result<std::vector<std::string>> nodes = ExpandNodeList(list);
  EXPECT_TRUE(nodes.ok()) << nodes.status().ToString();
  return nodes.ok() ? *nodes : std::vector<std::string>{};
}

TEST(NodeList, PlainNamesStayAsTheyAre) {
  EXPECT_THAT(Nodes("gpu1"), ElementsAre("gpu1"));
  EXPECT_THAT(Nodes("login,a-b.c,10.0.0.1"), ElementsAre("login", "a-b.c", "10.0.0.1"));
}

TEST(NodeList, RangesAndListsInBracketsExpandInOrder) {
  EXPECT_THAT(Nodes("n[0-3,7,09-11]"), ElementsAre("n0", "n1", "n2", "n3", "n7", "n09", "n10", "n11"));
  EXPECT_THAT(Nodes("n[5]"), ElementsAre("n5"));
}

TEST(NodeList, PaddingFollowsTheFirstNumber) {
  EXPECT_THAT(Nodes("n[008-011]"), ElementsAre("n008", "n009", "n010", "n011"));
  EXPECT_THAT(Nodes("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(Nodes("n[98-101]"), ElementsAre("n98", "n99", "n100", "n101"));
}

TEST(NodeList, SeveralBracketsMultiplyWithTheLastFastest) {
  EXPECT_THAT(Nodes("r[1-2]n[1-2]"), ElementsAre("r1n1", "r1n2", "r2n1", "r2n2"));
}

TEST(NodeList, TextMayFollowABracket) {
  EXPECT_THAT(Nodes("gpu[1-2]-ib.cluster,x"), ElementsAre("gpu1-ib.cluster", "gpu2-ib.cluster", "x"));
}

TEST(NodeList, CommasInsideAndOutsideBracketsAreToldApart) {
  EXPECT_THAT(Nodes("a[1,3],b,c[2-3]"), ElementsAre("a1", "a3", "b", "c2", "c3"));
}

class Malformed : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Malformed, IsAnErrorThatSaysWhereAndWhat) {
  Result<std::vector<std::string>> nodes = ExpandNodeList(GetParam().first);
  ASSERT_FALSE(nodes.ok());
  EXPECT_THAT(nodes.status().message(), HasSubstr(GetParam().second));
}

INSTANTIATE_TEST_SUITE_P(
    NodeList, Malformed,
    testing::Values(std::pair{"", "empty name"}, std::pair{"a,", "empty name"}, std::pair{",a", "empty name"},
                    std::pair{"a,,b", "empty name"}, std::pair{"n[1-3", "without ']'"},
                    std::pair{"n1-3]", "without '['"}, std::pair{"n[]", "not a number"},
                    std::pair{"n[1,]", "not a number"}, std::pair{"n[a-b]", "not a number"},
                    std::pair{"n[3-1]", "backwards"}, std::pair{"n[1--3]", "not a number"},
                    std::pair{"n[[1]]", "not a number"}, std::pair{"n 1", "blank"}, std::pair{"n[-1]", "not a number"},
                    std::pair{"n[1-99999999999999999999]", "not a number"}, std::pair{"n[0-65536]", "more than 65536"},
                    std::pair{"n[0-999]m[0-999]", "more than 65536"}, std::pair{"n[0-4294967295]", "more than 65536"},
                    std::pair{"a[0-40000],b[0-40000]", "more than 65536"}));

TEST(NodeList, TheLargestListIsExpanded) { EXPECT_EQ(Nodes("n[0-65535]").size(), 65536u); }

TEST(TaskCounts, RepeatsAreExpanded) {
  EXPECT_THAT(*ExpandTaskCounts("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(*ExpandTaskCounts("4,1(x3)"), ElementsAre(4, 1, 1, 1));
  EXPECT_THAT(*ExpandTaskCounts("8"), ElementsAre(8));
}

TEST(TaskCounts, AnythingElseIsAnError) {
  for (const char* text : {"", "2,", "x", "2(x)", "2(x0)", "0", "2(y3)", "2(x3", "2x3", "-1", "2(x3)4", "2 (x3)",
                           "1(x99999999)", "99999999999999999999"})
    EXPECT_FALSE(ExpandTaskCounts(text).ok()) << text;
}

}  // namespace
}  // namespace lockstep::place
