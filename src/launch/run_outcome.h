// How an attempt and a job ended. Filled by the coordinator from what the agents tell; turned into report.json and
// words by report.h. Plain values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/fields.h"
#include "launch/wire.h"

namespace lockstep::launch {

// One rank's end, as its agent saw it at once.
struct RankEnd {
  int rank = -1;
  int local_rank = -1;
  int64_t pid = 0;
  int code = 0;
  int signal = 0;
  bool core_dumped = false;
  bool after_stop = false;  // ended after the job began to stop
  bool killed = false;      // did not end within the grace period, and was killed
  double uptime = 0;
  LOCKSTEP_FIELDS(visit("rank", self.rank), visit("local_rank", self.local_rank), visit("pid", self.pid),
                  visit("exit_code", self.code), visit("signal", self.signal), visit("core_dumped", self.core_dumped),
                  visit("uptime", self.uptime), visit("after_stop", self.after_stop), visit("killed", self.killed))
};

// What its node finds when all its ranks are gone.
struct RankFindings {
  double error_time = 0;        // time stamp inside its error file, 0: none
  std::string error_message;    // of TORCHELASTIC_ERROR_FILE
  std::string error_detail;     // its traceback
  std::string error_hint;       // what to do, where the program says it (our engine does)
  std::optional<int64_t> step;  // last one in its metric lines of this attempt
  bool refused = false;         // our engine: its configuration or this machine was refused before training began
  std::string evidence;         // kernel's or cgroup's word on an OOM kill
  std::string tail;             // last log lines
  std::string log;              // path on its node
  LOCKSTEP_FIELDS(visit("error_time", self.error_time), visit("error_message", self.error_message),
                  visit("error_detail", self.error_detail), visit("error_hint", self.error_hint),
                  visit("step", self.step), visit("refused", self.refused), visit("evidence", self.evidence),
                  visit("tail", self.tail), visit("log", self.log))
};

// Both, as the coordinator keeps them.
struct RankExit : RankEnd, RankFindings {
  int node = -1;
  std::string host;
  bool told = false;  // ended after it was itself told to stop
  double time = 0;    // when the coordinator heard of it, seconds since 1970

  bool success() const { return code == 0 && signal == 0; }
  // Of our engine: its configuration or the machine is at fault, and another attempt would end the same way.
  bool RefusedByEngine() const;
  std::string Describe() const;  // "exit code 1", "SIGKILL (signal 9)"
  LOCKSTEP_FIELDS(RankEnd::Each(self, visit), visit("node", self.node), visit("host", self.host),
                  RankFindings::Each(self, visit))
};

// "rank 3 on node 1 (gpu-1) failed first: exit code 1"; of a job of one rank it says no "first".
std::string FailureReason(const RankExit& exit, int world);

// How a job ends. One table has what follows from it: name in report.json, outcome of the run, exit code.
enum class End { kSucceeded, kFailed, kNodeLost, kStalled, kStopped, kSaved, kRendezvous, kEnvironment };

struct EndRow {
  End end;
  const char* name;     // "node_lost"
  const char* outcome;  // docs/formats/run-directory.md: succeeded, stopped, failed
  int exit_code;        // kStopped: 128 + the signal, instead
};
const EndRow& RowOf(End end);

struct RunOutcome {
  RunOutcome() = default;
  // With the exit code of such an end.
  explicit RunOutcome(End how, std::string why = "", std::string what_to_do = "")
      : end(how), exit_code(RowOf(how).exit_code), reason(std::move(why)), hint(std::move(what_to_do)) {}
  // A stop that was asked for.
  static RunOutcome StoppedBy(int signal, std::string why);

  End end = End::kSucceeded;
  int exit_code = 0;
  std::string reason;              // one sentence
  std::string hint;                // what to do
  std::vector<RankExit> failures;  // first failing rank first
  std::vector<int> killed;         // ranks that did not end within the grace period
  int attempts = 0;                // of this launch
  int attempt = 0;                 // number of the last one
  int restarts = 0;
  bool started = true;  // false: refused before any rank did its work, and nothing has to be kept
  Json stall;           // of an attempt that stalled: what was found (docs/hang.md); null: none
  Json diagnosis;       // of the last failed attempt, as diagnose::ToJson writes it; null: none
  std::string diagnosis_text;
  bool sure = false;  // of the diagnosis: it says what the last lines would
};

}  // namespace lockstep::launch
