// What a trace of torch's profiler says (profile/rank-<r>.json, docs/profile.md): where the time of a step goes on the
// main thread and on the device, and how much communication and waiting for data nothing else hides. Of the engine's
// ranks and of Python programs alike. Reads files, writes a summary beside them; any thread.
//
//   Result<TraceSummary> rank = SummariseTrace("runs/night-1/profile/rank-0.json", 0);
//   LOCKSTEP_RETURN_IF_ERROR(WriteProfileSummary("runs/night-1/profile", {*rank}));
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace lockstep::record {

// Scopes of the engine. A step is named as torch names it: "ProfilerStep#<n>".
inline constexpr char kStepScope[] = "ProfilerStep#";
inline constexpr char kDataScope[] = "lockstep.data", kForwardScope[] = "lockstep.forward",
                      kBackwardScope[] = "lockstep.backward", kCollectiveScope[] = "lockstep.collective",
                      kOptimizerScope[] = "lockstep.optimizer", kCheckpointScope[] = "lockstep.checkpoint";

struct TraceEntry {
  std::string name;
  double seconds = 0;  // in all traced steps; of an operator without what it calls
  uint64_t count = 0;
};

struct TraceSummary {
  int rank = 0;
  uint64_t steps = 0;
  double seconds = 0;  // of all traced steps
  // Parts of these seconds. host: what the main thread did: data, collective, optimizer, checkpoint, backward, forward,
  // other. device: kinds of kernels (overlapping ones count each), empty without a GPU.
  std::map<std::string, double> host, device;
  double device_busy = 0;                         // some kernel ran
  double collective = 0, collective_exposed = 0;  // collectives under way; and nothing computed beside them
  std::vector<TraceEntry> kernels, operators;     // the longest first

  nlohmann::json ToJson() const;
  static TraceSummary FromJson(const nlohmann::json& json);
};

// An error where the file is no trace or holds no step.
Result<TraceSummary> SummariseTrace(const std::string& path, int rank);
// `path` names the stream in errors.
Result<TraceSummary> SummariseTrace(std::istream& in, const std::string& path, int rank);

// What a kernel does, by its name: "matrix products", "attention", "collectives", "copies" or "other".
const char* KindOfKernel(std::string_view name);

// "step 34.2 ms: forward 40.1 %, ...; exposed: collectives 1.2 %".
std::string ProfileLine(const TraceSummary& rank);
// One page for people.
std::string ProfileText(const std::vector<TraceSummary>& ranks);

// summary.txt and summary.json in the folder.
Status WriteProfileSummary(const std::string& folder, const std::vector<TraceSummary>& ranks);

// The same from all traces that lie there; the text. An error where none can be read.
Result<std::string> SummariseProfile(const std::string& folder);

}  // namespace lockstep::record
