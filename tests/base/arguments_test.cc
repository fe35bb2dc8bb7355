#include "base/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::CaptureStdout;
using testing::internal::GetCapturedStderr;
using testing::internal::GetCapturedStdout;

// A command line as main() gets it.
class Words {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {
    words_.insert(words_.begin(), "program");
    for (std::string& word : words_) pointers_.push_back(word.data());
    pointers_.push_back(nullptr);
  }
  int argc() const { return static_cast<int>(words_.size()); }
  char** argv() { return pointers_.data(); }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

// The message of a mistake; empty when the command would go on.
std::string Mistake(Arguments& arguments, std::vector<std::string> words) {
  Words line(std::move(words));
  const Result<bool> read = arguments.Read(line.argc(), line.argv());
  EXPECT_TRUE(read.ok() || read.status().code() == Code::kUsage);
  return read.status().message();
}

TEST(ArgumentsTest, EveryKindOfVariableGetsItsValue) {
  std::string text, place;
  int number = 0;
  int64_t large = 0;
  uint64_t count = 0;
  double real = 0;
  std::optional<int> node, absent;
  std::optional<uint64_t> lines;
  std::vector<std::string> files;
  std::vector<int> pids;
  bool flag = false, other = false;
  Arguments arguments("about", "test");
  arguments.Option("PLACE", &place);
  arguments.Option("--text", &text);
  arguments.Option("--number", &number);
  arguments.Option("--large", &large);
  arguments.Option("--count", &count);
  arguments.Option("--real", &real);
  arguments.Option("--node", &node);
  arguments.Option("--absent", &absent);
  arguments.Option("-n,--lines", &lines);
  arguments.Option("--files", &files);
  arguments.Option("--pids", &pids).SplitAt(',');
  arguments.Flag("--flag", &flag);
  arguments.Flag("--other", &other);
  EXPECT_EQ(
      Mistake(
          arguments,
          {"here",   "--text", "a b",    "--number", "-3", "--large", "-5000000000", "--count", "18446744073709551615",
           "--real", "0.5",    "--node", "4",        "-n", "7",       "--files",     "x",       "y",
           "--pids", "1,2",    "--flag"}),
      "");
  EXPECT_EQ(place, "here");
  EXPECT_EQ(text, "a b");
  EXPECT_EQ(number, -3);
  EXPECT_EQ(large, -5000000000);
  EXPECT_EQ(count, 18446744073709551615u);
  EXPECT_EQ(real, 0.5);
  EXPECT_EQ(node, 4);
  EXPECT_EQ(absent, std::nullopt);
  EXPECT_EQ(lines, 7u);
  EXPECT_THAT(files, ElementsAre("x", "y"));
  EXPECT_THAT(pids, ElementsAre(1, 2));
  EXPECT_TRUE(flag);
  EXPECT_FALSE(other);
}

TEST(ArgumentsTest, AValueOutsideItsBoundsIsAMistake) {
  int number = 0;
  uint64_t count = 0;
  int64_t large = 0;
  std::string word;
  std::string even;
  Arguments arguments("about", "test");
  arguments.Option("--number", &number).Between(1, 100);
  arguments.Option("--count", &count).Between(1, int64_t{1} << 40);
  arguments.Option("--large", &large).NonNegative();
  arguments.Option("--word", &word).OneOf({"one", "two"});
  arguments.Option("--even", &even).Check([](const std::string& text) {
    return text.size() % 2 == 0 ? std::string() : "odd: " + text;
  });
  EXPECT_EQ(Mistake(arguments, {"--number", "101"}), "--number: Value 101 not in range 1 to 100");
  EXPECT_EQ(Mistake(arguments, {"--number", "0"}), "--number: Value 0 not in range 1 to 100");
  EXPECT_EQ(Mistake(arguments, {"--number", "ten"}), "--number: Value ten not in range 1 to 100");
  EXPECT_EQ(Mistake(arguments, {"--number", "99999999999"}), "--number: Value 99999999999 not in range 1 to 100");
  EXPECT_EQ(Mistake(arguments, {"--count", "1099511627777"}),
            "--count: Value 1099511627777 not in range 1 to 1099511627776");
  EXPECT_THAT(Mistake(arguments, {"--count", "-1"}), HasSubstr("--count: Value -1 not in range"));
  EXPECT_THAT(Mistake(arguments, {"--large", "-1"}),
              HasSubstr("--large: expected a whole number of at least 0, found '-1'"));
  EXPECT_THAT(Mistake(arguments, {"--large", "ten"}), HasSubstr("at least 0, found 'ten'"));
  EXPECT_EQ(Mistake(arguments, {"--word", "three"}), "--word: expected one, two, found 'three'");
  EXPECT_EQ(Mistake(arguments, {"--even", "abc"}), "--even: odd: abc");
  EXPECT_EQ(Mistake(arguments,
                    {"--number", "100", "--count", "1099511627776", "--large", "0", "--word", "two", "--even", "ab"}),
            "");
}

TEST(ArgumentsTest, WhatIsMissingUnknownOrTooMuchIsAMistake) {
  std::string run;
  bool json = false;
  Arguments arguments("about", "test");
  arguments.Option("RUN", &run).Required();
  arguments.Flag("--json", &json);
  EXPECT_EQ(Mistake(arguments, {}), "RUN is required");
  EXPECT_EQ(Mistake(arguments, {"x", "y"}), "unexpected argument 'y'");
  EXPECT_THAT(Mistake(arguments, {"x", "--jsno"}), HasSubstr("unknown flag '--jsno'"));
  EXPECT_THAT(Mistake(arguments, {"x", "--jsno"}), HasSubstr("'--json'"));
  EXPECT_EQ(Mistake(arguments, {"x", "--json"}), "");
}

TEST(ArgumentsTest, FlagsThatNeedOrExcludeEachOther) {
  int height = 0, width = 0;
  bool json = false, print = false;
  Arguments arguments("about", "test");
  Argument tall = arguments.Option("--height", &height);
  Argument wide = arguments.Option("--width", &width).Needs(tall);
  tall.Needs(wide);
  Argument printed = arguments.Flag("--print", &print);
  arguments.Flag("--json", &json).Excludes(printed);
  EXPECT_EQ(Mistake(arguments, {"--height", "8"}), "--height requires --width");
  EXPECT_EQ(Mistake(arguments, {"--width", "8"}), "--width requires --height");
  EXPECT_THAT(Mistake(arguments, {"--json", "--print"}), HasSubstr("excludes"));
  EXPECT_EQ(Mistake(arguments, {"--width", "8", "--height", "9", "--json"}), "");
}

TEST(ArgumentsTest, AListTakesAllWordsOrOneForEachFlag) {
  std::vector<std::string> all, repeated, each;
  std::string place;
  Arguments arguments("about", "test");
  arguments.Option("PLACE", &place);
  arguments.Option("--all", &all);
  arguments.Option("--set", &repeated).Repeated();
  arguments.Option("--rank", &each).OneWordEach();
  EXPECT_EQ(Mistake(arguments, {"--set", "a", "--set", "b", "--rank", "1", "here", "--rank", "2", "--all", "x", "y"}),
            "");
  EXPECT_THAT(repeated, ElementsAre("a", "b"));
  EXPECT_THAT(each, ElementsAre("1", "2"));
  EXPECT_THAT(all, ElementsAre("x", "y"));
  EXPECT_EQ(place, "here");
}

TEST(ArgumentsTest, AFlagWithoutItsValueIsToldFromAnAbsentOne) {
  for (const auto& [words, given, value] : std::vector<std::tuple<std::vector<std::string>, bool, std::string>>{
           {{}, false, ""}, {{"--smoke"}, true, ""}, {{"--smoke", "5"}, true, "5"}}) {
    std::string smoke;
    Arguments arguments("about", "test");
    Argument flag = arguments.Option("--smoke", &smoke).ValueOptional();
    EXPECT_EQ(Mistake(arguments, words), "");
    EXPECT_EQ(flag.given(), given);
    EXPECT_EQ(smoke, value);
  }
}

TEST(WrapTextTest, BreaksAtBlanksAndIndentsWhatFollows) {
  EXPECT_EQ(WrapText("", 2, 10), "\n");
  EXPECT_EQ(WrapText("one two three", 2, 10), "one two\n  three\n");
  EXPECT_EQ(WrapText("one\ntwo", 0, 10), "one two\n");
  EXPECT_EQ(WrapText("averyverylongword x", 2, 10), "averyverylongword\n  x\n");
}

TEST(ArgumentsTest, HelpTellsNamesDefaultsAndTheFooter) {
  int steps = 200, number = 0;
  bool flag = false;
  std::string text;
  std::vector<std::string> peers, files;
  Arguments arguments("Does a thing.", "test");
  arguments.Option("RUN", &text, "which one").Required();
  arguments.Option("FILE", &files, "what to read");
  arguments
      .Option("--steps", &steps,
              "how many, with a description that is longer than one line of a terminal and is therefore continued on\n"
              "the next")
      .Between(1, 300)
      .ShowDefault();
  arguments.Option("--peer", &peers, "who").Named("ADDR");
  arguments.Option("--device", &text, "where").OneOf({"auto", "cpu"});
  arguments.Option("--smoke", &number, "small").ValueOptional();
  arguments.Flag("-n,--dry-run", &flag, "start nothing");
  arguments.Option("--a-name-too-long-for-the-left-column", &text, "kept").Named("FILE").Required();
  arguments.Footer("\nthe end\n");
  Words line({"--help"});
  const Result<bool> read = arguments.Read(line.argc(), line.argv());
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(*read);
  const std::string help = arguments.Help("lockstep");
  EXPECT_EQ(help, R"(usage: lockstep test [options] RUN [FILE...]

Does a thing.

arguments:
  RUN                         which one
  FILE...                     what to read

options:
  -h, --help                  print this help and exit
  --steps N                   how many, with a description that is longer than one line of a terminal and is
                              therefore continued on the next (default: 200)
  --peer ADDR...              who
  --device auto|cpu           where
  --smoke[=N]                 small
  -n, --dry-run               start nothing
  --a-name-too-long-for-the-left-column FILE
                              kept (required)

the end
)");
  EXPECT_EQ(arguments.name(), "test");
}

TEST(ArgumentsTest, ParseSaysItAndGivesTheExitCode) {
  int steps = 0;
  Arguments arguments("Does a thing.", "test");
  arguments.Option("--steps", &steps);
  Words good({"--steps", "3"}), help({"--help"}), bad({"--steps", "x"});
  EXPECT_EQ(arguments.Parse(good.argc(), good.argv()), std::nullopt);
  EXPECT_EQ(steps, 3);
  CaptureStdout();
  EXPECT_EQ(arguments.Parse(help.argc(), help.argv()), 0);
  EXPECT_THAT(GetCapturedStdout(), HasSubstr("usage: test [options]"));
  CaptureStderr();
  EXPECT_EQ(arguments.Parse(bad.argc(), bad.argv()), 2);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("--steps = x"));
}

TEST(ArgumentsTest, AStrayWordIsNamedWithTheFlagThatWasMeant) {
  std::string config, place;
  std::vector<std::string> sets;
  const struct {
    const char* word;
    const char* expected;
  } rows[] = {{"a.yaml", "unexpected argument 'a.yaml' (did you mean '--config a.yaml'?)"},
              {"a.json", "unexpected argument 'a.json' (did you mean '--config a.json'?)"},
              {"train.steps=3", "unexpected argument 'train.steps=3' (did you mean '--set train.steps=3'?)"},
              {"more", "unexpected argument 'more'"}};
  for (const auto& row : rows) {
    Arguments arguments("about", "test");
    arguments.Option("PLACE", &place);
    arguments.Option("--config", &config);
    arguments.Option("--set", &sets).Repeated();
    EXPECT_EQ(Mistake(arguments, {"here", row.word}), row.expected);
  }
  Arguments without("about", "test");
  without.Option("PLACE", &place);
  EXPECT_EQ(Mistake(without, {"here", "a.yaml"}), "unexpected argument 'a.yaml'");
}

TEST(ArgumentsTest, AMistakeIsSaidWithTheNearestFlagOrWord) {
  std::string weights, device;
  const auto said = [&](std::vector<std::string> words) {
    Arguments arguments("about", "lockstep export");
    arguments.Option("--weights", &weights);
    arguments.Option("--device", &device).OneOf({"auto", "cpu", "cuda"});
    Words line(std::move(words));
    CaptureStderr();
    EXPECT_EQ(arguments.Parse(line.argc(), line.argv()), 2);
    return GetCapturedStderr();
  };
  EXPECT_EQ(
      said({"--weigths", "x"}),
      "lockstep export: unknown flag '--weigths' (did you mean '--weights'?)\n  do: see `lockstep export --help`\n");
  EXPECT_THAT(said({"--device", "cdua"}),
              HasSubstr("--device: expected auto, cpu, cuda, found 'cdua' (did you mean 'cuda'?)"));
}

}  // namespace
}  // namespace lockstep
