// The exit codes of the contract (docs/exit-codes.md): every number stands here and nowhere else.
#pragma once

namespace lockstep {

enum ExitNumber : int {
  kExitOk = 0,
  kExitFindings = 1,     // lint found something of the severity asked for
  kExitUsage = 2,        // flags, config, bad input
  kExitEnvironment = 3,  // the machine: files, permissions, programs, a failed check
  kExitRendezvous = 4,   // the launchers could not form the job
  kExitRankFailed = 5,
  kExitNodeLost = 6,
  kExitStalled = 7,
  kExitResume = 75,  // stopped with the state saved: "start me again"
};

// Of a process that was ended by a signal, or asked to end by one: 130 for SIGINT, 143 for SIGTERM.
constexpr int ExitOfSignal(int signal) { return 128 + signal; }

}  // namespace lockstep
