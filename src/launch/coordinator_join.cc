// The coordinator's first half: who may join, who is missing, which ranks each participant gets.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/sockets.h"
#include "base/text.h"
#include "launch/admission.h"
#include "launch/coordinator.h"

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

Status Coordinator::Admit(const Participant& participant) const {
  std::vector<const Participant*> joined;
  joined.reserve(slots_.size());
  for (const auto& [index, slot] : slots_) joined.push_back(&slot.participant);
  LOCKSTEP_RETURN_IF_ERROR(launch::Admit(self_, joined, participant));
  if (state_ != State::kRendezvous) {
    return Status(Code::kRendezvous,
                  fmt::format("the job of pid {} on {} is already running without pid {} on {}", self_.pid, self_.host,
                              participant.pid, participant.host),
                  "start all nodes together");
  }
  return {};
}

void Coordinator::OnRefused(const std::string& who, const Participant* participant, const Status& why) {
  events_.say(fmt::format("refused {}: {}", who, why.message()));
  events_.record("refused", {{"who", who}, {"why", why.message()}});
  if (participant == nullptr || state_ != State::kRendezvous) return;
  std::vector<const Participant*> joined;
  for (const auto& [index, slot] : slots_) joined.push_back(&slot.participant);
  refusals_.Add(self_, joined, *participant, why);
}

void Coordinator::AddParticipant(Participant participant, std::unique_ptr<Connection> connection) {
  if (participant.index < 0) {
    participant.index = 1;
    while (slots_.count(participant.index) != 0) ++participant.index;
  }
  const int index = participant.index;
  refusals_.Forget(participant.host);
  Slot slot;
  slot.participant = std::move(participant);
  // From here on the connection is the coordinator's, and so are its callbacks.
  slot.connection = std::move(connection);
  slot.connection->set_events({[this, index](const Json& message) { OnMessage(index, message); },
                               [this, index](const std::string& why) { OnClosed(index, why); }});
  events_.record(
      "node_joined",
      {{ParticipantWord(self_.level), index}, {"host", slot.participant.host}, {"pid", slot.participant.pid}});
  if (slot.participant.command != self_.command) {
    events_.say(fmt::format("warning: {} was started with another command line: {}", slot.participant.Who(),
                            CommandDifference(self_.command, slot.participant.command)));
  }
  slots_[index] = std::move(slot);
  CheckComplete();
}

std::string Coordinator::MissingText() const {
  return MissingParticipants(self_, [this](int index) { return slots_.count(index) != 0; }, options_.hosts);
}

void Coordinator::TellWaiting() {
  std::string missing = MissingText();
  if (const std::string refused = refusals_.Text(); !refused.empty()) missing += "; " + refused;
  const auto left = options_.join_timeout - std::chrono::duration_cast<Millis>(Now() - rendezvous_start_);
  events_.status(fmt::format("{} of {} {}s joined, {:.0f} s left; missing: {}", slots_.size(), self_.count,
                             ParticipantWord(self_.level), std::max<double>(0, left.count() / 1000.0), missing));
  if (missing == last_missing_ && Now() - last_told_ < Millis(5000)) return;
  last_missing_ = missing;
  last_told_ = Now();
  for (auto& [index, slot] : slots_) {
    if (slot.connection) {
      Send(slot, ToJson(message::Waiting{static_cast<int>(slots_.size()), self_.count, missing}));
    }
  }
}

void Coordinator::CheckComplete() {
  if (state_ != State::kRendezvous || static_cast<int>(slots_.size()) < self_.count) return;
  const Status assigned = AssignRanks();
  if (!assigned.ok()) {
    return Finish(RunOutcome(End::kRendezvous, assigned.message(), assigned.hint()));
  }
  events_.status("");
  Go();
}

// Global ranks in the order of node ranks. On process level every participant brings its rank; its place on its node
// comes from the platform or, failing that, from counting the participants of each host.
Status Coordinator::AssignRanks() {
  if (self_.level == place::Level::kNode) {
    int base = 0;
    int here = 0;  // ranks on this host: of node 0 and of launchers that came over loopback
    for (auto& [index, slot] : slots_) {
      slot.node = index;
      slot.rank_base = base;
      slot.local_world = slot.host_ranks = slot.participant.nproc;
      slot.host_base = 0;
      base += slot.participant.nproc;
      if (!OnThisHost(slot.connection.get())) continue;
      slot.host_base = here;
      here += slot.participant.nproc;
    }
    for (auto& [index, slot] : slots_) {
      if (OnThisHost(slot.connection.get())) slot.host_ranks = here;
    }
    world_ = base;
    nnodes_ = self_.count;
    for (auto& [index, slot] : slots_) {
      if (slot.participant.world > 0 && slot.participant.world != world_) {
        return Status(Code::kRendezvous,
                      fmt::format("the numbers of ranks do not add up: the nodes bring {}, {} expects {}",
                                  Count(world_, "rank"), slot.participant.Who(), slot.participant.world),
                      "give every node the same --nproc-per-node, or correct what `lockstep explain` shows there");
      }
    }
    return {};
  }
  world_ = self_.count;
  nnodes_ = 1;
  std::map<std::pair<std::string, std::string>, std::vector<int>> by_host;
  std::vector<std::pair<std::string, std::string>> order;
  for (auto& [index, slot] : slots_) {
    const auto key = std::make_pair(slot.participant.boot_id, slot.participant.host);
    if (by_host[key].empty()) order.push_back(key);
    by_host[key].push_back(index);
  }
  for (auto& [index, slot] : slots_) {
    const auto key = std::make_pair(slot.participant.boot_id, slot.participant.host);
    const auto& peers = by_host[key];
    const Participant& m = slot.participant;
    slot.rank_base = index;
    slot.local_world = m.local_world > 0 ? m.local_world : static_cast<int>(peers.size());
    slot.local_rank = m.local_rank >= 0
                          ? m.local_rank
                          : static_cast<int>(std::find(peers.begin(), peers.end(), index) - peers.begin());
    slot.node =
        m.node_rank >= 0 ? m.node_rank : static_cast<int>(std::find(order.begin(), order.end(), key) - order.begin());
    nnodes_ = std::max(nnodes_, slot.node + 1);
  }
  return {};
}

}  // namespace lockstep::launch
