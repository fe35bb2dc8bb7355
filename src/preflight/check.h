// What a preflight examines: rows of a table, each a function from the input on this node (or, for the rows about all
// nodes, from the facts of all: see compare.h) to a result. A result that is not "ok" says what was found and what to
// do. The table is immutable; the functions of one node may run at the same time, each on a thread of its own.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "hardware/hardware.h"

namespace lockstep::preflight {

using Json = nlohmann::json;

enum class State { kOk, kSkipped, kWarn, kFail };  // in the order of gravity
const char* Name(State state);                     // "ok" | "skipped" | "warn" | "fail"

struct Problem {
  State state = State::kFail;
  std::string text;        // what was found, and where
  std::string remedy;      // what to do
  std::vector<int> nodes;  // rows about all nodes: those it concerns; empty: all
};

struct CheckOutcome {
  std::string note;  // what was found where all is well, or why the check was skipped
  std::vector<Problem> problems;
  bool skipped = false;

  State state() const;
  void Fail(std::string text, std::string remedy) {
    problems.push_back({State::kFail, std::move(text), std::move(remedy), {}});
  }
  void Warn(std::string text, std::string remedy) {
    problems.push_back({State::kWarn, std::move(text), std::move(remedy), {}});
  }
  static CheckOutcome Ok(std::string note) { return {std::move(note), {}, false}; }
  static CheckOutcome Skip(std::string why) { return {std::move(why), {}, true}; }

  Json ToJson() const;
  static CheckOutcome FromJson(const Json& json);
};

// What the job's interpreter answered when it was asked who it is; PyTorch is found, not imported.
struct Python {
  std::string path;     // empty: none was found, `trouble` says why
  std::string trouble;  // it could not be found or started
  std::string version;  // "3.11.2"
  std::string torch_path, torch_version, torch_cuda;
};

// Everything the checks of one node look at.
struct CheckInput {
  hardware::Hardware here;
  Environment env;                          // the job's
  std::vector<hardware::GpuState> visible;  // of here.gpus, those the ranks would see
  std::string visible_because;              // "CUDA_VISIBLE_DEVICES=0,1"; empty: nothing restricts
  int nnodes = 1, nproc = 1;
  bool process_level = false;              // one command per rank: each may see its own GPU alone
  bool first = true;                       // this is node 0
  bool tuned = false;                      // the start will apply what tune is certain of (--tune apply)
  std::string master;                      // host of node 0; empty with one node
  std::string master_address;              // numeric; empty: it does not resolve
  std::string master_trouble;              // why not
  int launcher_port = 0, worker_port = 0;  // to be free on node 0; 0: none is needed
  std::optional<std::pair<int, int>> port_range;
  Python python;
  std::string program;  // the script; empty: none given
  Status program_error;
  std::vector<std::string> data;
  std::string log_dir, checkpoint_dir, config;
  std::string root;  // "" but in tests
};

enum class Needs { kOneNode, kAllNodes };

struct Check {
  const char* id;
  Needs needs;
  const char* what;                                  // one line, for the list of checks
  CheckOutcome (*run)(const CheckInput&) = nullptr;  // one node only
};

const std::vector<Check>& Checks();

// The rows that --checks and --skip leave; ids or their beginnings ("gpu" means gpu-*). An unknown one is an error with
// the nearest.
struct Selection {
  std::vector<std::string> only, skip;
  bool Has(const std::string& id) const;
};
Status CheckSelection(const Selection& selection);

struct CheckResult {
  std::string id;
  CheckOutcome outcome;
};

// Runs the rows of one node at the same time. One that does not come back in time (a hung file system) fails and is
// left behind.
std::vector<CheckResult> RunChecks(const std::shared_ptr<const CheckInput>& input, const Selection& selection,
                                   Millis deadline);

}  // namespace lockstep::preflight
