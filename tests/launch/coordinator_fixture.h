// A whole job in one thread: a real coordinator on a real loopback port, real clients, and agents that are a few lines
// each. Nothing is started; the protocol and the decisions are what is tested.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <deque>

#include "base/sockets.h"
#include "launch/coordinator.h"
#include "launch/messages.h"
#include "launch/rendezvous_client.h"

namespace lockstep::launch {

inline Participant Node(int index, int count, int nproc = 2) {
  Participant participant;
  participant.index = index;
  participant.count = count;
  participant.nproc = nproc;
  participant.host = "host-" + std::to_string(index);
  participant.boot_id = "boot";
  participant.version = "1.0";
  participant.job = "job";
  participant.pid = 1000 + index;
  participant.command = {"train.py"};
  return participant;
}

inline Participant Process(int rank, int world, const std::string& host) {
  Participant participant = Node(rank, world, 1);
  participant.level = place::Level::kProcess;
  participant.host = host;
  participant.world = world;
  return participant;
}

// A remote launcher: client plus scripted agent.
struct Remote {
  std::unique_ptr<RendezvousClient> client;
  std::deque<Json> got;
  Status failed;
  std::string lost;
  std::function<void(Remote&, const Json&)> on_message;

  const Json* Last(const std::string& type) const {
    for (auto it = got.rbegin(); it != got.rend(); ++it) {
      if (TypeOf(*it) == type) return &*it;
    }
    return nullptr;
  }
};

class CoordinatorTest : public ::testing::Test {
 protected:
  void Host(const Participant& self, CoordinatorOptions options = {}) {
    auto listener = Listen(0, /*loopback_only=*/true);
    ASSERT_TRUE(listener.ok());
    port_ = LocalPort(listener->get());
    options.master_addr = "127.0.0.1";
    options.run_name = "run";
    options.pick_port = [this]() -> Result<int> { return next_port_++; };
    options.backoff = Millis(1);
    token_ = options.token;
    coordinator_ = std::make_unique<Coordinator>(
        loop_, options, self,
        Coordinator::Events{[this](const std::string& text) { said_ += text + "\n"; },
                            [this](const std::string& text) { status_ = text; },
                            [this](const char* type, const Json&) { events_.emplace_back(type); },
                            [this](const RunOutcome& outcome) { outcome_ = outcome; }});
    coordinator_->Serve(std::move(*listener));
    coordinator_->Start([this](const Json& message) {
      local_.push_back(message);
      if (on_local_) on_local_(message);
    });
  }

  Remote& Join(Participant participant, std::function<void(Remote&, const Json&)> on_message = {}) {
    return JoinWith(std::move(participant), token_, std::move(on_message));
  }

  Remote& JoinWith(Participant participant, std::string token,
                   std::function<void(Remote&, const Json&)> on_message = {}) {
    remotes_.push_back(std::make_unique<Remote>());
    Remote& remote = *remotes_.back();
    remote.on_message = std::move(on_message);
    RendezvousClientOptions options;
    options.host = "127.0.0.1";
    options.port = port_;
    options.token = std::move(token);
    options.join_timeout = Millis(20000);
    remote.client = std::make_unique<RendezvousClient>(
        loop_, options, std::move(participant),
        RendezvousClient::Events{[&remote](const Json& message) {
                                   remote.got.push_back(message);
                                   if (TypeOf(message) == "finish") remote.client->Done();
                                   if (remote.on_message) remote.on_message(remote, message);
                                 },
                                 [&remote](const Status& status) { remote.failed = status; },
                                 [&remote](const std::string& why) { remote.lost = why; }, [](const std::string&) {},
                                 [](const std::string&) {}});
    remote.client->Start();
    return remote;
  }

  // Turns the loop until the condition holds; fails the test after a generous deadline.
  void Until(const std::function<bool()>& condition, const char* what) {
    const TimePoint deadline = Now() + Millis(30000);
    while (!condition()) {
      ASSERT_LT(Now(), deadline) << "waited in vain for " << what << "\nsaid:\n" << said_;
      loop_.RunOnce(Millis(50));
    }
  }
  void UntilFinished() {
    Until([&] { return outcome_.has_value(); }, "the end of the job");
  }

  static Json Exit(int rank, int code, int signal = 0, bool after_stop = false) {
    RankEnd end;
    end.rank = rank;
    end.code = code;
    end.signal = signal;
    end.after_stop = after_stop;
    return ToJson(message::Exit{end});
  }

  // An agent whose ranks all end as `code_of` says as soon as they start; a negative code waits for the stop.
  void LocalRanks(int first, int count, std::function<int(int rank, int attempt)> code_of) {
    on_local_ = [=, this](const Json& message) {
      Act(message, first, count, code_of, [this](const Json& m) { coordinator_->FromLocalAgent(m); });
    };
  }
  static std::function<void(Remote&, const Json&)> RemoteRanks(int first, int count,
                                                               std::function<int(int, int)> code_of) {
    return [=](Remote& remote, const Json& message) {
      Act(message, first, count, code_of, [&](const Json& m) { remote.client->Send(m); });
    };
  }
  static void Act(const Json& message, int first, int count, const std::function<int(int, int)>& code_of,
                  const std::function<void(const Json&)>& send) {
    struct Started {
      int attempt = 0;
      bool over = false;  // all of its ranks ended by themselves: it says that once, also when it is told to stop
    };
    static thread_local std::map<int, Started> started;
    Started& mine = started[first];
    if (TypeOf(message) == "go") {
      mine = {static_cast<int>(GetInt(message, "attempt")), true};
      std::vector<Json> exits;
      for (int rank = first; rank < first + count; ++rank) {
        const int code = code_of(rank, mine.attempt);
        if (code < 0) {
          mine.over = false;
        } else {
          exits.push_back(Exit(rank, code));
        }
      }
      if (mine.over) exits.push_back(ToJson(message::Stopped{}));
      for (const Json& exit : exits) send(exit);
    } else if (TypeOf(message) == "stop" && !mine.over) {
      for (int rank = first; rank < first + count; ++rank) {
        if (code_of(rank, mine.attempt) < 0) send(Exit(rank, 0, SIGTERM, true));
      }
      send(ToJson(message::Stopped{}));
    }
  }

  Loop loop_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<std::unique_ptr<Remote>> remotes_;
  std::function<void(const Json&)> on_local_;
  std::deque<Json> local_;
  std::string said_, status_, token_;
  std::vector<std::string> events_;
  std::optional<RunOutcome> outcome_;
  int port_ = 0;
  int next_port_ = 40000;
};

}  // namespace lockstep::launch
