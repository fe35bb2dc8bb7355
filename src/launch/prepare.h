// From what was asked to what will happen: placement, token, program, store and settings of this node, and the one
// thing the command does next. run, explain, env and doctor preflight all prepare here, so that what is explained or
// checked is what would be run. Main thread (a shell may be asked what an environment sets); starts and prints nothing.
//
//   Result<Prepared> prepared = Prepare(flags.options, CurrentEnvironment(), Purpose::kRun);
//   if (!prepared.ok()) return Fail(prepared.status());
//   switch (prepared->action) { ... }
#pragma once

#include "base/status.h"
#include "launch/plan.h"
#include "place/machine.h"

namespace lockstep::launch {

enum class Purpose {
  kExplain,    // the placement alone; contradictions are in placement.error, beside the evidence
  kPreflight,  // to check the nodes: a program that cannot be resolved is in program_error, one of the findings
  kRun,
};

enum class Action {
  kDescribe,    // print the plan
  kExecNested,  // this process is a rank of another launcher: become the program, with the environment as it is
  kExecRank,    // --exec: become the program, with the environment of this rank
  kFanOut,      // started once for several nodes: start one launcher on each (fanout.h)
  kLaunch,      // form the job with the launchers of the other nodes
};

struct Prepared {
  LaunchPlan plan;
  Action action = Action::kDescribe;
};

Result<Prepared> Prepare(RunOptions asked, Environment env, Purpose purpose, const place::MachineOptions& machine = {});

// The last step of Prepare: a pure function of a plan whose placement is known.
Result<Action> ChooseAction(const LaunchPlan& plan, Purpose purpose);

}  // namespace lockstep::launch
