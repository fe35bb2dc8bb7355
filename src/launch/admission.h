// The rules of the rendezvous: what a launcher claims, who may join, who is missing, and where node 0 listens. The same
// for a job and for its preflight. Main thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "launch/participant.h"
#include "launch/plan.h"

namespace lockstep::launch {

// What this launcher claims; index -1 where it was given none.
Participant DescribeParticipant(const LaunchPlan& plan);

// A launcher that was given no node rank (torchrun's c10d style) is node 0 if the endpoint is an address of this
// machine and nobody here holds the port yet; then `listener` holds it.
void ClaimNodeZeroByAddress(const LaunchPlan& plan, Participant* self, UniqueFd* listener);

// The port of the rendezvous, bound by this process. The error for a busy one names its owner.
Result<UniqueFd> ListenForLaunchers(const LaunchPlan& plan, bool loopback_only);

// Everything that makes two launchers parts of different jobs, or of none. `joined` are those who joined `self` so far,
// `self` among them.
Status Admit(const Participant& self, const std::vector<const Participant*>& joined, const Participant& participant);

// "node 3 (gpu-7)", "nodes 1, 3, 5 and 12 more". `hosts` by participant, where the platform tells.
std::string MissingParticipants(const Participant& self, const std::function<bool(int)>& joined,
                                const std::vector<std::string>& hosts);

// Launchers of this job that were turned away while it waits for participants. When as many were as are missing, nobody
// is left who could come: waiting for the deadline would only hide why. Strangers (another job, another token) never
// count: they must not be able to end a job.
class Refusals {
 public:
  void Add(const Participant& self, const std::vector<const Participant*>& joined, const Participant& participant,
           const Status& why);
  // A launcher of that machine was accepted after all: it was started again, and rightly now.
  void Forget(const std::string& host);
  void Clear() { refused_.clear(); }

  bool Hopeless(int missing, Millis patience) const;
  // "node 1 (pid 4711 on gpu-7) was refused: the sizes differ ..."; empty: nobody was.
  std::string Text() const;
  // How a job of `joined` participants ends that has none to wait for.
  Status End(const Participant& self, size_t joined, const std::string& missing) const;

 private:
  struct Refused {
    std::string host, who;
    int64_t pid = 0;
    Status why;
  };
  std::vector<Refused> refused_;
  TimePoint last_{};
};

// How long a refused launcher may take to be started again, correctly.
inline constexpr Millis kRefusedPatience{10000};

}  // namespace lockstep::launch
