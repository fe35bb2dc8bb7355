// What a stage of the self-test found, and how it is shown. Values and pure functions over the files the ranks left;
// main thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hardware/hardware.h"

namespace lockstep::cli {

struct Stage {
  std::string name;  // "1 process", "2 processes", "one node", "all nodes"
  int ranks = 1;
  int nnodes = 1;
  bool ok = false;
  double seconds = 0;
  std::string error;      // one sentence that names rank, pair or node
  nlohmann::json result;  // of rank 0, else of the lowest rank that left one here; null: none
  std::string log;        // the launcher's output, kept when the stage failed
};

// What the wire could give, in GB/s of bus bandwidth, and which wire that is.
struct LinkLimit {
  double gbytes = 0;
  std::string what;  // "eth0, 10 Gb/s"
};
// Nothing for loopback and where the speed is not known. `master`: numeric address the route leads to.
std::optional<LinkLimit> LimitOf(const hardware::Hardware& here, const Stage& stage, const std::string& master);

// The verdict of the ranks' files in this folder: rank 0's word, else the lowest rank's.
nlohmann::json ReadVerdict(const std::string& folder);

std::string StageLine(const Stage& stage, const std::optional<LinkLimit>& limit, bool colour);
// The table of sizes, the pairs that are slower than the others, and the scaling, of one stage.
std::string Details(const Stage& stage, const std::optional<LinkLimit>& limit);
nlohmann::json ToJson(const Stage& stage, const std::optional<LinkLimit>& limit);

}  // namespace lockstep::cli
