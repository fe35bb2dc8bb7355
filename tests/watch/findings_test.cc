#include "watch/findings.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

namespace lockstep::watch {
namespace {

// A synchronous training: every rank does its own work, then all wait for the last. Times in seconds.
struct Job {
  int world = 4;
  double data = 0.002, forward = 0.03, backward = 0.06, collective = 0.004, optimizer = 0.005;
  double noise = 0.1;  // of each stage, of each rank and step
  int slow = -1;       // rank
  std::string stage;   // of the delay; "network": its messages come late
  double delay = 0;    // each step, from step `from` on
  uint64_t from = 0, to = ~0ull;
  uint64_t steps = 200;
  // More of `stage`, of any rank and step.
  std::function<double(int rank, uint64_t step, std::mt19937& draw)> more;
  bool as_samples = false;  // as a node streams them, one line a second
  bool waits = true;        // wait_peer is known
  int blamed = -1;          // the rank that all others name, whoever came last
  unsigned seed = 1;
};

// Feeds the window and returns the time of the last step.
double Train(const Job& job, Window* window, double* began = nullptr) {
  std::mt19937 draw(job.seed);
  std::uniform_real_distribution<double> around(1 - job.noise, 1 + 3 * job.noise);
  double t = 1000, sampled = t;
  std::vector<record::RankSample> sums(static_cast<size_t>(job.world));
  for (uint64_t step = 1; step <= job.steps; ++step) {
    std::vector<std::map<std::string, double>> all;
    std::vector<double> arrive;
    const bool delayed = step >= job.from && step < job.to;
    if (step == job.from && began != nullptr) *began = t;
    for (int r = 0; r < job.world; ++r) {
      std::map<std::string, double> one = {{"data", job.data * around(draw)},
                                           {"forward", job.forward * around(draw)},
                                           {"backward", job.backward * around(draw)},
                                           {"optimizer", job.optimizer * around(draw)},
                                           {"checkpoint", 0}};
      if (r == job.slow && delayed && job.stage != "network") one[job.stage] += job.delay;
      if (job.more) one[job.stage] += job.more(r, step, draw);
      double own = 0;
      for (const auto& [name, value] : one) own += value;
      arrive.push_back(own);
      all.push_back(std::move(one));
    }
    const bool network = job.slow >= 0 && delayed && job.stage == "network";
    const double last = *std::max_element(arrive.begin(), arrive.end());
    const double end = last + job.collective + (network ? job.delay : 0);
    const int latest =
        network ? job.slow : static_cast<int>(std::max_element(arrive.begin(), arrive.end()) - arrive.begin());
    t += end;
    for (int r = 0; r < job.world; ++r) {
      auto& one = all[static_cast<size_t>(r)];
      one["collective"] = end - arrive[static_cast<size_t>(r)];
      one["step"] = end;
      const int named = job.blamed >= 0 ? job.blamed : latest;
      const int peer = r == named ? (r + 1) % job.world : named;
      if (!job.as_samples) {
        record::MetricLine line;
        line.t = t;
        line.rank = r;
        line.step = step;
        line.scalars.emplace_back("loss", 1.0);
        for (const auto& [name, value] : one) line.scalars.emplace_back("rank/time/" + name, value);
        if (job.waits) {
          line.scalars.emplace_back("rank/wait/peer", peer);
          line.scalars.emplace_back("rank/wait/seconds", one["collective"]);
        }
        window->Add(line);
        continue;
      }
      record::RankSample& sum = sums[static_cast<size_t>(r)];
      sum.rank = r;
      sum.step = step;
      sum.step_t = t;
      ++sum.steps;
      for (const auto& [name, value] : one) {
        const auto it =
            std::find_if(sum.seconds.begin(), sum.seconds.end(), [&](const auto& e) { return e.first == name; });
        if (it == sum.seconds.end()) {
          sum.seconds.emplace_back(name, value);
        } else {
          it->second += value;
        }
      }
      sum.wait_peer = peer;
      sum.wait_seconds = sum.wait_seconds.value_or(0) + one["collective"];
    }
    if (job.as_samples && t - sampled >= 1) {
      sampled = t;
      record::NodeSample sample;
      sample.t = t;
      sample.ranks = std::exchange(sums, std::vector<record::RankSample>(static_cast<size_t>(job.world)));
      window->Add(sample);
    }
  }
  return t;
}

std::vector<Finding> Find(const Job& job) {
  Window window;
  const double t = Train(job, &window);
  return FindAll(window, t + 0.5);
}

std::string Show(const std::vector<Finding>& list) {
  std::string text;
  for (const Finding& one : list) text += one.rule + " | " + one.text + " | " + one.evidence + "\n";
  return text;
}

TEST(Findings, TheSlowRankAndItsStageAreNamed) {
  const char* const stages[] = {"data", "forward", "backward", "optimizer", "checkpoint", "network"};
  for (const char* stage : stages) {
    for (const int world : {3, 4, 24}) {
      for (const bool as_samples : {false, true}) {
        Job job;
        job.world = world;
        job.slow = world - 2;
        job.stage = stage;
        job.delay = 0.1;
        job.from = 30;
        job.steps = 100;
        job.as_samples = as_samples;
        const std::vector<Finding> found = Find(job);
        ASSERT_EQ(found.size(), 1u) << stage << " " << world << " " << as_samples << "\n" << Show(found);
        EXPECT_EQ(found[0].rule, "straggler");
        EXPECT_EQ(found[0].rank, job.slow) << found[0].text;
        EXPECT_EQ(found[0].stage, stage) << found[0].text;
      }
    }
  }
}

TEST(Findings, OfTwoRanksTheSlowOneIsNamedByItsOwnWork) {
  Job job;
  job.world = 2;
  job.slow = 0;
  job.stage = "data";
  job.delay = 0.08;
  const std::vector<Finding> found = Find(job);
  ASSERT_EQ(found.size(), 1u) << Show(found);
  EXPECT_EQ(found[0].rank, 0);
  EXPECT_EQ(found[0].stage, "data");
}

TEST(Findings, TheSlowRankIsNamedWithinTenSeconds) {
  for (const double delay : {0.05, 0.15, 0.5, 1.0}) {
    Job job;
    job.slow = 2;
    job.stage = "forward";
    job.delay = delay;
    job.from = 300;
    job.steps = 300 + static_cast<uint64_t>(8.8 / (0.14 + delay));
    Window window;
    double began = 0;
    const double t = Train(job, &window, &began);
    ASSERT_LT(t - began, 10) << delay;
    const std::vector<Finding> found = FindAll(window, t);
    ASSERT_EQ(found.size(), 1u) << delay << "\n" << Show(found);
    EXPECT_EQ(found[0].rank, 2);
  }
}

TEST(Findings, ARankThatIsSlowInSomeStepsOnlyIsNamed) {
  const struct {
    const char* stage;
    std::function<double(int, uint64_t, std::mt19937&)> more;
  } cases[] = {
      {"data", [](int rank, uint64_t step, auto&) { return rank == 2 && step % 3 == 0 ? 0.3 : 0; }},
      {"checkpoint", [](int rank, uint64_t step, auto&) { return rank == 2 && step % 10 == 0 ? 1.0 : 0; }},
      {"backward", [](int rank, uint64_t, auto& draw) { return rank == 2 && draw() % 5 < 2 ? 0.2 : 0; }},
  };
  for (const auto& test : cases) {
    for (const int world : {2, 3, 4, 24}) {
      Job job;
      job.world = world;
      job.slow = 2;
      job.stage = test.stage;
      job.more =
          world == 2 ? [&](int rank, uint64_t step, auto& draw) { return test.more(rank * 2, step, draw); } : test.more;
      const std::vector<Finding> found = Find(job);
      ASSERT_EQ(found.size(), 1u) << test.stage << " " << world << "\n" << Show(found);
      EXPECT_EQ(found[0].rule, "straggler");
      EXPECT_EQ(found[0].rank, world == 2 ? 1 : 2);
      EXPECT_EQ(found[0].stage, test.stage);
    }
  }
}

TEST(Findings, AFewMillisecondsOfAShortStepAreASlowRank) {
  Job job;
  job.data = 0.0001, job.forward = 0.002, job.backward = 0.003, job.collective = 0.0002, job.optimizer = 0.0001;
  job.slow = 1;
  job.stage = "forward";
  job.delay = 0.004;
  job.steps = 1000;
  const std::vector<Finding> found = Find(job);
  ASSERT_EQ(found.size(), 1u) << Show(found);
  EXPECT_EQ(found[0].rank, 1);
}

// Where all CPUs are busy, some rank gets less of them for a while.
TEST(Findings, OnAFullMachineOnlyALargeDelayIsASlowRank) {
  for (const double busy : {195.0, 50.0}) {
    for (const double delay : {0.05, 0.2}) {
      Job job;
      job.slow = 2;
      job.stage = "backward";
      job.delay = delay;
      Window window;
      const double t = Train(job, &window);
      record::NodeSample sample;
      sample.t = t;
      sample.cpu_percent = busy;
      sample.cpu_cores = 2;
      window.Add(sample);
      EXPECT_EQ(FindAll(window, t).empty(), busy > 180 && delay < 0.1) << busy << " " << delay;
    }
  }
}

// Nobody's fault, no network and no communication: the load is uneven, the machine is busy, or everybody saves.
TEST(Findings, RanksThatWaitForEachOtherInTurnAreNotAccused) {
  const struct {
    const char* what;
    std::function<double(int, uint64_t, std::mt19937&)> more;
  } cases[] = {
      {"in turn", [](int rank, uint64_t step, auto&) { return step / 7 % 4 == static_cast<uint64_t>(rank) ? 0.2 : 0; }},
      {"now and then", [](int, uint64_t, auto& draw) { return draw() % 10 < 3 ? 3e-5 * (draw() % 10000) : 0; }},
      {"rarely", [](int, uint64_t, auto& draw) { return draw() % 60 == 0 ? 1.0 : 0; }},
      {"all", [](int, uint64_t step, auto&) { return step % 10 == 0 ? 1.0 : 0; }},
  };
  for (const auto& test : cases) {
    for (unsigned seed = 0; seed < 50; ++seed) {
      Job job;
      job.seed = seed;
      job.stage = "forward";
      job.more = test.more;
      job.steps = 60 + seed;
      const std::vector<Finding> found = Find(job);
      EXPECT_TRUE(found.empty()) << test.what << " " << seed << "\n" << Show(found);
    }
  }
}

// Four ranks on two CPUs: each comes last in turn and waits for nobody then. Slow messages would keep that one waiting.
TEST(Findings, RanksThatWaitForACpuAreNoNetworkTrouble) {
  Job job;
  job.stage = "forward";
  job.more = [](int rank, uint64_t step, auto&) { return step % 4 == static_cast<uint64_t>(rank) ? 0.1 : 0; };
  job.blamed = 1;
  std::vector<Finding> found = Find(job);
  EXPECT_TRUE(found.empty()) << Show(found);
  job.collective = 0.1;
  found = Find(job);
  ASSERT_EQ(found.size(), 1u) << Show(found);
  EXPECT_EQ(found[0].stage, "network");
}

TEST(Findings, NobodyIsAccusedInAHealthyRunHoweverNoisy) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    Job job;
    job.seed = seed;
    job.world = 2 + static_cast<int>(seed % 7);
    job.noise = 0.1 + 0.01 * static_cast<double>(seed % 90);
    job.steps = 20 + seed;
    job.as_samples = seed % 3 == 0;
    job.collective = seed % 5 == 0 ? 0.02 : 0.004;
    const std::vector<Finding> found = Find(job);
    EXPECT_TRUE(std::none_of(found.begin(), found.end(), [](const Finding& one) { return one.rank.has_value(); }))
        << seed << "\n"
        << Show(found);
  }
}

TEST(Findings, AStepThatOneRankHeldUpIsNamed) {
  Job job;
  job.slow = 1;
  job.stage = "data";
  job.delay = 3;
  job.from = 180;
  job.to = 181;
  const std::vector<Finding> found = Find(job);
  ASSERT_EQ(found.size(), 1u) << Show(found);
  EXPECT_EQ(found[0].rule, "pause");
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_EQ(found[0].stage, "data");
}

TEST(Findings, WhatHoldsUpAllRanksIsABoundAndNoStraggler) {
  Job data;
  data.data = 0.08;
  std::vector<Finding> found = Find(data);
  ASSERT_EQ(found.size(), 1u) << Show(found);
  EXPECT_EQ(found[0].rule, "input-bound");
  Job network;
  network.collective = 0.12;
  network.waits = false;
  found = Find(network);
  ASSERT_EQ(found.size(), 1u) << Show(found);
  EXPECT_EQ(found[0].rule, "communication-bound");
  // Where the CPUs are full, ranks wait for a CPU.
  Window window;
  const double t = Train(network, &window);
  record::NodeSample full;
  full.t = t;
  full.cpu_percent = 199;
  full.cpu_cores = 2;
  window.Add(full);
  EXPECT_TRUE(FindAll(window, t).empty());
}

TEST(Findings, ARankThatStandsStillIsNamed) {
  Window window;
  for (uint64_t step = 0; step < 60; ++step) {
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == 1 && step > 20) continue;
      window.AddProgress(rank, 1000 + static_cast<double>(step), step, std::nullopt, std::nullopt);
    }
  }
  std::vector<Finding> found = FindAll(window, 1060);
  ASSERT_EQ(found.size(), 1u) << Show(found);
  EXPECT_EQ(found[0].rule, "stalled");
  EXPECT_EQ(found[0].rank, 1);
  window.Ended(1);
  EXPECT_TRUE(FindAll(window, 1060).empty());
  found = FindAll(window, 1200);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].rank);
}

TEST(Findings, ARunThatHangsAfterItsFirstStepStandsStill) {
  Window window;
  window.Add(record::MetricLine{.t = 1000, .rank = 0, .step = 1, .scalars = {{"time/step", 1.0}}});
  EXPECT_TRUE(FindAll(window, 1050).empty());
  EXPECT_EQ(FindAll(window, 1070).size(), 1u);
}

TEST(Findings, AProgramThatWritesALineEveryHundredStepsDoesNotStandStill) {
  for (const bool stated : {true, false}) {
    Window window;
    for (uint64_t line = 0; line < 10; ++line) {
      for (int rank = 0; rank < 2; ++rank) {
        record::MetricLine one{.t = 1000 + 100 * static_cast<double>(line), .rank = rank, .step = 100 * line};
        if (stated) one.scalars = {{"time/step", 1.0}};
        if (rank == 0 || line < 9) window.Add(one);
      }
      if (line == 0) EXPECT_TRUE(FindAll(window, 1090).empty()) << "nothing says when the next one is due";
    }
    EXPECT_TRUE(FindAll(window, 1900).empty()) << "the line of rank 1 comes a moment later";
    EXPECT_TRUE(FindAll(window, 1999).empty());
    const std::vector<Finding> found = FindAll(window, 2250);
    ASSERT_EQ(found.size(), 1u) << Show(found);
    EXPECT_EQ(found[0].text, "no rank has written a step for 350 s");
    EXPECT_EQ(found[0].evidence.find("a step takes") != std::string::npos, stated) << found[0].evidence;
  }
}

TEST(Findings, ClocksOfMachinesMayDiffer) {
  for (const double ahead : {-3600.0, 45.0}) {
    Window window;
    for (int i = 0; i < 60; ++i) {
      for (int node = 0; node < 2; ++node) {
        record::NodeSample sample;
        sample.t = 1000 + i + (node == 1 ? ahead : 0);
        sample.node = node;
        record::RankSample rank;
        rank.rank = node;
        rank.step = static_cast<uint64_t>(i + 1);
        rank.step_t = sample.t - 0.3;
        rank.steps = 1;
        rank.seconds = {{"step", 1.0}};
        if (node == 0 || i < 40 || ahead > 0) sample.ranks = {rank};
        window.Add(sample);
      }
    }
    const std::vector<Finding> found = FindAll(window, 1060);
    if (ahead > 0) {
      EXPECT_TRUE(found.empty()) << Show(found);
    } else {
      ASSERT_EQ(found.size(), 1u) << Show(found);
      EXPECT_EQ(found[0].rank, 1);
    }
  }
}

TEST(Findings, GpusThatAreHotCappedOrBrokenAreNamed) {
  const auto feed = [](const std::vector<std::string>& throttle, double clock, int count, const std::string& error) {
    Window window;
    for (int i = 0; i < count; ++i) {
      record::NodeSample sample;
      sample.t = 1000 + i;
      sample.node = 1;
      record::GpuSample gpu;
      gpu.gpu = 3;
      gpu.temperature = 88;
      gpu.power = 690;
      gpu.power_limit = 700;
      gpu.sm_clock = clock;
      gpu.sm_clock_max = 1980;
      gpu.throttle = throttle;
      gpu.error = error;
      sample.gpus = {gpu};
      record::RankSample rank;
      rank.rank = 11;
      rank.gpu = 3;
      sample.ranks = {rank};
      window.Add(sample);
    }
    return FindAll(window, 1000 + count);
  };
  std::vector<Finding> found = feed({"hw thermal slowdown"}, 1200, 5, "");
  ASSERT_EQ(found.size(), 1u) << Show(found);
  EXPECT_EQ(found[0].rule, "thermal-throttling");
  EXPECT_EQ(found[0].rank, 11);
  EXPECT_EQ(found[0].gpu, 3);
  EXPECT_TRUE(feed({"hw thermal slowdown"}, 1200, 2, "").empty());  // a moment is none
  found = feed({"sw power cap"}, 1400, 12, "");
  ASSERT_EQ(found.size(), 1u) << Show(found);
  EXPECT_EQ(found[0].rule, "power-cap");
  EXPECT_TRUE(feed({"sw power cap"}, 1900, 12, "").empty());  // usual at full load
  found = feed({}, 0, 1, "the GPU is lost");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rule, "gpu-error");
}

TEST(Findings, ErrorsAndSpeedOfLinksAreCompared) {
  Window window;
  for (int i = 0; i < 10; ++i) {
    for (int node = 0; node < 2; ++node) {
      record::NodeSample sample;
      sample.t = 1000 + i;
      sample.node = node;
      record::LinkSample link;
      link.name = "mlx5_0:1";
      link.kind = "infiniband";
      link.speed = node == 1 ? 100 : 400;
      link.errors = node == 0 ? 7 + i : 0;
      sample.links = {link};
      window.Add(sample);
    }
  }
  const std::vector<Finding> found = FindAll(window, 1010);
  ASSERT_EQ(found.size(), 2u) << Show(found);
  EXPECT_EQ(found[0].rule, "link-errors");
  EXPECT_EQ(found[0].node, 0);
  EXPECT_EQ(found[1].rule, "slow-link");
  EXPECT_EQ(found[1].node, 1);
}

TEST(Findings, MemoryThatGrowsEvenlyIsALeak) {
  const auto feed = [](auto&& bytes) {
    Window window;
    std::mt19937 draw(3);
    std::uniform_real_distribution<double> noise(-4e6, 4e6);
    for (int i = 0; i < 1200; ++i) {
      record::NodeSample sample;
      sample.t = 1000 + i;
      sample.memory_total = 64e9;
      record::RankSample rank;
      rank.rank = 5;
      rank.rss = bytes(i) + noise(draw);
      sample.ranks = {rank};
      window.Add(sample);
    }
    return FindAll(window, 2200);
  };
  const std::vector<Finding> found = feed([](int i) { return 3e9 + 1e6 * i; });
  ASSERT_EQ(found.size(), 1u) << Show(found);
  EXPECT_EQ(found[0].rule, "memory-growth");
  EXPECT_EQ(found[0].rank, 5);
  EXPECT_TRUE(feed([](int) { return 3e9; }).empty());
  EXPECT_TRUE(feed([](int i) { return 3e9 + (i > 600 ? 1e9 : 0); }).empty());               // allocated once
  EXPECT_TRUE(feed([](int i) { return 3e9 + 1e9 * (1 - std::exp(-i / 200.0)); }).empty());  // a cache that fills
  EXPECT_TRUE(feed([](int i) { return 3e9 + 0.5e9 * std::sin(i / 50.0); }).empty());        // up and down
}

TEST(Findings, ALossThatIsNoNumberOrJumpsIsNamed) {
  const auto feed = [](auto&& loss, uint64_t steps) {
    Window window;
    std::mt19937 draw(5);
    std::uniform_real_distribution<double> noise(-0.1, 0.1);
    for (uint64_t step = 1; step <= steps; ++step)
      window.AddProgress(0, 1000 + static_cast<double>(step), step, 1.0, loss(step) + noise(draw));
    return FindAll(window, 1000 + static_cast<double>(steps));
  };
  std::vector<Finding> found = feed([](uint64_t step) { return step > 80 ? std::nan("") : 2.0; }, 100);
  ASSERT_EQ(found.size(), 1u) << Show(found);
  EXPECT_EQ(found[0].rule, "nan-loss");
  EXPECT_NE(found[0].text.find("step 81"), std::string::npos) << found[0].text;
  found = feed([](uint64_t step) { return step == 90 ? 9.0 : 2.0; }, 100);
  ASSERT_EQ(found.size(), 1u) << Show(found);
  EXPECT_EQ(found[0].rule, "loss-spike");
  EXPECT_NE(found[0].text.find("step 90"), std::string::npos) << found[0].text;
  EXPECT_TRUE(feed([](uint64_t step) { return 4.0 / std::sqrt(static_cast<double>(step)); }, 100).empty());
  EXPECT_TRUE(feed([](uint64_t step) { return step == 5 ? 50.0 : 2.0; }, 100).empty());  // too early to know
}

TEST(Findings, ARestartBeginsAnewAndAnOldRunSaysNothing) {
  Job job;
  job.slow = 2;
  job.stage = "data";
  job.delay = 0.1;
  Window window;
  const double t = Train(job, &window);
  ASSERT_FALSE(FindAll(window, t).empty());
  record::MetricLine line;
  line.t = t + 1;
  line.attempt = 1;
  line.step = 1;
  line.scalars.emplace_back("rank/time/step", 0.1);
  window.Add(line);
  EXPECT_TRUE(FindAll(window, t + 1).empty());
}

}  // namespace
}  // namespace lockstep::watch
