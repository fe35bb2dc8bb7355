// All launchers of a job, connected before it starts: the rendezvous is the job's (same port, token, claims and
// refusals); then they exchange documents in rounds. Node 0 answers each round with one document for all. Blocking
// calls; every participant must call Round equally often. One thread.
//
//   auto group = LauncherGroup::Form(options, self, std::move(listener), events);
//   if (!group.ok()) return ...;                       // names who is missing or who refused whom
//   auto answer = (*group)->Round(mine, [&](const std::vector<Json>& all) { return Compare(all); }, Millis(5000));
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/loop.h"
#include "launch/admission.h"
#include "launch/participant.h"

namespace lockstep::launch {

struct LauncherGroupOptions {
  std::string host;  // where node 0 listens
  int port = 0;
  std::string token;
  std::vector<std::string> hosts;  // by participant, where the platform tells; for naming the missing
  Millis join_timeout{60000};
  Millis node_timeout{15000};
  Millis refused_patience = kRefusedPatience;
};

struct LauncherGroupEvents {
  std::function<void(const std::string&)> say;
  std::function<void(const std::string&)> status;  // a line that replaces the last; empty: none
};

// A peer's clock minus ours; the truth lies within `error` of it.
struct ClockReading {
  double offset = 0;
  double error = 0;
};

// From round trips (sent, peer's time, received): the shortest one says most.
struct ClockSample {
  double sent = 0, peer = 0, received = 0;
};
ClockReading EstimateClock(const std::vector<ClockSample>& samples);

class LauncherGroup {
 public:
  // Blocks until all are here. `listener` is node 0's, invalid for the others; it is closed when all have come.
  static Result<std::unique_ptr<LauncherGroup>> Form(LauncherGroupOptions options, Participant self, UniqueFd listener,
                                                     LauncherGroupEvents events);
  virtual ~LauncherGroup() = default;

  virtual int index() const = 0;
  virtual int count() const = 0;

  // Every participant sends a document; `at_zero` runs on node 0 with all of them, by participant, and its answer is
  // returned everywhere. `patience` is how long node 0 waits for the slowest participant.
  using AtZero = std::function<Json(const std::vector<Json>&)>;
  virtual Result<Json> Round(const Json& mine, const AtZero& at_zero, Millis patience) = 0;

  // Node 0 only, and inside at_zero, when the others listen.
  virtual std::vector<Participant> participants() const { return {}; }
  virtual std::vector<std::string> addresses() const {
    return {};
  }  // each participant's, as node 0 sees it; "" for its own
  virtual std::vector<ClockReading> ReadClocks(int samples, Millis patience) {
    (void)samples, (void)patience;
    return {};
  }
};

}  // namespace lockstep::launch
