// The coordinator's first half: who may join, who is missing, which ranks each member gets.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/sockets.h"
#include "base/text.h"
#include "launch/coordinator.h"
#include "launch/seat.h"

namespace lockstep::launch {
namespace {

// Where two command lines differ first, in words.
std::string CommandDifference(const std::vector<std::string>& ours, const std::vector<std::string>& theirs) {
  size_t i = 0;
  while (i < ours.size() && i < theirs.size() && ours[i] == theirs[i]) ++i;
  const auto word = [&](const std::vector<std::string>& words) {
    return i < words.size() ? "'" + words[i] + "'" : std::string("nothing");
  };
  return fmt::format("argument {} is {} there and {} here", i, word(theirs), word(ours));
}

// Who comes over loopback is another launcher on this very host, as people start them to try several nodes.
bool OnThisHost(const Connection* connection) {
  if (connection == nullptr) return true;
  const auto peer = ParseHostPort(connection->peer());
  return peer.ok() && IsLoopbackName(peer->host);
}

}  // namespace

Status Coordinator::Admit(const Member& member) const {
  std::vector<const Member*> seated;
  seated.reserve(seats_.size());
  for (const auto& [index, seat] : seats_) seated.push_back(&seat.member);
  LOCKSTEP_RETURN_IF_ERROR(launch::Admit(self_, seated, member));
  if (state_ != State::kGathering) {
    return Status(Code::kRendezvous,
                  fmt::format("the job of pid {} on {} is already running without pid {} on {}", self_.pid, self_.host,
                              member.pid, member.host),
                  "start all nodes together");
  }
  return {};
}

void Coordinator::OnRefused(const std::string& who, const Member* member, const Status& why) {
  events_.say(fmt::format("refused {}: {}", who, why.message()));
  events_.record("refused", {{"who", who}, {"why", why.message()}});
  if (member == nullptr || state_ != State::kGathering) return;
  std::vector<const Member*> seated;
  for (const auto& [index, seat] : seats_) seated.push_back(&seat.member);
  refusals_.Add(self_, seated, *member, why);
}

void Coordinator::TakeSeat(Member member, std::unique_ptr<Connection> connection) {
  if (member.index < 0) {
    member.index = 1;
    while (seats_.count(member.index) != 0) ++member.index;
  }
  const int index = member.index;
  refusals_.Forget(member.host);
  Seat seat;
  seat.member = std::move(member);
  // The stranger's callbacks become the member's: same connection, new owner.
  seat.connection = std::move(connection);
  seat.connection->set_events({[this, index](const Json& message) { OnMessage(index, message); },
                               [this, index](const std::string& why) { OnClosed(index, why); }});
  events_.record("node_joined", {{SeatWord(self_.level), index}, {"host", seat.member.host}, {"pid", seat.member.pid}});
  if (seat.member.command != self_.command) {
    events_.say(fmt::format("warning: {} was started with another command line: {}", seat.member.Who(),
                            CommandDifference(self_.command, seat.member.command)));
  }
  seats_[index] = std::move(seat);
  CheckGathered();
}

std::string Coordinator::MissingText() const {
  return MissingSeats(self_, [this](int index) { return seats_.count(index) != 0; }, options_.hosts);
}

void Coordinator::TellWaiting() {
  std::string missing = MissingText();
  if (const std::string refused = refusals_.Text(); !refused.empty()) missing += "; " + refused;
  const auto left = options_.join_timeout - std::chrono::duration_cast<Millis>(Now() - gather_start_);
  events_.status(fmt::format("{} of {} {}s joined, {:.0f} s left; missing: {}", seats_.size(), self_.count,
                             SeatWord(self_.level), std::max<double>(0, left.count() / 1000.0), missing));
  if (missing == last_missing_ && Now() - last_told_ < Millis(5000)) return;
  last_missing_ = missing;
  last_told_ = Now();
  for (auto& [index, seat] : seats_) {
    if (seat.connection) {
      Send(seat, ToJson(message::Waiting{static_cast<int>(seats_.size()), self_.count, missing}));
    }
  }
}

void Coordinator::CheckGathered() {
  if (state_ != State::kGathering || static_cast<int>(seats_.size()) < self_.count) return;
  const Status assigned = AssignSeats();
  if (!assigned.ok()) {
    return Finish(Outcome(End::kRendezvous, assigned.message(), assigned.hint()));
  }
  events_.status("");
  Go();
}

// Global ranks in the order of node ranks. On process level every member brings its rank; its place on its node comes
// from the platform or, failing that, from counting the members of each host.
Status Coordinator::AssignSeats() {
  if (self_.level == place::Level::kNode) {
    int base = 0;
    int here = 0;  // ranks on this host: of node 0 and of launchers that came over loopback
    for (auto& [index, seat] : seats_) {
      seat.node = index;
      seat.rank_base = base;
      seat.local_world = seat.host_ranks = seat.member.nproc;
      seat.host_base = 0;
      base += seat.member.nproc;
      if (!OnThisHost(seat.connection.get())) continue;
      seat.host_base = here;
      here += seat.member.nproc;
    }
    for (auto& [index, seat] : seats_) {
      if (OnThisHost(seat.connection.get())) seat.host_ranks = here;
    }
    world_ = base;
    nnodes_ = self_.count;
    for (auto& [index, seat] : seats_) {
      if (seat.member.world > 0 && seat.member.world != world_) {
        return Status(Code::kRendezvous,
                      fmt::format("the numbers of ranks do not add up: the nodes bring {}, {} expects {}",
                                  Count(world_, "rank"), seat.member.Who(), seat.member.world),
                      "give every node the same --nproc-per-node, or correct what `lockstep explain` shows there");
      }
    }
    return {};
  }
  world_ = self_.count;
  nnodes_ = 1;
  std::map<std::pair<std::string, std::string>, std::vector<int>> by_host;
  std::vector<std::pair<std::string, std::string>> order;
  for (auto& [index, seat] : seats_) {
    const auto key = std::make_pair(seat.member.boot_id, seat.member.host);
    if (by_host[key].empty()) order.push_back(key);
    by_host[key].push_back(index);
  }
  for (auto& [index, seat] : seats_) {
    const auto key = std::make_pair(seat.member.boot_id, seat.member.host);
    const auto& peers = by_host[key];
    const Member& m = seat.member;
    seat.rank_base = index;
    seat.local_world = m.local_world > 0 ? m.local_world : static_cast<int>(peers.size());
    seat.local_rank = m.local_rank >= 0
                          ? m.local_rank
                          : static_cast<int>(std::find(peers.begin(), peers.end(), index) - peers.begin());
    seat.node =
        m.node_rank >= 0 ? m.node_rank : static_cast<int>(std::find(order.begin(), order.end(), key) - order.begin());
    nnodes_ = std::max(nnodes_, seat.node + 1);
  }
  return {};
}

}  // namespace lockstep::launch
