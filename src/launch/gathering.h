// A meeting of all launchers of a job without a job: everybody comes to node 0 through the job's own door (same port,
// token, claims and refusals), then they exchange documents in rounds. Node 0 answers each round with one document for
// all. Blocking calls; every member must call Round equally often. One thread.
//
//   auto gathering = Gathering::Meet(options, self, std::move(listener), events);
//   if (!gathering.ok()) return ...;                       // names who is missing or who refused whom
//   auto answer = (*gathering)->Round(mine, [&](const std::vector<Json>& all) { return Compare(all); }, Millis(5000));
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/loop.h"
#include "launch/member.h"
#include "launch/seat.h"

namespace lockstep::launch {

struct GatheringOptions {
  std::string host;  // where node 0 listens
  int port = 0;
  std::string token;
  std::vector<std::string> hosts;  // by seat, where the platform tells; for naming the missing
  Millis join_timeout{60000};
  Millis node_timeout{15000};
  Millis refused_patience = kRefusedPatience;
};

struct GatheringEvents {
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

class Gathering {
 public:
  // Blocks until all are here. `listener` is node 0's, invalid for the others; it is closed when all have come.
  static Result<std::unique_ptr<Gathering>> Meet(GatheringOptions options, Member self, UniqueFd listener,
                                                 GatheringEvents events);
  virtual ~Gathering() = default;

  virtual int index() const = 0;
  virtual int count() const = 0;

  // Everybody brings a document; `at_zero` runs on node 0 with all of them, by seat, and its answer is returned
  // everywhere. `patience` is how long node 0 waits for the slowest member.
  using AtZero = std::function<Json(const std::vector<Json>&)>;
  virtual Result<Json> Round(const Json& mine, const AtZero& at_zero, Millis patience) = 0;

  // Node 0 only, and inside at_zero, when the others listen.
  virtual std::vector<Member> members() const { return {}; }
  virtual std::vector<std::string> addresses() const { return {}; }  // each member's, as node 0 sees it; "" for its own
  virtual std::vector<ClockReading> ReadClocks(int samples, Millis patience) {
    (void)samples, (void)patience;
    return {};
  }
};

}  // namespace lockstep::launch
