// NCCL, Gloo and torch settings from the hardware: as few as possible, each with its reason. Pure functions over plain
// values. Any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "place/hardware.h"

namespace lockstep::tune {

enum class Confidence { kCertain, kLikely, kGuess };

struct Setting {
  std::string name, value;
  std::string because;  // the reason, with what was seen: "the route to 10.0.0.1 leaves by bond0"
  Confidence confidence = Confidence::kGuess;
  std::string user_value;  // the user's own, which wins; empty: none
};

// What was left alone on purpose, and why the default is right.
struct LeftAlone {
  std::string name, because;
};

struct JobShape {
  int nnodes = 1;
  int nproc_per_node = 1;
  std::vector<std::string> peers;  // numeric addresses of the other nodes or of the master; empty: unknown
  bool gpus = true;                // ranks use GPUs
};

struct Settings {
  std::vector<Setting> set;
  std::vector<LeftAlone> left;
  std::vector<std::string> warnings;  // what the hardware says that no setting mends: "3 of 8 HCA ports are down"
};

Settings Derive(const place::Hardware& here, const JobShape& job, const place::Environment& user);

nlohmann::json ToJson(const Settings& settings);

}  // namespace lockstep::tune
