// A run at one moment, as plain values: what the terminal's screen, the page and `--json` show. Filled by Watch
// (model.h); readers copy it or read it between two polls. What is not known is absent, never zero. Any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "watch/series.h"

namespace lockstep::watch {

// Of a program whose bar begins anew with each epoch.
struct EpochView {
  uint64_t number = 0;
  std::optional<uint64_t> of;
  uint64_t step = 0, total = 0;  // of this epoch
};

struct RankView {
  int rank = 0;
  int attempt = 0;
  int node = -1;  // -1: unknown
  int gpu = -1;   // index among the GPUs of its node, as NVML numbers them; -1: none or unknown
  int64_t pid = 0;
  std::optional<uint64_t> step;  // of the run, over all epochs
  std::optional<EpochView> epoch;
  std::optional<double> epochs_done;  // where the program counts nothing else: 1.5; the step is then 1
  std::optional<double> seconds_per_step;
  uint64_t steps_per_line = 1;                         // between its last two lines
  std::optional<double> data_seconds;                  // of a step, waiting for data
  std::optional<double> collective_seconds;            // of a step, waiting in collectives
  std::vector<std::pair<std::string, double>> stages;  // seconds of a step in each stage that is known
  int wait_peer = -1;                                  // the rank it waited for longest in collectives; -1: unknown
  std::optional<double> loss;
  std::optional<double> memory_host, memory_device;  // bytes, as the rank says
  std::optional<double> cpu;                         // percent of one core
  std::optional<double> rss;                         // bytes, as its node measured
  double last_seen = 0;                              // its last line; seconds since 1970; 0: none yet

  // Of a step: 0 to 1.
  std::optional<double> DataWait() const;
  std::optional<double> CollectiveWait() const;
  // Written nothing for well beyond what its own speed explains.
  bool Silent(double now) const;
};

struct GpuView {
  int node = 0;
  int index = -1;  // NVML's
  std::string uuid, name;
  std::optional<double> utilisation;                // percent of the time
  std::optional<double> memory_used, memory_total;  // bytes
  std::optional<double> temperature;                // degrees Celsius
  std::optional<double> power, power_limit;         // watts
  std::optional<double> clock, clock_max;           // of the SMs, MHz
  std::optional<double> memory_clock;               // MHz
  std::vector<std::string> throttle;                // in NVML's words: "hw thermal slowdown"; empty: none
  std::optional<double> ecc_corrected, ecc_uncorrected;
  std::optional<int> xid;  // the last critical one
  std::string error;       // why it could not be read
};

// A port of an InfiniBand or RoCE adapter, or an Ethernet interface, that the job uses.
struct LinkView {
  std::string name;                     // "mlx5_0:1", "eth0"
  std::string kind;                     // "infiniband", "ethernet"
  std::optional<double> receive, send;  // bytes per second
  std::optional<double> speed;          // of the link, Gbit/s
  std::optional<double> errors;         // counted since the first sample that was read
  std::string off;                      // why its counters are no longer read
};

struct NodeView {
  int node = 0;
  std::string host;
  double t = 0;               // of its last sample; seconds since 1970; 0: none
  std::optional<double> cpu;  // percent of one core, all processes
  std::optional<double> cores;
  std::optional<double> load;                       // of one minute
  std::optional<double> memory_used, memory_total;  // bytes
  std::vector<GpuView> gpus;
  std::vector<LinkView> links;
};

struct EventView {
  double t = 0;
  std::string type;  // as in events.jsonl
  int attempt = -1, node = -1, rank = -1;
  std::string text;  // one line for people
};

// One thing that is wrong or slow, in one line with its evidence.
struct FindingView {
  std::string kind;  // "straggler", "stall", "input-bound", "communication-bound", "thermal", "memory", "nan", "spike"
  std::string text;
  std::string evidence;
  std::string stage;  // "data", "forward", "backward", "collective", "optimizer", "checkpoint"; empty: none
  int node = -1, rank = -1;
  double since = 0;  // seconds since 1970
};

struct RunView {
  bool log = false;  // one log file instead of a run directory
  std::string name;
  std::string path;
  std::string state;   // as `lockstep runs` says it, or "removed"; of a log: "running", "silent", "complete", "removed"
  bool ended = false;  // nothing more will come
  std::string reason;  // how it ended
  std::optional<int> exit_code;
  int attempt = 0;
  int world = 0;       // 0: unknown
  int nnodes = 0;      // 0: unknown
  double started = 0;  // 0: unknown
  double duration = 0;
  std::optional<uint64_t> total;  // steps of the whole run
  // Of the leading rank.
  std::optional<uint64_t> step;
  std::optional<EpochView> epoch;
  std::optional<double> epochs_done;
  std::optional<double> seconds_per_step;
  std::optional<double> samples_per_second, tokens_per_second;
  std::optional<double> loss, learning_rate, gradient_norm;
  std::optional<double> eta;                         // seconds
  std::optional<double> data_wait;                   // part of a step, of the rank that waits longest: 0 to 1
  std::optional<double> collective_wait;             // part of a step, mean over ranks: 0 to 1
  std::optional<double> memory_host, memory_device;  // bytes, of the rank with most
  std::vector<RankView> ranks;                       // those that were heard of, ascending
  std::vector<NodeView> nodes;                       // ascending; of a log: this machine, where it has GPUs
  std::vector<EventView> events;                     // the last ones, oldest first
  std::vector<FindingView> findings;
  Series curve;            // loss over steps
  double read = 1;         // part of what is there that has been read: 0 to 1
  uint64_t bad_lines = 0;  // metric lines that did not parse

  const NodeView* Node(int node) const;              // null: unknown
  const GpuView* GpuOf(const RankView& rank) const;  // null: none or unknown
  nlohmann::json ToJson(double now) const;           // docs/watch.md says what the fields mean
  // The same for the page, without the curve: ranks, and the GPUs of a node, as a list of each field and their number
  // "n"; a list of one value where all have the same. Of a thousand ranks that is a fifth of the text.
  nlohmann::json ToColumns(double now) const;

 private:
  nlohmann::json Shared() const;  // without ranks, nodes and curve
};

}  // namespace lockstep::watch
