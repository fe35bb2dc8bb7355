// What the screen reads beside metric lines: events, the last lines of a log, samples, the loss of a long run.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/files.h"
#include "record/metrics.h"
#include "watch/curve_reader.h"
#include "watch/events.h"
#include "watch/log_lines.h"
#include "watch/node_samples.h"

namespace lockstep::watch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ReadersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<TempDir> dir = TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_.emplace(std::move(*dir));
  }
  void Append(const std::string& name, std::string_view text) {
    UniqueFd fd(::open((*dir_ / name).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    ASSERT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::optional<TempDir> dir_;
};

TEST_F(ReadersTest, EventsAreLinesForPeopleAndTornOnesWait) {
  Append("events.jsonl",
         "{\"t\": 1, \"type\": \"run_started\", \"world_size\": 4, \"nnodes\": 2}\n"
         "{\"t\": 2, \"type\": \"rank_started\", \"rank\": 0}\n"
         "not json\n"
         "{\"t\": 3, \"type\": \"rank_exited\", \"rank\": 3, \"node\": 1, \"host\": \"b\", \"signal\": 9}\n"
         "{\"t\": 4, \"type\": \"rank_exited\", \"rank\": 0, \"exit_code\": 0}\n"
         "{\"t\": 5, \"type\": \"restart\", \"why\": \"rank 3\\u001b[31m died\", \"left\": 2}\n"
         "{\"t\": 6, \"type\": \"of_tomorrow\", \"why\": \"because\"}\n"
         "{\"t\": 7, \"type\": \"run_en");
  EventReader reader(dir_->path());
  std::vector<EventView> events;
  reader.Read(&events);
  std::vector<std::string> texts;
  for (const EventView& event : events) texts.push_back(event.text);
  EXPECT_THAT(texts, ElementsAre("run started: 4 ranks on 2 nodes", "rank 3 on node 1 (b) ended by signal 9",
                                 "restart: rank 3 died, 2 left", "of_tomorrow: because"));
  Append("events.jsonl", "ded\", \"reason\": \"all 4 ranks succeeded\"}\n");
  reader.Read(&events);
  EXPECT_EQ(events.back().text, "run ended: all 4 ranks succeeded");
  for (int i = 0; i < 1000; ++i) Append("events.jsonl", "{\"t\": 8, \"type\": \"stall_over\"}\n");
  reader.Read(&events);
  EXPECT_LE(events.size(), 200u);
}

TEST_F(ReadersTest, TheLastLinesOfALogAreKeptAndABarIsOneLine) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "line " + std::to_string(i) + "\n";
  Append("a.log", text);
  LogLines lines(*dir_ / "a.log", std::nullopt, 10);
  lines.Read();
  ASSERT_EQ(lines.lines().size(), 10u);
  EXPECT_EQ(lines.lines().back(), "line 999");
  Append("a.log", " 1%| 1/9\r 2%| 2/9\r 3%| 3/9\rdone \x1b[31mred\x1b[0m \x07\nha");
  lines.Read();
  EXPECT_EQ(lines.lines().back(), "done red \\x07");
  EXPECT_EQ(lines.lines()[8], "line 999");
  Append("a.log", "lf\n");
  lines.Read();
  EXPECT_EQ(lines.lines().back(), "half");
}

TEST_F(ReadersTest, OfALogOfAllRanksOnlyTheChosenOneIsShown) {
  Append("job.log", "[rank0]:a\n[rank1]:b\nwithout a mark\n[rank1]:c\n");
  LogLines one(*dir_ / "job.log", 1), zero(*dir_ / "job.log", 0);
  one.Read();
  zero.Read();
  EXPECT_THAT(one.lines(), ElementsAre("b", "c"));
  EXPECT_THAT(zero.lines(), ElementsAre("a", "without a mark"));
}

TEST_F(ReadersTest, ALongRunIsReadAtPlacesOverItsWholeLength) {
  std::string text;
  uint64_t step = 0;
  const CurveReader::Limits limits{.whole_up_to = 1u << 20, .places = 512, .place_bytes = 1024};
  while (text.size() < 2 * limits.whole_up_to) {
    record::AppendMetricLine({.t = 1, .step = ++step, .scalars = {{"loss", 1.0}, {"rank/time/step", 0.123456789}}},
                             &text);
  }
  Append("rank-0.jsonl", text);
  CurveReader reader(*dir_ / "rank-0.jsonl", limits);
  uint64_t first = 0, last = 0, lines = 0, before = 0;
  bool rising = true;
  const auto take = [&](const record::MetricLine& line) {
    if (lines++ == 0) first = *line.step;
    rising = rising && *line.step >= before;
    before = last = *line.step;
  };
  int pieces = 0;
  while (reader.Read(take)) ++pieces;
  EXPECT_EQ(first, 1u);
  EXPECT_EQ(last, step);
  EXPECT_GT(pieces, 3);
  EXPECT_LT(lines, step / 2);
  EXPECT_GT(lines, 5 * limits.places);
  EXPECT_EQ(reader.part(), 1);
  // What is appended is read whole.
  text.clear();
  record::AppendMetricLine({.t = 1, .step = step + 1, .scalars = {{"loss", 1.0}}}, &text);
  Append("rank-0.jsonl", text);
  reader.Read(take);
  EXPECT_EQ(last, step + 1);
}

TEST(NodeSamples, TheNewestOfEachNodeAndErrorsSinceTheFirst) {
  NodeSamples samples;
  record::NodeSample sample{.t = 10, .node = 1, .host = "b", .cpu_percent = 50};
  sample.gpus.push_back({.gpu = 0, .util = 97, .throttle = {"hw thermal slowdown"}});
  sample.links.push_back({.name = "mlx5_0:1", .kind = "infiniband", .in = 1e9, .errors = 7});
  samples.Take(sample);
  sample.t = 11;
  sample.links[0].errors = 9;
  samples.Take(sample);
  // A second launcher of the node knows its own rank only.
  samples.Take({.t = 12, .node = 1});
  samples.Take({.t = 11, .node = 0, .host = "a"});
  std::vector<NodeView> nodes;
  samples.CopyTo(&nodes);
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].host, "a");
  EXPECT_EQ(nodes[1].t, 12);
  EXPECT_EQ(nodes[1].cpu, 50);
  ASSERT_EQ(nodes[1].gpus.size(), 1u);
  EXPECT_EQ(nodes[1].links.at(0).errors, 2);

  RankView rank;
  record::RankSample from{
      .rank = 8, .pid = 4711, .cpu = 101, .rss = 6e9, .gpu = 0, .step = 30, .step_t = 9, .steps = 2};
  from.seconds = {{"step", 1.0}, {"data", 0.1}, {"collective", 0.4}};
  NodeSamples::Apply(sample, from, /*steps=*/true, &rank);
  EXPECT_EQ(rank.step, 30u);
  EXPECT_EQ(rank.seconds_per_step, 0.5);
  EXPECT_EQ(rank.CollectiveWait(), 0.4);
  EXPECT_EQ(rank.DataWait(), 0.1);
  rank.step = 40;
  NodeSamples::Apply(sample, from, /*steps=*/false, &rank);
  EXPECT_EQ(rank.step, 40u);  // its own files say more
}

}  // namespace
}  // namespace lockstep::watch
