#include "launch/launcher_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/sockets.h"
#include "launch/admission.h"
#include "launch/connection.h"
#include "launch/messages.h"
#include "launch/rendezvous_client.h"
#include "launch/rendezvous_server.h"

namespace lockstep::launch {
namespace {

constexpr Millis kTurn{50};
constexpr Millis kGrantMargin{5000};  // what a participant grants node 0 beyond the slowest participant

std::string AddressOf(const std::string& peer) {
  const auto parsed = ParseHostPort(peer);
  return parsed.ok() ? parsed->host : peer;
}

// ---- node 0 -------------------------------------------------------------------------------------------------------

class ServerGroup : public LauncherGroup {
 public:
  ServerGroup(LauncherGroupOptions options, Participant self, LauncherGroupEvents events)
      : options_(std::move(options)), self_(std::move(self)), events_(std::move(events)) {
    self_.index = 0;
    slots_[0].participant = self_;
  }
  ~ServerGroup() override {
    // The last words reach their readers: participants hang up when they have read them.
    const TimePoint until = Now() + kGoodbye;
    for (auto& [index, slot] : slots_) {
      if (slot.connection) slot.connection->CloseAfterFlush(kGoodbye);
    }
    const auto open = [&] {
      return std::any_of(slots_.begin(), slots_.end(),
                         [](const auto& entry) { return entry.second.connection && entry.second.connection->open(); });
    };
    while (open() && Now() < until) loop_.RunOnce(Millis(5));
  }

  int index() const override { return 0; }
  int count() const override { return self_.count; }

  Status Gather(UniqueFd listener) {
    RendezvousServer server(loop_, options_.token, self_.version,
                            {[this](const Participant& participant) { return AdmitOne(participant); },
                             [this](Participant participant, std::unique_ptr<Connection> connection) {
                               Slot(std::move(participant), std::move(connection));
                             },
                             [this](const std::string& who, const Participant* participant, const Status& why) {
                               events_.say(fmt::format("refused {}: {}", who, why.message()));
                               if (participant != nullptr) refusals_.Add(self_, Assigned(), *participant, why);
                             }});
    if (listener) server.Serve(std::move(listener));
    const TimePoint start = Now();
    TimePoint tick = start;
    while (static_cast<int>(slots_.size()) < self_.count) {
      loop_.RunOnce(kTurn);
      if (Now() - tick < kTick) continue;
      tick = Now();
      server.Expire();
      Ping();
      const auto waited = std::chrono::duration_cast<Millis>(tick - start);
      const std::string missing = Missing();
      if (refusals_.Hopeless(self_.count - static_cast<int>(slots_.size()), options_.refused_patience)) {
        return End(refusals_.End(self_, slots_.size(), missing));
      }
      if (waited >= options_.join_timeout) {
        const Status status(Code::kRendezvous,
                            fmt::format("{} of {} {}s joined within {:.0f} s; missing: {}", slots_.size(), self_.count,
                                        ParticipantWord(self_.level), options_.join_timeout.count() / 1000.0, missing),
                            "check that the command runs there, that it reaches this machine, and that both use the "
                            "same master address and port");
        return End(status);
      }
      if (waited < kPromptRendezvous) continue;
      events_.status(fmt::format("{} of {} {}s joined, {:.0f} s left; missing: {}", slots_.size(), self_.count,
                                 ParticipantWord(self_.level), (options_.join_timeout - waited).count() / 1000.0,
                                 missing));
      Broadcast(ToJson(message::Waiting{static_cast<int>(slots_.size()), self_.count, missing}));
    }
    events_.status("");
    for (auto& [index, slot] : slots_) {
      if (slot.connection) slot.connection->Send(ToJson(message::Assigned{index}));
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
      for (const auto& [index, slot] : slots_) {
        if (slot.connection && !slot.documents.count(round_)) slow.push_back(slot.participant.Who());
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
    for (auto& [index, slot] : slots_) {
      if (index == 0) {
        all.push_back(mine);
      } else {
        all.push_back(std::move(slot.documents[round_]));
      }
      slot.documents.erase(round_);
    }
    Json answer = at_zero(all);
    if (!lost_.ok()) return End(lost_);
    Broadcast(ToJson(message::Round{round_, answer}));
    return answer;
  }

  std::vector<Participant> participants() const override {
    std::vector<Participant> all;
    for (const auto& [index, slot] : slots_) all.push_back(slot.participant);
    return all;
  }

  std::vector<std::string> addresses() const override {
    std::vector<std::string> all;
    for (const auto& [index, slot] : slots_) all.push_back(slot.connection ? AddressOf(slot.connection->peer()) : "");
    return all;
  }

  std::vector<ClockReading> ReadClocks(int samples, Millis patience) override {
    const TimePoint deadline = Now() + patience;
    for (auto& [index, slot] : slots_) {
      slot.clock.clear();
      slot.clock_left = samples;
      if (slot.connection) AskClock(slot);
    }
    const auto busy = [&] {
      return std::any_of(slots_.begin(), slots_.end(),
                         [](const auto& entry) { return entry.second.connection && entry.second.clock_left > 0; });
    };
    while (busy() && lost_.ok() && Now() < deadline) loop_.RunOnce(Millis(5));
    std::vector<ClockReading> readings;
    for (const auto& [index, slot] : slots_) readings.push_back(EstimateClock(slot.clock));
    return readings;
  }

 private:
  struct OneSeat {
    Participant participant;
    std::unique_ptr<Connection> connection;  // null: node 0 itself
    std::map<int, Json> documents;           // by round; a quick participant may be one round ahead
    std::vector<ClockSample> clock;
    int clock_left = 0;
    double clock_sent = 0;
  };

  std::vector<const Participant*> Assigned() const {
    std::vector<const Participant*> joined;
    for (const auto& [index, slot] : slots_) joined.push_back(&slot.participant);
    return joined;
  }

  Status AdmitOne(const Participant& participant) const { return Admit(self_, Assigned(), participant); }

  void Slot(Participant participant, std::unique_ptr<Connection> connection) {
    if (participant.index < 0) {
      participant.index = 1;
      while (slots_.count(participant.index) != 0) ++participant.index;
    }
    const int index = participant.index;
    refusals_.Forget(participant.host);
    connection->set_events({[this, index](const Json& message) { OnMessage(index, message); },
                            [this, index](const std::string& why) { OnClosed(index, why); }});
    slots_[index] = OneSeat{std::move(participant), std::move(connection), {}, {}, 0, 0};
  }

  void OnMessage(int index, const Json& message) {
    OneSeat& slot = slots_[index];
    Receiver on(message, slot.participant.Who());
    on.Case<message::Document>([&](message::Document& document) {
      // At most one round ahead: a participant waits for the answer before it goes on.
      if (document.n >= round_ && document.n <= round_ + 1) slot.documents[document.n] = std::move(document.document);
    });
    on.Case<message::ClockAnswer>([&](const message::ClockAnswer& clock) {
      if (slot.clock_left <= 0) return;
      slot.clock.push_back({slot.clock_sent, clock.time, UnixSeconds()});
      if (--slot.clock_left > 0) AskClock(slot);
    });
    if (on.status().ok() || !slot.connection) return;
    slot.connection->Close();
    OnClosed(index, on.status().message());
  }

  void OnClosed(int index, const std::string& why) {
    loop_.Post([this, index, why] {
      auto it = slots_.find(index);
      if (it == slots_.end()) return;
      const std::string who = it->second.participant.Who();
      graveyard_.push_back(std::move(it->second.connection));
      slots_.erase(it);
      if (gathered_) {
        if (lost_.ok()) {
          lost_ = Status(Code::kRendezvous, fmt::format("{} left the rendezvous: {}", who, why),
                         "its own output says why; start it again on all nodes");
        }
      } else {
        events_.say(fmt::format("{} left before the start: {}", who, why));
      }
    });
  }

  void AskClock(OneSeat& slot) {
    slot.clock_sent = UnixSeconds();
    slot.connection->Send(ToJson(message::ClockQuestion{slot.clock_left}));
  }

  // Keeps something unacknowledged on every wire, so that a dead machine is noticed.
  void Ping() {
    for (auto& [index, slot] : slots_) {
      if (!slot.connection) continue;
      if (slot.connection->Silence() >= options_.node_timeout) {
        OnClosed(index, "its machine has acknowledged nothing");
        continue;
      }
      slot.connection->Ping();
    }
  }

  std::string Missing() const {
    return MissingParticipants(self_, [this](int i) { return slots_.count(i) != 0; }, options_.hosts);
  }

  void Broadcast(const Json& message) {
    for (auto& [index, slot] : slots_) {
      if (slot.connection) slot.connection->Send(message);
    }
  }

  Status End(const Status& status) {
    Broadcast(ToJson(message::Over{status.message(), status.hint(), static_cast<int>(status.code())}));
    events_.status("");
    return status;
  }

  Loop loop_;  // outlives what is watched on it
  LauncherGroupOptions options_;
  Participant self_;
  LauncherGroupEvents events_;
  std::map<int, OneSeat> slots_;
  Refusals refusals_;
  std::vector<std::unique_ptr<Connection>> graveyard_;
  bool gathered_ = false;
  Status lost_;
  int round_ = 0;
};

// ---- the others ---------------------------------------------------------------------------------------------------

class ClientGroup : public LauncherGroup {
 public:
  ClientGroup(const LauncherGroupOptions& options, const Participant& self, LauncherGroupEvents events)
      : count_(self.count), events_(std::move(events)) {
    RendezvousClientOptions client;
    client.host = options.host;
    client.port = options.port;
    client.token = options.token;
    client.join_timeout = options.join_timeout;
    client.node_timeout = options.node_timeout;
    // Once joined, the wait for the others is node 0's to limit.
    client_ = std::make_unique<RendezvousClient>(
        loop_, client, self,
        RendezvousClient::Events{
            [this](const Json& message) { OnMessage(message); }, [this](const Status& status) { ended_ = status; },
            [this](const std::string& why) {
              if (ended_.ok()) {
                ended_ = Status(Code::kRendezvous, fmt::format("node 0 left the rendezvous: {}", why),
                                "its own output says why; start it again on all nodes");
              }
            },
            [this](const std::string& text) { events_.say(text); },
            [this](const std::string& text) { events_.status(text); }});
  }
  ~ClientGroup() override { client_->Done(); }

  Status Gather() {
    client_->Start();
    while (index_ < 0 && ended_.ok()) loop_.RunOnce(kTurn);
    events_.status("");
    return ended_;
  }

  int index() const override { return index_; }
  int count() const override { return count_; }

  Result<Json> Round(const Json& mine, const AtZero&, Millis patience) override {
    ++round_;
    client_->Send(ToJson(message::Document{round_, mine}));
    const TimePoint deadline = Now() + 2 * patience + kGrantMargin;
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
    on.Case<message::Assigned>([&](const message::Assigned& joined) { index_ = joined.index; });
    on.Case<message::ClockQuestion>([&](const message::ClockQuestion& question) {
      client_->Send(ToJson(message::ClockAnswer{question.n, UnixSeconds()}));
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
  LauncherGroupEvents events_;
  std::unique_ptr<RendezvousClient> client_;
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

Result<std::unique_ptr<LauncherGroup>> LauncherGroup::Form(LauncherGroupOptions options, Participant self,
                                                           UniqueFd listener, LauncherGroupEvents events) {
  if (self.index == 0) {
    auto host = std::make_unique<ServerGroup>(std::move(options), std::move(self), std::move(events));
    LOCKSTEP_RETURN_IF_ERROR(host->Gather(std::move(listener)));
    return std::unique_ptr<LauncherGroup>(std::move(host));
  }
  auto client = std::make_unique<ClientGroup>(options, self, std::move(events));
  LOCKSTEP_RETURN_IF_ERROR(client->Gather());
  return std::unique_ptr<LauncherGroup>(std::move(client));
}

}  // namespace lockstep::launch
