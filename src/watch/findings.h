// What is wrong with a run, in one line each, with evidence: a slow rank and the stage it is slow in, a stalled rank, a
// run that waits for its data or its network, throttled GPUs, growing memory, a loss that is not a number or jumps
// (rules: docs/watch.md). A Window keeps what the rules look at, a fixed amount for each rank; FindAll is a pure
// function of it. One thread.
//
//   Window window;
//   samples.Read([&](const record::NodeSample& sample) { window.Add(sample); });
//   metrics.Read([&](const record::MetricLine& line) { window.Add(line); });
//   for (const Finding& finding : FindAll(window, now)) Show(finding.text);
#pragma once

#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "record/metrics.h"
#include "record/samples.h"
#include "watch/line_values.h"

namespace lockstep::watch {

struct Finding {
  std::string rule;      // "straggler", as in the table of docs/watch.md
  std::string text;      // one line: "rank 2 is slow in data: the other ranks wait 0.31 s of each 0.42 s step for it"
  std::string evidence;  // one line: what was measured
  std::string stage;     // "data", "forward", "backward", "compute", "network", "optimizer", "checkpoint"; empty: none
  std::optional<int> rank, node, gpu;

  nlohmann::json ToJson() const;
};

class Window {
 public:
  // Metric lines of a rank are preferred to what the samples say of it: give them where the files are at hand.
  void Add(const record::NodeSample& sample);
  void Add(const record::MetricLine& line);
  void Add(const record::ScannedLine& line, const LineValues& values);
  // A progress line of a program without metrics (log of any launcher).
  void AddProgress(int rank, double t, std::optional<uint64_t> step, std::optional<double> seconds_per_step,
                   std::optional<double> loss);
  // A rank that is over is not stalled.
  void Ended(int rank);

  static constexpr size_t kStages = std::size(record::kStageNames);
  struct Step {
    uint64_t step = 0;
    double t = 0;        // when it was written
    double seconds = 0;  // of the whole step
    std::optional<double> stages[kStages];
    int wait_peer = -1;  // -1: unknown
    double wait_seconds = 0;
  };
  struct Point {
    double t = 0, value = 0;
  };
  struct Rank {
    int node = 0;
    bool from_metrics = false;
    bool ended = false;
    uint64_t first_step = 0;    // of this attempt
    std::deque<Step> steps;     // the last ones, ascending and without gaps in what is compared
    double last_t = 0;          // when it last advanced
    std::deque<double> gaps;    // seconds between its last lines: a program may write one every hundred steps
    std::vector<Point> memory;  // resident bytes, over the whole attempt, the more coarsely the longer
    double memory_every = 0;    // seconds between two of them
  };
  struct Gpu {
    std::deque<record::GpuSample> recent;
  };
  struct Link {
    std::deque<std::pair<double, record::LinkSample>> recent;  // with their times
  };
  struct Node {
    std::string host;
    std::optional<double> cpu_percent, cpu_cores, memory_total;
    double t = 0;  // of its last sample: the clock of its ranks
  };

  const std::map<int, Rank>& ranks() const { return ranks_; }
  const std::map<int, Node>& nodes() const { return nodes_; }
  const std::map<std::pair<int, int>, Gpu>& gpus() const { return gpus_; }             // by node and index
  const std::map<std::pair<int, std::string>, Link>& links() const { return links_; }  // by node and name
  const std::deque<std::pair<uint64_t, double>>& losses() const { return losses_; }    // step, loss
  std::optional<int> RankOn(int node, int gpu) const;
  // What time it is where this rank runs, as far as its node has told; clocks of machines differ.
  double NowOf(const Rank& rank, double now) const;

 private:
  Rank* Of(int rank, int attempt);
  static void Heard(Rank* rank, double t);
  static void AddStep(Rank* rank, Step step, int count);
  void AddLoss(uint64_t step, double loss);
  static void AddMemory(Rank* rank, double t, double bytes);

  int attempt_ = 0;
  std::map<int, Rank> ranks_;
  std::map<int, Node> nodes_;
  std::map<std::pair<int, int>, Gpu> gpus_;
  std::map<std::pair<int, int>, int> rank_on_;
  std::map<std::pair<int, std::string>, Link> links_;
  std::deque<std::pair<uint64_t, double>> losses_;
};

// Most urgent first; at most one of each rule and subject. `now`: seconds since 1970, by the clock of who reads.
std::vector<Finding> FindAll(const Window& window, double now);

}  // namespace lockstep::watch
