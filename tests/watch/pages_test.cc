// Pages of the screen at sizes that terminals have, and what keys do: no terminal is needed.
#include "watch/pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/columns.h"
#include "watch/sections.h"

namespace lockstep::watch {
namespace {

using testing::HasSubstr;

RunView Job(int ranks, int nodes) {
  RunView view;
  view.name = "job";
  view.state = "running";
  view.world = ranks;
  view.nnodes = nodes;
  view.total = 1000;
  view.step = 120;
  view.seconds_per_step = 0.5;
  view.eta = 440;
  view.loss = 0.25;
  view.samples_per_second = 64;
  view.data_wait = 0.3;
  for (uint64_t step = 1; step <= 120; ++step) view.curve.Add(step, 10.0 / static_cast<double>(step));
  for (int n = 0; n < nodes; ++n) {
    NodeView node{.node = n, .host = "gpu-" + std::to_string(n), .t = 99, .cpu = 812, .cores = 64};
    node.links.push_back(
        {.name = "mlx5_0:1", .kind = "infiniband", .receive = 1.2e9, .send = 1e9, .speed = 400, .errors = 3});
    view.nodes.push_back(node);
  }
  for (int r = 0; r < ranks; ++r) {
    const int node = r * nodes / ranks;
    GpuView gpu{.node = node, .index = static_cast<int>(view.nodes[static_cast<size_t>(node)].gpus.size())};
    gpu.name = "NVIDIA H200";
    gpu.utilisation = 97, gpu.memory_used = 80e9, gpu.memory_total = 150e9, gpu.temperature = 61, gpu.power = 512;
    gpu.clock = 1755;
    RankView rank{.rank = r, .node = node, .gpu = gpu.index, .step = 120, .seconds_per_step = 0.5};
    rank.data_seconds = 0.01, rank.collective_seconds = 0.1, rank.cpu = 101, rank.rss = 6e9, rank.last_seen = 99;
    view.nodes[static_cast<size_t>(node)].gpus.push_back(gpu);
    view.ranks.push_back(rank);
  }
  view.events.push_back({.t = 50, .type = "run_started", .text = "run started"});
  return view;
}

std::string Shown(const ScreenInput& input, ScreenSize size, ScreenState* state) {
  const StyledLines lines = ComposeScreen(input, size, state);
  EXPECT_EQ(lines.size(), size.rows);
  std::string text;
  for (const StyledLine& line : lines) {
    EXPECT_LE(TextWidth(line.Text()), size.columns) << line.Text();
    text += line.Text() + "\n";
  }
  return text;
}

TEST(Screen, EveryPageFitsEverySize) {
  const RunView one = Job(1, 1), some = Job(16, 2), many = Job(80, 10);
  RunView empty;
  empty.name = "empty";
  const std::deque<std::string> log(600, "a line of the log that is longer than narrow terminals are wide");
  for (const RunView* view : {&one, &some, &many, static_cast<const RunView*>(&empty)}) {
    const ScreenInput input{.views = {view, &one}, .log_lines = &log, .log_path = "x.log", .now = 100, .utf8 = true};
    for (const ScreenSize size : {ScreenSize{80, 24}, {150, 50}, {40, 10}, {20, 3}, {1, 1}, {500, 2}}) {
      for (const char key : std::string("123456?")) {
        ScreenState state;
        PressKey(key, input, size, &state);
        Shown(input, size, &state);
        // Scrolling beyond all ends.
        for (const Key move : {Key::kEnd, Key::kPageDown, Key::kUp, Key::kHome, Key::kPageUp}) {
          PressKey(static_cast<int>(move), input, size, &state);
          Shown(input, size, &state);
        }
      }
    }
  }
}

TEST(Screen, TheOverviewSaysWhatMattersAtEightyByTwentyFour) {
  RunView view = Job(16, 2);
  view.findings.push_back({.kind = "straggler", .text = "rank 7 is slow in data", .rank = 7});
  const ScreenInput input{.views = {&view}, .now = 100};
  ScreenState state;
  const std::string text = Shown(input, {80, 24}, &state);
  for (const char* want : {"job | running | 16 ranks, 2 nodes", "step 120/1000  12%", "ETA 7m20s", "0.500 s/it",
                           "samples/s 64", "data wait 30%", "rank 7 is slow in data", "RANK NODE STEP", "UTIL", "TEMP",
                           "POWER", "CPU", "RSS", "run started", "q quit"}) {
    EXPECT_THAT(text, HasSubstr(want));
  }
  // The rank of the finding is shown although not all fit.
  EXPECT_THAT(text, HasSubstr("\n   7    0  120"));
  EXPECT_THAT(text, HasSubstr("more ranks"));
}

TEST(Screen, NodesHaveTheirGpusAndLinks) {
  const RunView view = Job(4, 2);
  const ScreenInput input{.views = {&view}, .now = 100};
  ScreenState state;
  PressKey('3', input, {100, 30}, &state);
  const std::string text = Shown(input, {100, 30}, &state);
  for (const char* want : {"gpu-1", "NVIDIA H200", "mlx5_0:1", "1.2 GB/s", "ERRORS", "3"}) {
    EXPECT_THAT(text, HasSubstr(want));
  }
}

TEST(Screen, RanksAreSortedByTheColumnThatIsChosen) {
  RunView view = Job(4, 1);
  view.ranks[2].data_seconds = 0.4;
  view.ranks[1].collective_seconds = 0.01;
  view.ranks[3].loss = NAN;
  const auto first = [&](RankOrder order, bool reverse = false) {
    return view.ranks[OrderRanks(view, order, reverse, 100).front()].rank;
  };
  EXPECT_EQ(first(RankOrder::kRank), 0);
  EXPECT_EQ(first(RankOrder::kRank, true), 3);
  EXPECT_EQ(first(RankOrder::kData), 2);
  EXPECT_EQ(first(RankOrder::kCollective), 1);  // the others wait for it
  EXPECT_EQ(first(RankOrder::kLoss), 3);
  EXPECT_EQ(first(RankOrder::kTrouble), 1);  // works longest itself
  view.ranks[0].step = 90;
  EXPECT_EQ(first(RankOrder::kTrouble), 0);  // behind
  RankOrder order = RankOrder::kRank;
  for (int i = 0; i <= static_cast<int>(RankOrder::kTrouble); ++i) order = NextRankOrder(order);
  EXPECT_EQ(order, RankOrder::kRank);
}

TEST(Screen, KeysChooseARankAndItsLog) {
  const RunView view = Job(4, 1), other = Job(2, 1);
  const ScreenInput input{.views = {&view, &other}, .now = 100};
  const ScreenSize size{80, 24};
  ScreenState state;
  for (const int key : {static_cast<int>('2'), static_cast<int>(Key::kDown), static_cast<int>(Key::kDown)}) {
    PressKey(key, input, size, &state);
    Shown(input, size, &state);
  }
  EXPECT_EQ(state.rank, 2);
  PressKey(static_cast<int>(Key::kEnter), input, size, &state);
  EXPECT_EQ(state.page, Page::kLog);
  PressKey(static_cast<int>(Key::kRight), input, size, &state);
  PressKey(static_cast<int>(Key::kRight), input, size, &state);
  EXPECT_EQ(state.rank, 3);  // there is no other
  PressKey('n', input, size, &state);
  EXPECT_EQ(state.run, 1u);
  EXPECT_EQ(state.rank, 0);
  PressKey('n', input, size, &state);
  EXPECT_EQ(state.run, 0u);
  PressKey('p', input, size, &state);
  EXPECT_TRUE(state.paused);
  EXPECT_THAT(Shown(input, size, &state), HasSubstr("PAUSED"));
  EXPECT_FALSE(PressKey('\x01', input, size, &state));
  PressKey('q', input, size, &state);
  EXPECT_TRUE(state.quit);
}

TEST(Grid, TheLeastImportantColumnsGoFirstAndEmptyOnesAlways) {
  const std::vector<GridColumn> columns = {{"A", 3}, {"NONE", 9}, {"B", 1}, {"C", 2, true}};
  const std::vector<GridRow> rows = {{{"1"}, {"-"}, {"22"}, {"x"}}, {{"333"}, {""}, {"4"}, {"yy"}}};
  const auto text = [&](size_t width) {
    std::string all;
    for (const StyledLine& line : FitGrid(columns, rows, width)) all += line.Text() + "\n";
    return all;
  };
  EXPECT_EQ(text(0), "  A  B C\n  1 22 x\n333  4 yy\n");
  EXPECT_EQ(text(8), "  A C\n  1 x\n333 yy\n");
  EXPECT_EQ(text(5), "  A\n  1\n333\n");
  EXPECT_EQ(text(2), "\n\n33\n");
}

TEST(Screen, FindingsThatEndATrainingAreBad) {
  RunView view;
  for (const char* kind : {"straggler", "nan-loss", "stalled", "thermal-throttling"}) {
    view.findings.push_back({.kind = kind, .text = kind});
  }
  std::vector<Style> styles;
  for (const StyledLine& line : FindingLines(view, 0, 80)) styles.push_back(line.spans()[0].style);
  EXPECT_THAT(styles, testing::ElementsAre(Style::kWarn, Style::kBad, Style::kBad, Style::kBad));
}

TEST(Screen, HelpAndFindingsAreNotCutOnASmallTerminal) {
  RunView view = Job(2, 1);
  view.findings.push_back({.kind = "straggler",
                           .text = "rank 1 on node 0 is the straggler: it works 0.412 s in forward",
                           .evidence = "the others work 0.201 s and wait for it in 19 of the last 20 steps"});
  const ScreenInput input{.views = {&view}, .now = 100};
  ScreenState state;
  state.page = Page::kEvents;
  EXPECT_THAT(Shown(input, {.columns = 80, .rows = 24}, &state),
              HasSubstr(" ! rank 1 on node 0 is the straggler: it works 0.412 s in forward (the others\n"
                        "   work 0.201 s and wait for it in 19 of the last 20 steps)\n"));
  state.help = true;
  EXPECT_THAT(Shown(input, {.columns = 80, .rows = 24}, &state), HasSubstr("Page Up, Page Down, Home, End\n"));
}

}  // namespace
}  // namespace lockstep::watch
