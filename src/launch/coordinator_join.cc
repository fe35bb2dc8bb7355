// The coordinator's first half: who may join, who is missing, which ranks each member gets.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>

#include <algorithm>

#include "launch/auth.h"
#include "launch/coordinator.h"
#include "launch/seat.h"

namespace lockstep::launch {
namespace {

constexpr size_t kMaxPending = 8192;
constexpr Millis kGoodbye{2000};  // for a refusal to reach its reader

// Where two command lines differ first, in words.
std::string CommandDifference(const std::vector<std::string>& ours, const std::vector<std::string>& theirs) {
  size_t i = 0;
  while (i < ours.size() && i < theirs.size() && ours[i] == theirs[i]) ++i;
  const auto word = [&](const std::vector<std::string>& words) {
    return i < words.size() ? "'" + words[i] + "'" : std::string("nothing");
  };
  return fmt::format("argument {} is {} there and {} here", i, word(theirs), word(ours));
}

}  // namespace

void Coordinator::Accept() {
  for (int i = 0; i < 256; ++i) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;
    if (pending_.size() >= kMaxPending) pending_.erase(pending_.begin());  // the oldest stranger makes room
    const uint64_t id = next_pending_++;
    Pending pending;
    pending.nonce = MakeNonce();
    pending.connection = std::make_unique<Connection>(
        loop_, std::move(fd),
        Connection::Events{[this, id](const Json& message) { OnHello(id, message); },
                           [this, id](const std::string&) { loop_.Post([this, id] { pending_.erase(id); }); }});
    pending.connection->Send(
        {{"type", "challenge"}, {"protocol", kProtocol}, {"version", self_.version}, {"nonce", pending.nonce}});
    pending_.emplace(id, std::move(pending));
  }
}

void Coordinator::OnHello(uint64_t id, const Json& hello) {
  auto it = pending_.find(id);
  if (it == pending_.end()) return;
  const std::string peer = it->second.connection->peer();
  if (Text(hello, "type") != "hello") {
    loop_.Post([this, id] { pending_.erase(id); });
    return;
  }
  const std::string nonce = Text(hello, "nonce");
  const std::string claims = Text(hello, "claims");
  if (!SameProof(Text(hello, "proof"), Proof(options_.token, {"client", it->second.nonce, nonce, claims}))) {
    const bool peer_has = Flag(hello, "has_token");
    const std::string found = options_.token.empty() ? "the other side has a token and this job has none"
                              : peer_has             ? "the tokens differ"
                                                     : "this job has a token and the other side gave none";
    return Refuse(id, "a launcher at " + peer,
                  Status(Code::kRendezvous, "job token refused: " + found,
                         "give every node the same token (--token-file or LOCKSTEP_TOKEN)"));
  }
  const Json parsed = Json::parse(claims, nullptr, false);
  auto member = Member::FromJson(parsed);
  if (!member.ok()) return Refuse(id, "a launcher at " + peer, member.status());
  const Status admitted = Admit(*member);
  if (!admitted.ok()) return Refuse(id, member->Who() + " at " + peer, admitted);
  it->second.connection->Send(
      {{"type", "welcome"}, {"proof", Proof(options_.token, {"server", nonce, it->second.nonce})}});
  it->second.connection->set_limit(kFrameLimit);
  TakeSeat(id, std::move(*member));
}

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

void Coordinator::Refuse(uint64_t id, const std::string& who, const Status& why) {
  auto it = pending_.find(id);
  if (it == pending_.end()) return;
  events_.say(fmt::format("refused {}: {}", who, why.message()));
  events_.record("refused", {{"who", who}, {"why", why.message()}});
  it->second.connection->Send({{"type", "refuse"}, {"why", why.message()}, {"hint", why.hint()}});
  it->second.connection->CloseAfterFlush(kGoodbye);
}

void Coordinator::TakeSeat(uint64_t id, Member member) {
  if (member.index < 0) {
    member.index = 1;
    while (seats_.count(member.index) != 0) ++member.index;
  }
  const int index = member.index;
  auto node = pending_.extract(id);
  Seat seat;
  seat.member = std::move(member);
  // The stranger's callbacks become the member's: same connection, new owner.
  seat.connection = std::move(node.mapped().connection);
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
  const std::string missing = MissingText();
  const auto left = options_.join_timeout - std::chrono::duration_cast<Millis>(Now() - gather_start_);
  events_.status(fmt::format("{} of {} {}s joined, {:.0f} s left; missing: {}", seats_.size(), self_.count,
                             SeatWord(self_.level), std::max<double>(0, left.count() / 1000.0), missing));
  if (missing == last_missing_ && Now() - last_told_ < Millis(5000)) return;
  last_missing_ = missing;
  last_told_ = Now();
  for (auto& [index, seat] : seats_) {
    if (seat.connection) {
      Send(seat, {{"type", "waiting"}, {"joined", seats_.size()}, {"count", self_.count}, {"missing", missing}});
    }
  }
}

void Coordinator::CheckGathered() {
  if (state_ != State::kGathering || static_cast<int>(seats_.size()) < self_.count) return;
  const Status assigned = AssignSeats();
  if (!assigned.ok()) {
    Outcome outcome;
    outcome.end = End::kRendezvous;
    outcome.exit_code = 4;
    outcome.reason = assigned.message();
    outcome.hint = assigned.hint();
    return Finish(std::move(outcome));
  }
  events_.status("");
  Go();
}

int Coordinator::nnodes() const {
  int last = 0;
  for (const auto& [index, seat] : seats_) last = std::max(last, seat.node);
  return last + 1;
}

// Global ranks in the order of node ranks. On process level every member brings its rank; its place on its node comes
// from the platform or, failing that, from counting the members of each host.
Status Coordinator::AssignSeats() {
  if (self_.level == place::Level::kNode) {
    int base = 0;
    for (auto& [index, seat] : seats_) {
      seat.node = index;
      seat.rank_base = base;
      seat.local_world = seat.member.nproc;
      base += seat.member.nproc;
    }
    world_ = base;
    for (auto& [index, seat] : seats_) {
      if (seat.member.world > 0 && seat.member.world != world_) {
        return Status(Code::kRendezvous,
                      fmt::format("the numbers of ranks do not add up: the nodes bring {} ranks, {} expects {}", world_,
                                  seat.member.Who(), seat.member.world),
                      "give every node the same --nproc-per-node, or correct what `lockstep explain` shows there");
      }
    }
    return {};
  }
  world_ = self_.count;
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
  }
  return {};
}

}  // namespace lockstep::launch
