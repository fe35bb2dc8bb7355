#include "launch/gathering.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/sockets.h"
#include "launch/link.h"
#include "launch/messages.h"
#include "launch/reception.h"
#include "launch/seat.h"

namespace lockstep::launch {
namespace {

constexpr Millis kTick{1000};
constexpr Millis kPatience{2000};  // a gang that meets within this time needs no words
constexpr Millis kTurn{50};
constexpr Millis kGoodbye{2000};
constexpr Millis kMargin{5000};  // what a member grants node 0 beyond the slowest member

std::string AddressOf(const std::string& peer) {
  const auto parsed = ParseHostPort(peer);
  return parsed.ok() ? parsed->host : peer;
}

// ---- node 0 -------------------------------------------------------------------------------------------------------

class HostGathering : public Gathering {
 public:
  HostGathering(GatheringOptions options, Member self, GatheringEvents events)
      : options_(std::move(options)), self_(std::move(self)), events_(std::move(events)) {
    self_.index = 0;
    seats_[0].member = self_;
  }
  ~HostGathering() override {
    // The last words reach their readers: members hang up when they have read them.
    const TimePoint until = Now() + kGoodbye;
    for (auto& [index, seat] : seats_) {
      if (seat.connection) seat.connection->CloseAfterFlush(kGoodbye);
    }
    const auto open = [&] {
      return std::any_of(seats_.begin(), seats_.end(),
                         [](const auto& entry) { return entry.second.connection && entry.second.connection->open(); });
    };
    while (open() && Now() < until) loop_.RunOnce(Millis(5));
  }

  int index() const override { return 0; }
  int count() const override { return self_.count; }

  Status Gather(UniqueFd listener) {
    Reception reception(loop_, options_.token, self_.version,
                        {[this](const Member& member) { return AdmitOne(member); },
                         [this](Member member, std::unique_ptr<Connection> connection) {
                           Seat(std::move(member), std::move(connection));
                         },
                         [this](const std::string& who, const Member* member, const Status& why) {
                           events_.say(fmt::format("refused {}: {}", who, why.message()));
                           if (member != nullptr) refusals_.Add(self_, Seated(), *member, why);
                         }});
    if (listener) reception.Serve(std::move(listener));
    const TimePoint start = Now();
    TimePoint tick = start;
    while (static_cast<int>(seats_.size()) < self_.count) {
      loop_.RunOnce(kTurn);
      if (Now() - tick < kTick) continue;
      tick = Now();
      reception.Expire();
      Ping();
      const auto waited = std::chrono::duration_cast<Millis>(tick - start);
      const std::string missing = Missing();
      if (refusals_.Hopeless(self_.count - static_cast<int>(seats_.size()), options_.refused_patience)) {
        return End(refusals_.End(self_, seats_.size(), missing));
      }
      if (waited >= options_.join_timeout) {
        const Status status(Code::kRendezvous,
                            fmt::format("{} of {} {}s joined within {:.0f} s; missing: {}", seats_.size(), self_.count,
                                        SeatWord(self_.level), options_.join_timeout.count() / 1000.0, missing),
                            "check that the command runs there, that it reaches this machine, and that both use the "
                            "same master address and port");
        return End(status);
      }
      if (waited < kPatience) continue;
      events_.status(fmt::format("{} of {} {}s joined, {:.0f} s left; missing: {}", seats_.size(), self_.count,
                                 SeatWord(self_.level), (options_.join_timeout - waited).count() / 1000.0, missing));
      Broadcast(ToJson(message::Waiting{static_cast<int>(seats_.size()), self_.count, missing}));
    }
    events_.status("");
    for (auto& [index, seat] : seats_) {
      if (seat.connection) seat.connection->Send(ToJson(message::Seated{index}));
    }
    gathered_ = true;
    return {};
  }

  Result<Json> Round(const Json& mine, const AtZero& at_zero, Millis patience) override {
    ++round_;
    const TimePoint deadline = Now() + patience;
    TimePoint tick = Now();
    const auto waiting = [&] {
      std::vector<std::string> slow;
      for (const auto& [index, seat] : seats_) {
        if (seat.connection && !seat.documents.count(round_)) slow.push_back(seat.member.Who());
      }
      return slow;
    };
    for (auto slow = waiting(); !slow.empty() && lost_.ok(); slow = waiting()) {
      if (Now() >= deadline) {
        const std::string more = slow.size() > 1 ? fmt::format(" and {} more", slow.size() - 1) : "";
        return End(Status(
            Code::kRendezvous,
            fmt::format("{}{} joined, but did not answer within {:.0f} s", slow[0], more, patience.count() / 1000.0),
            "look at that machine: is it overloaded, or does a file system hang?"));
      }
      loop_.RunOnce(kTurn);
      if (Now() - tick >= kTick) {
        tick = Now();
        Ping();
      }
    }
    if (!lost_.ok()) return End(lost_);
    std::vector<Json> all;
    for (auto& [index, seat] : seats_) {
      if (index == 0) {
        all.push_back(mine);
      } else {
        all.push_back(std::move(seat.documents[round_]));
      }
      seat.documents.erase(round_);
    }
    Json answer = at_zero(all);
    if (!lost_.ok()) return End(lost_);
    Broadcast(ToJson(message::Round{round_, answer}));
    return answer;
  }

  std::vector<Member> members() const override {
    std::vector<Member> all;
    for (const auto& [index, seat] : seats_) all.push_back(seat.member);
    return all;
  }

  std::vector<std::string> addresses() const override {
    std::vector<std::string> all;
    for (const auto& [index, seat] : seats_) all.push_back(seat.connection ? AddressOf(seat.connection->peer()) : "");
    return all;
  }

  std::vector<ClockReading> ReadClocks(int samples, Millis patience) override {
    const TimePoint deadline = Now() + patience;
    for (auto& [index, seat] : seats_) {
      seat.clock.clear();
      seat.clock_left = samples;
      if (seat.connection) AskClock(seat);
    }
    const auto busy = [&] {
      return std::any_of(seats_.begin(), seats_.end(),
                         [](const auto& entry) { return entry.second.connection && entry.second.clock_left > 0; });
    };
    while (busy() && lost_.ok() && Now() < deadline) loop_.RunOnce(Millis(5));
    std::vector<ClockReading> readings;
    for (const auto& [index, seat] : seats_) readings.push_back(EstimateClock(seat.clock));
    return readings;
  }

 private:
  struct OneSeat {
    Member member;
    std::unique_ptr<Connection> connection;  // null: node 0 itself
    std::map<int, Json> documents;           // by round; a quick member may be one round ahead
    std::vector<ClockSample> clock;
    int clock_left = 0;
    double clock_sent = 0;
  };

  std::vector<const Member*> Seated() const {
    std::vector<const Member*> seated;
    for (const auto& [index, seat] : seats_) seated.push_back(&seat.member);
    return seated;
  }

  Status AdmitOne(const Member& member) const { return Admit(self_, Seated(), member); }

  void Seat(Member member, std::unique_ptr<Connection> connection) {
    if (member.index < 0) {
      member.index = 1;
      while (seats_.count(member.index) != 0) ++member.index;
    }
    const int index = member.index;
    refusals_.Forget(member.host);
    connection->set_events({[this, index](const Json& message) { OnMessage(index, message); },
                            [this, index](const std::string& why) { OnClosed(index, why); }});
    seats_[index] = OneSeat{std::move(member), std::move(connection), {}, {}, 0, 0};
  }

  void OnMessage(int index, const Json& message) {
    OneSeat& seat = seats_[index];
    Receiver on(message, seat.member.Who());
    on.Case<message::Document>([&](message::Document& document) {
      // At most one round ahead: a member waits for the answer before it goes on.
      if (document.n >= round_ && document.n <= round_ + 1) seat.documents[document.n] = std::move(document.document);
    });
    on.Case<message::ClockAnswer>([&](const message::ClockAnswer& clock) {
      if (seat.clock_left <= 0) return;
      seat.clock.push_back({seat.clock_sent, clock.time, UnixSeconds()});
      if (--seat.clock_left > 0) AskClock(seat);
    });
    if (on.status().ok() || !seat.connection) return;
    seat.connection->Close();
    OnClosed(index, on.status().message());
  }

  void OnClosed(int index, const std::string& why) {
    loop_.Post([this, index, why] {
      auto it = seats_.find(index);
      if (it == seats_.end()) return;
      const std::string who = it->second.member.Who();
      graveyard_.push_back(std::move(it->second.connection));
      seats_.erase(it);
      if (gathered_) {
        if (lost_.ok()) {
          lost_ = Status(Code::kRendezvous, fmt::format("{} left the meeting: {}", who, why),
                         "its own output says why; start it again on all nodes");
        }
      } else {
        events_.say(fmt::format("{} left before the start: {}", who, why));
      }
    });
  }

  void AskClock(OneSeat& seat) {
    seat.clock_sent = UnixSeconds();
    seat.connection->Send(ToJson(message::ClockQuestion{seat.clock_left}));
  }

  // Keeps something unacknowledged on every wire, so that a dead machine is noticed.
  void Ping() {
    for (auto& [index, seat] : seats_) {
      if (!seat.connection) continue;
      if (seat.connection->Silence() >= options_.node_timeout) {
        OnClosed(index, "no sign of life from its machine");
        continue;
      }
      seat.connection->Ping();
    }
  }

  std::string Missing() const {
    return MissingSeats(self_, [this](int i) { return seats_.count(i) != 0; }, options_.hosts);
  }

  void Broadcast(const Json& message) {
    for (auto& [index, seat] : seats_) {
      if (seat.connection) seat.connection->Send(message);
    }
  }

  Status End(const Status& status) {
    Broadcast(ToJson(message::Over{status.message(), status.hint(), static_cast<int>(status.code())}));
    events_.status("");
    return status;
  }

  Loop loop_;  // outlives what is watched on it
  GatheringOptions options_;
  Member self_;
  GatheringEvents events_;
  std::map<int, OneSeat> seats_;
  Refusals refusals_;
  std::vector<std::unique_ptr<Connection>> graveyard_;
  bool gathered_ = false;
  Status lost_;
  int round_ = 0;
};

// ---- the others ---------------------------------------------------------------------------------------------------

class GuestGathering : public Gathering {
 public:
  GuestGathering(const GatheringOptions& options, const Member& self, GatheringEvents events)
      : count_(self.count), events_(std::move(events)) {
    LinkOptions link;
    link.host = options.host;
    link.port = options.port;
    link.token = options.token;
    link.join_timeout = options.join_timeout;
    link.node_timeout = options.node_timeout;
    // Once joined, the wait for the others is node 0's to limit.
    link_ = std::make_unique<Link>(
        loop_, link, self,
        Link::Events{[this](const Json& message) { OnMessage(message); },
                     [this](const Status& status) { ended_ = status; },
                     [this](const std::string& why) {
                       if (ended_.ok()) {
                         ended_ = Status(Code::kRendezvous, fmt::format("node 0 left the meeting: {}", why),
                                         "its own output says why; start it again on all nodes");
                       }
                     },
                     [this](const std::string& text) { events_.say(text); },
                     [this](const std::string& text) { events_.status(text); }});
  }
  ~GuestGathering() override { link_->Done(); }

  Status Gather() {
    link_->Start();
    while (index_ < 0 && ended_.ok()) loop_.RunOnce(kTurn);
    events_.status("");
    return ended_;
  }

  int index() const override { return index_; }
  int count() const override { return count_; }

  Result<Json> Round(const Json& mine, const AtZero&, Millis patience) override {
    ++round_;
    link_->Send(ToJson(message::Document{round_, mine}));
    const TimePoint deadline = Now() + 2 * patience + kMargin;
    while (ended_.ok() && answered_ < round_) {
      if (Now() >= deadline) {
        ended_ = Status(Code::kRendezvous, "node 0 did not answer in time", "look at the output of node 0");
      } else {
        loop_.RunOnce(kTurn);
      }
    }
    if (answered_ < round_) return ended_;
    return std::move(answer_);
  }

 private:
  void OnMessage(const Json& message) {
    Receiver on(message, "node 0");
    on.Case<message::Waiting>([&](const message::Waiting& waiting) { events_.status(waiting.Text()); });
    on.Case<message::Seated>([&](const message::Seated& seated) { index_ = seated.index; });
    on.Case<message::ClockQuestion>([&](const message::ClockQuestion& question) {
      link_->Send(ToJson(message::ClockAnswer{question.n, UnixSeconds()}));
    });
    on.Case<message::Round>([&](message::Round& round) {
      answered_ = round.n;
      answer_ = std::move(round.document);
    });
    on.Case<message::Over>(
        [&](const message::Over& over) { ended_ = Status(static_cast<Code>(over.code), over.why, over.hint); });
    if (!on.status().ok()) ended_ = on.status();
  }

  Loop loop_;
  int count_ = 1;
  GatheringEvents events_;
  std::unique_ptr<Link> link_;
  int index_ = -1;
  int round_ = 0;
  int answered_ = 0;
  Json answer_;
  Status ended_;
};

}  // namespace

ClockReading EstimateClock(const std::vector<ClockSample>& samples) {
  const auto best = std::min_element(samples.begin(), samples.end(), [](const ClockSample& a, const ClockSample& b) {
    return a.received - a.sent < b.received - b.sent;
  });
  if (best == samples.end()) return {};
  return {best->peer - (best->sent + best->received) / 2, (best->received - best->sent) / 2};
}

Result<std::unique_ptr<Gathering>> Gathering::Meet(GatheringOptions options, Member self, UniqueFd listener,
                                                   GatheringEvents events) {
  if (self.index == 0) {
    auto host = std::make_unique<HostGathering>(std::move(options), std::move(self), std::move(events));
    LOCKSTEP_RETURN_IF_ERROR(host->Gather(std::move(listener)));
    return std::unique_ptr<Gathering>(std::move(host));
  }
  auto guest = std::make_unique<GuestGathering>(options, self, std::move(events));
  LOCKSTEP_RETURN_IF_ERROR(guest->Gather());
  return std::unique_ptr<Gathering>(std::move(guest));
}

}  // namespace lockstep::launch
