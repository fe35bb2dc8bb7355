#include "cli/key_flag.h"

#include <gtest/gtest.h>

#include "cli/flag_engine.h"

namespace lockstep::cli {
namespace {

TEST(KeyFlag, AKeyWrittenAsAFlagIsSet) {
  const auto config = nlohmann::ordered_json::parse(R"({"train": {"steps": 9, "micro_batch": 0, "bad_steps": 1},
    "checkpoint": {"every": 5}, "data": {"files": ["a"], "validation": {"every": 5}}, "recipe": {"empty": {}}})");
  struct {
    const char *flag, *value, *meant;
  } const cases[] = {
      {"--steps", "3", "--set train.steps=3"},
      {"--steps", "", "--set train.steps=VALUE"},
      {"--train.steps", "3", "--set train.steps=3"},
      {"--micro-batch", "2", "--set train.micro_batch=2"},
      {"-steps", "3", "--set train.steps=3"},
      {"--files", "a b", "--set 'data.files=a b'"},
      {"--every", "7", "--set checkpoint.every=7 or --set data.validation.every=7"},
      {"--validation.every", "7", "--set data.validation.every=7"},
      {"--batch", "3", ""},  // not the end of a part
      {"--train", "3", ""},  // no key
      {"--", "3", ""},
  };
  for (const auto& test : cases) EXPECT_EQ(KeyFlag(config, test.flag, test.value), test.meant) << test.flag;
}

TEST(KeyFlag, AnUnknownFlagIsShownToWhoeverKnowsMoreWithItsValue) {
  const std::vector<FlagSpec> specs = {{.name = "--stop", .takes_value = true}};
  struct {
    std::vector<std::string> args;
    const char* hint;
  } const cases[] = {
      {{"--step", "3", "x"}, "write --step:3"},
      {{"--step=3"}, "write --step:3"},
      {{"--step", "--stop", "1"}, "write --step:"},
      {{"--stp", "3"}, "did you mean --stop? (see --help)"},
  };
  for (const auto& test : cases) {
    const auto meant = [](const std::string& flag, const std::string& value) {
      return flag == "--step" ? flag + ":" + value : "";
    };
    const Result<Scanned> scanned = ScanFlags(specs, test.args, "see --help", meant);
    ASSERT_FALSE(scanned.ok());
    EXPECT_EQ(scanned.status().hint(), test.hint);
  }
}

}  // namespace
}  // namespace lockstep::cli
