// A preflight: this node is examined, then, with several nodes, all of them together through the job's rendezvous. The
// answer is one report, the same on every node. Main thread (an interpreter is started and asked); a few threads of its
// own while it runs.
//
//   preflight::Options options;
//   PreflightReport report = Run(plan, options, events);    // plan: as `lockstep run` would resolve it
//   fmt::print("{}", ReportText(report, UseColour(1)));
//   return report.exit_code();
#pragma once

#include <string>
#include <vector>

#include "launch/launcher_group.h"
#include "launch/plan.h"
#include "preflight/node_facts.h"

namespace lockstep::preflight {

// What a preflight was asked beside the launch.
struct Options {
  std::vector<std::string> data;
  std::string checkpoint_dir, code;
  std::vector<std::string> configs;
  Selection selection;
  bool full = false;  // longer lists and streams, all pairs
  Millis timeout{60000};
};

struct PreflightReport {
  int index = 0;                 // which of the nodes this one is
  std::vector<NodeFacts> nodes;  // by node
  std::vector<CheckResult> all;
  std::vector<launch::ClockReading> clocks;  // against node 0
  std::vector<Findings> findings;            // by node
  std::vector<PairRate> rates;
  bool sampled = false;
  double seconds = 0;
  Status rendezvous;  // not ok: the rendezvous failed; `nodes` holds this one alone

  State state() const;
  int exit_code() const;  // 0, 3 or 4
  Json ToJson() const;
  static PreflightReport FromJson(const Json& json);
};

PreflightReport Run(const launch::LaunchPlan& plan, const Options& options, const launch::LauncherGroupEvents& events);

// What the checks of one node look at, from what was read of it.
CheckInput MakeCheckInput(const launch::LaunchPlan& plan, const Options& options, hardware::Hardware here,
                          Python python);

}  // namespace lockstep::preflight
