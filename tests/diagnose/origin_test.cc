// Whose line is it, and when was it written.
#include "diagnose/origin.h"

#include <gtest/gtest.h>

namespace lockstep::diagnose {
namespace {

struct Case {
  const char* line;
  int rank;
  const char* node;
  const char* text;
};

TEST(Origin, ReadsTheTagsOfLaunchers) {
  const Case cases[] = {
      {"[rank3]: Traceback (most recent call last):", 3, "", "Traceback (most recent call last):"},
      {"[rank3]:   File \"x.py\", line 1", 3, "", "  File \"x.py\", line 1"},
      {"[default5]:ValueError: x", 5, "", "ValueError: x"},
      {"[1,7]<stderr>:ValueError: x", 7, "", "ValueError: x"},
      {"0:3| ValueError: x", 3, "", "ValueError: x"},
      {"[gpu-7:4711] *** Process received signal ***", -1, "gpu-7", "*** Process received signal ***"},
      {"[pod/job-worker-1/pytorch] 2026-01-01T10:00:00.123456789Z ValueError: x", -1, "job-worker-1", "ValueError: x"},
      {"(train pid=4711, ip=10.0.0.7) ValueError: x", -1, "10.0.0.7", "ValueError: x"},
      {"[rank7]:[E626 05:06:30.929096625 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught", 2, "", "Watchdog caught"},
      {"Nov 15 10:00:00 gpu-3 kernel: [12345.678901] Out of memory: Killed process 1 (python)", -1, "gpu-3",
       "Out of memory: Killed process 1 (python)"},
      {"gpu-7:4711:4812 [3] NCCL WARN x", -1, "gpu-7", "gpu-7:4711:4812 [3] NCCL WARN x"},
      {"plain words", -1, "", "plain words"},
      {"3 apples", -1, "", "3 apples"},
      {"[a list]", -1, "", "[a list]"},
  };
  for (const Case& one : cases) {
    const Origin origin = ReadOrigin(one.line, LineStyle(), 2026);
    EXPECT_EQ(origin.rank, one.rank) << one.line;
    EXPECT_EQ(origin.node, one.node) << one.line;
    EXPECT_EQ(origin.text, one.text) << one.line;
  }
}

TEST(Origin, BelievesShortLabelsOnlyWhenTheFileIsFullOfThem) {
  const LineStyle srun = LearnStyle("0: hello\n1: hello\n1:   File \"x\"\n0: world\nsrun: error: x\n");
  EXPECT_TRUE(srun.rank_label);
  const Origin origin = ReadOrigin("1:   File \"x\"", srun, 2026);
  EXPECT_EQ(origin.rank, 1);
  EXPECT_EQ(origin.text, "  File \"x\"");
  const LineStyle pdsh = LearnStyle("worker-1: a\nworker-2: b\nworker-1: c\nworker-2: d\nworker-1: e\nworker-2: f\n");
  EXPECT_TRUE(pdsh.host_label);
  EXPECT_EQ(ReadOrigin("worker-2: ValueError: x", pdsh, 2026).node, "worker-2");
  const LineStyle none = LearnStyle("3: first point\nall other lines\nare plain\nwords\n");
  EXPECT_FALSE(none.rank_label);
  EXPECT_FALSE(none.host_label);
}

TEST(Origin, KnowsLevels) {
  EXPECT_EQ(ReadOrigin("2026-01-01 10:00:00,123 - WARNING - x - y", LineStyle(), 2026).level, Level::kWarning);
  EXPECT_EQ(ReadOrigin("[2026-01-01 10:00:00,123] [ERROR] [a.py:1:f] y", LineStyle(), 2026).level, Level::kError);
  EXPECT_EQ(ReadOrigin("E1115 10:00:00.123000 4711 api.py:882] failed", LineStyle(), 2026).level, Level::kError);
  EXPECT_EQ(ReadOrigin("/x/y.py:3: UserWarning: z", LineStyle(), 2026).level, Level::kWarning);
  EXPECT_EQ(ReadOrigin("gpu-1:1:2 [0] NCCL WARN failed", LineStyle(), 2026).level, Level::kNone);
  EXPECT_EQ(ReadOrigin("ValueError: x", LineStyle(), 2026).level, Level::kNone);
}

TEST(Origin, ReadsPaths) {
  EXPECT_EQ(ReadPathOrigin("/tmp/run_x/attempt_0/3/stderr.log").rank, 3);
  EXPECT_EQ(ReadPathOrigin("/tmp/run_x/attempt_1/3/stderr.log").attempt, 1);
  EXPECT_EQ(ReadPathOrigin("logs/node-1/rank-5.log").rank, 5);
  EXPECT_EQ(ReadPathOrigin("logs/node-1/rank-5.log").node, "node-1");
  EXPECT_EQ(ReadPathOrigin("logs/train_rank12.err").rank, 12);
  EXPECT_EQ(ReadPathOrigin("job-worker-1.log").node, "worker-1");
  EXPECT_EQ(ReadPathOrigin("slurm-4711_3.out").rank, -1);
  // A folder that only mentions a rank is no tag.
  EXPECT_EQ(ReadPathOrigin("oom-rank1-of-2/log/train.log").rank, -1);
  EXPECT_EQ(ReadPathOrigin("local_rank_3.log").rank, -1);
}

TEST(Lines, LoseColoursAndControlBytes) {
  std::string buffer;
  EXPECT_EQ(CleanLine("\x1b[31mred\x1b[0m\r\n", 0, &buffer), "red");
  EXPECT_EQ(CleanLine(std::string_view("a\0b", 3), 0, &buffer), "ab");
  const std::string_view bar = " 10%|#\r 20%|##\rValueError: x";
  EXPECT_EQ(CleanLine(bar, bar.size(), &buffer), "ValueError: x");
  EXPECT_EQ(CleanLine(bar, 0, &buffer), " 10%|#");
}

}  // namespace
}  // namespace lockstep::diagnose
