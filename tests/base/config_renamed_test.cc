#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/config.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(ConfigRenamed, AKeyIsReadByTheNameItHadBefore) {
  struct Case {
    const char* document;
    const char* assignment;  // "": none
    double value;
    size_t notes;
    const char* error;
  };
  for (const Case& c : {Case{"clip: 2", "", 2, 1, ""}, Case{"clip_norm: 2", "", 2, 0, ""},
                        Case{"{clip: 2, clip_norm: 3}", "", 3, 0, "the old name of clip_norm, which is given too"},
                        Case{"clip_norm: 2", "clip=3", 3, 1, ""}, Case{"clip: 2", "clip_norm=3", 3, 1, ""}}) {
    Result<ConfigTree> tree = ConfigTree::Parse(c.document, "f.yaml", ConfigTree::Format::kYaml);
    ASSERT_TRUE(tree.ok());
    if (*c.assignment != 0) ASSERT_TRUE(tree->Override(c.assignment).ok());
    ConfigReader reader(*tree);
    double value = 1;
    reader.Field("clip_norm", &value, {.was = "clip"});
    EXPECT_THAT(reader.Finish().message(), HasSubstr(c.error)) << c.document;
    EXPECT_EQ(value, c.value) << c.document;
    EXPECT_EQ(reader.renamed().size(), c.notes) << c.document;
    if (*c.error == 0) EXPECT_EQ(reader.Dump(), fmt::format("clip_norm: {}\n", value));
  }
}

}  // namespace
}  // namespace lockstep
