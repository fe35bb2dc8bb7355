// Samples of a node (docs/formats/samples.md): the lines of telemetry/node-<n>.jsonl, written by the launcher of node 0
// and read from files that still grow. What is unknown is nullopt or empty. The functions are pure; a SampleWriter and
// a SampleReader belong to one thread each and need no cooperation of each other.
//
//   SampleReader samples("runs/taehv");
//   samples.Read([&](const NodeSample& sample) { ... });     // what is new since the last call
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "record/line_follower.h"

namespace lockstep::record {

inline constexpr size_t kLongestSampleLine = 256u << 10;  // with its newline
inline constexpr size_t kMostSampleParts = 65536;         // ranks, GPUs or links of one line that are read

struct GpuSample {
  int gpu = 0;
  std::string uuid, name;
  std::optional<double> util, memory_util;                     // percent
  std::optional<double> memory_used, memory_total;             // bytes
  std::optional<double> temperature;                           // degrees Celsius
  std::optional<double> power, power_limit;                    // watts
  std::optional<double> sm_clock, sm_clock_max, memory_clock;  // MHz
  std::vector<std::string> throttle;
  std::optional<double> ecc_corrected, ecc_uncorrected;
  std::optional<int> xid;
  std::string error;  // why it could not be read

  // Slowed because it is too hot; because of power.
  bool ThrottledByHeat() const;
  bool ThrottledByPower() const;
};

// The stages of a step, in the order in which they are shown.
inline constexpr std::string_view kStageNames[] = {"data",       "forward",   "backward",
                                                   "collective", "optimizer", "checkpoint"};

struct RankSample {
  int rank = 0;
  int64_t pid = 0;
  std::optional<double> cpu;  // percent of one core
  std::optional<double> rss;  // bytes
  std::optional<int> gpu;
  std::optional<uint64_t> step;
  std::optional<double> step_t;  // seconds since 1970
  std::optional<double> loss;
  int steps = 0;                                        // how many metric lines `seconds` sums
  std::vector<std::pair<std::string, double>> seconds;  // "step" and stages
  std::optional<int> wait_peer;
  std::optional<double> wait_seconds;

  std::optional<double> Seconds(std::string_view stage) const;
};

struct LinkSample {
  std::string name, kind;
  std::optional<double> speed;                        // Gbit/s
  std::optional<double> in, out;                      // bytes a second
  std::optional<double> bytes_in, bytes_out, errors;  // counters
  std::string off;                                    // why it is no longer read
};

struct NodeSample {
  double t = 0;  // seconds since 1970, by that node's clock
  int attempt = 0;
  int node = 0;
  std::string host;
  int64_t launcher = 0;  // pid
  uint64_t n = 0;        // ascending, for each launcher
  std::optional<double> cpu_percent, cpu_cores, cpu_load;
  std::optional<double> memory_used, memory_total;  // bytes
  std::vector<GpuSample> gpus;
  std::vector<RankSample> ranks;
  std::vector<LinkSample> links;
  uint64_t dropped = 0;
};

// Appends the line, newline included. A line that would be too long is cut to what fits: links, then GPUs, then ranks
// are left out from their ends.
void AppendSampleLine(const NodeSample& sample, std::string* out);

// One line without its newline; nothing when it is no JSON object with a time and a node. Parts that are malformed are
// left out.
std::optional<NodeSample> ParseSampleLine(std::string_view text);

// The same of a line as AppendSampleLine writes it, by a scanner that knows no other form. False: anything unusual;
// the sample's content is then undefined.
bool ScanSampleLine(std::string_view text, NodeSample* sample);

// The same of an object that was parsed already.
std::optional<NodeSample> ReadSample(const nlohmann::json& object);

// "<run>/telemetry", "<run>/telemetry/node-<n>.jsonl".
std::string TelemetryDir(const std::string& run_path);
std::string SamplePath(const std::string& run_path, int node);
// Nodes that have a file, ascending.
std::vector<int> SampledNodes(const std::string& run_path);

// Appends samples to the files of a run, each thinned when it reaches `limit`. A file that cannot be written is left
// alone for a while; what was not written is counted. Never blocks on anything but the disk.
class SampleWriter {
 public:
  SampleWriter(std::string run_path, size_t limit) : run_path_(std::move(run_path)), limit_(limit) {}

  void Write(const NodeSample& sample);
  uint64_t lost() const { return lost_; }
  const Status& error() const { return error_; }

 private:
  struct File {
    UniqueFd fd;
    size_t size = 0;
    bool mid_line = false;
  };
  Status Open(int node, File* file);
  Status Thin(int node, File* file);

  std::string run_path_;
  size_t limit_;
  std::map<int, File> files_;
  std::string line_;
  uint64_t lost_ = 0;
  Status error_;
};

// The limit of one file in a run of so many nodes.
size_t SampleFileLimit(int nnodes);

// Follows one file; see the format for what happens when it is thinned.
class SampleFollower {
 public:
  explicit SampleFollower(std::string path) : lines_(std::move(path)) {}

  // Calls with every complete new sample, at most about max_bytes of them; true when there is more to read now.
  bool Read(const std::function<void(const NodeSample&)>& each, size_t max_bytes = 16u << 20);
  void SkipToLast(size_t bytes) { lines_.SkipToLast(bytes); }
  uint64_t bad_lines() const { return lines_.bad_lines(); }

 private:
  LineFollower lines_;
  std::map<int64_t, uint64_t> newest_;  // of each launcher; several may share a file
};

// Follows the files of all nodes of a run; new ones are found as they come.
class SampleReader {
 public:
  explicit SampleReader(std::string run_path) : run_path_(std::move(run_path)) {}

  // As SampleFollower::Read. `last_bytes`: at the first sight of a file, all but the last so many bytes are left out.
  bool Read(const std::function<void(const NodeSample&)>& each, std::optional<size_t> last_bytes = std::nullopt);
  uint64_t bad_lines() const;

 private:
  std::string run_path_;
  std::map<int, SampleFollower> files_;
};

}  // namespace lockstep::record
