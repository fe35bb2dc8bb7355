#include "record/metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/fd.h"
#include "base/files.h"

namespace lockstep::record {
namespace {

void Append(const std::string& path, std::string_view text) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  ASSERT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

std::vector<uint64_t> Steps(MetricFollower& follower) {
  std::vector<uint64_t> steps;
  while (follower.Read([&](const MetricLine& line) { steps.push_back(line.step.value_or(9999)); })) {
  }
  return steps;
}

TEST(MetricLine, IsWrittenAsTheFormatSays) {
  std::string text;
  AppendMetricLine({.t = 1763200000.1234,
                    .attempt = 1,
                    .rank = 3,
                    .step = 1200,
                    .scalars = {{"loss", 0.731}, {"lr", 1e-4}, {"time/data", 2}}},
                   &text);
  EXPECT_EQ(text,
            "{\"t\": 1763200000.123, \"attempt\": 1, \"rank\": 3, \"step\": 1200, \"scalars\": {\"loss\": 0.731, "
            "\"lr\": 0.0001, \"time/data\": 2}}\n");
}

TEST(MetricLine, CarriesWhatIsNoNumberAsWords) {
  const double inf = std::numeric_limits<double>::infinity();
  std::string text;
  AppendMetricLine({.step = 1, .scalars = {{"a", std::nan("")}, {"b", inf}, {"c", -inf}}}, &text);
  EXPECT_NE(text.find("{\"a\": \"nan\", \"b\": \"inf\", \"c\": \"-inf\"}"), std::string::npos) << text;
  std::optional<MetricLine> line = ParseMetricLine(text);
  ASSERT_TRUE(line);
  EXPECT_TRUE(std::isnan(*line->Find("a")));
  EXPECT_EQ(line->Find("b"), inf);
  EXPECT_EQ(line->Find("c"), -inf);
}

TEST(MetricLine, OddNamesAndExtremeNumbersComeBackAsTheyWere) {
  MetricLine line{
      .step = 7,
      .scalars = {{"a \"b\" \\ \n", 1}, {"größe", -0.1}, {"tiny", 5e-324}, {"huge", 1.7976931348623157e308}}};
  std::string text;
  AppendMetricLine(line, &text);
  EXPECT_TRUE(nlohmann::json::accept(text));
  std::optional<MetricLine> back = ParseMetricLine(text);
  ASSERT_TRUE(back);
  for (const auto& [name, value] : line.scalars) EXPECT_EQ(back->Find(name), value) << name;
}

TEST(MetricLine, TooManyScalarsBecomeSeveralLinesOfTheSameStep) {
  MetricLine line{.step = 7, .scalars = {}};
  for (int i = 0; i < 5000; ++i) line.scalars.emplace_back("layers/" + std::to_string(i) + "/gradient_norm", 0.1 * i);
  std::string text;
  AppendMetricLine(line, &text);
  size_t lines = 0, scalars = 0;
  for (size_t begin = 0; begin < text.size(); ++lines) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(end + 1 - begin, kLongestMetricLine);
    std::optional<MetricLine> part = ParseMetricLine(std::string_view(text).substr(begin, end - begin));
    ASSERT_TRUE(part);
    EXPECT_EQ(part->step, 7u);
    scalars += part->scalars.size();
    begin = end + 1;
  }
  EXPECT_GT(lines, 1u);
  EXPECT_EQ(scalars, 5000u);
}

TEST(MetricLine, ForeignLinesAreReadAsFarAsTheyGo) {
  std::optional<MetricLine> line =
      ParseMetricLine(R"({"step": 5.0, "scalars": {"loss": 1, "name": "x"}, "more": [1]})");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->step, 5u);
  EXPECT_EQ(line->scalars.size(), 1u);
  line = ParseMetricLine(R"({"t": 1})");
  ASSERT_TRUE(line);
  EXPECT_FALSE(line->step);
  EXPECT_FALSE(ParseMetricLine(R"({"step": -3})")->step);
  EXPECT_FALSE(ParseMetricLine("[1]"));
  EXPECT_FALSE(ParseMetricLine("{\"step\": 1"));
}

TEST(MetricFollower, ReadsOnlyWhatIsNewAndWaitsForTheEndOfALine) {
  Result<TempDir> dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const std::string path = *dir / "rank-0.jsonl";
  MetricFollower follower(path);
  EXPECT_TRUE(Steps(follower).empty()) << "a file that is not there yet is no error";
  Append(path, "{\"step\": 1}\n{\"step\": 2}\n{\"st");
  EXPECT_EQ(Steps(follower), (std::vector<uint64_t>{1, 2}));
  EXPECT_TRUE(follower.torn_tail());
  Append(path, "ep\": 3}\n");
  EXPECT_EQ(Steps(follower), (std::vector<uint64_t>{3}));
  EXPECT_TRUE(Steps(follower).empty());
  EXPECT_EQ(follower.bad_lines(), 0u);
}

TEST(MetricFollower, CountsWhatDoesNotParseAndGoesOn) {
  Result<TempDir> dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const std::string path = *dir / "rank-0.jsonl";
  Append(path,
         "{\"step\": 1}\n{\"step\": 2, \"sc\n\n{\"step\": 3}\n" + std::string(3 << 20, 'x') + "\n{\"step\": 4}\n");
  MetricFollower follower(path);
  EXPECT_EQ(Steps(follower), (std::vector<uint64_t>{1, 3, 4}));
  EXPECT_EQ(follower.bad_lines(), 2u);
}

TEST(MetricFollower, BeginsAgainWhenTheFileWasReplacedOrShrank) {
  Result<TempDir> dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const std::string path = *dir / "rank-0.jsonl";
  Append(path, "{\"step\": 1}\n{\"step\": 2}\n{\"torn");
  MetricFollower follower(path);
  EXPECT_EQ(Steps(follower).size(), 2u);
  ASSERT_EQ(::truncate(path.c_str(), 0), 0);
  Append(path, "{\"step\": 5}\n");
  EXPECT_EQ(Steps(follower), (std::vector<uint64_t>{5}));
  ASSERT_TRUE(WriteFileAtomic(path, "{\"step\": 6}\n{\"step\": 7}\n{\"step\": 8}\n").ok());
  EXPECT_EQ(Steps(follower), (std::vector<uint64_t>{6, 7, 8}));
}

TEST(MetricFollower, MayBeginNearTheEndWithAWholeLine) {
  Result<TempDir> dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const std::string path = *dir / "rank-0.jsonl";
  Append(path, "{\"step\": 1}\n{\"step\": 2}\n{\"step\": 3}\n");
  MetricFollower follower(path);
  follower.SkipToLast(20);
  EXPECT_EQ(Steps(follower), (std::vector<uint64_t>{3}));
  EXPECT_EQ(follower.bad_lines(), 0u);
  Append(path, "{\"step\": 4}\n");
  EXPECT_EQ(Steps(follower), (std::vector<uint64_t>{4}));
  MetricFollower short_file(path);
  short_file.SkipToLast(1000);
  EXPECT_EQ(Steps(short_file).size(), 4u);
}

TEST(MetricFollower, ALargeFileComesInPortions) {
  Result<TempDir> dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const std::string path = *dir / "rank-0.jsonl";
  std::string text;
  for (uint64_t step = 0; step < 20000; ++step) AppendMetricLine({.step = step, .scalars = {{"loss", 1.0}}}, &text);
  Append(path, text);
  MetricFollower follower(path);
  std::vector<uint64_t> steps;
  int portions = 1;
  while (follower.Read([&](const MetricLine& line) { steps.push_back(*line.step); }, 200 << 10)) ++portions;
  EXPECT_GT(portions, 3);
  ASSERT_EQ(steps.size(), 20000u);
  for (uint64_t i = 0; i < steps.size(); ++i) ASSERT_EQ(steps[i], i);
}

}  // namespace
}  // namespace lockstep::record
