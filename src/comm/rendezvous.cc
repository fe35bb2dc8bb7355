#include "comm/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <thread>

#include "base/log.h"
#include "base/sockets.h"
#include "comm/agent_store.h"
#include "comm/frame.h"
#include "comm/shared_memory.h"

namespace lockstep::comm {
namespace {

using nlohmann::json;

constexpr Millis kRetry{20};
constexpr Millis kWelcomeTime{5000};
// A program that holds the master port and is not one of ours will not go away.
constexpr Millis kForeignTime{5000};

uint64_t RandomToken() {
  uint64_t token = 0;
  (void)!getrandom(&token, sizeof token, 0);
  return token;
}

class RankRendezvous {
 public:
  RankRendezvous(const Bootstrap& me, const Options& options)
      : me_(me), options_(options), deadline_(Now() + options.timeout), peers_(static_cast<size_t>(me.size)) {}

  Result<RendezvousResult> Run() {
    Status status = me_.rank == 0 ? AcceptRanks() : ConnectToRank0();
    if (status.ok()) status = AgreeOnNodes();
    if (status.ok()) status = LinkNodes();
    if (!status.ok()) {
      // What fails on rank 0 fails for all.
      for (UniqueFd& fd : result_.control) {
        if (fd.valid())
          (void)SendFrame(fd.get(), FrameType::kBroken, {{"text", status.message()}, {"hint", status.hint()}},
                          Now() + Millis(100));
      }
      return status.Context(fmt::format("communicator '{}', rank {}", options_.group, me_.rank));
    }
    return std::move(result_);
  }

 private:
  std::string Where() const { return fmt::format("{}:{}", me_.master_addr, me_.master_port); }
  bool OnLoopback() const { return IsLoopbackName(me_.master_addr) && me_.master_addr != "::1"; }
  std::string Key() const { return "lockstep/comm/" + options_.group; }

  // Opens what other ranks connect to. Only once rank 0 is known to listen: a free port taken before that might be the
  // very port that rank 0 is going to open.
  Status Prepare() {
    if (listener_.valid()) return {};
    auto listener = Listen(0, OnLoopback());
    if (!listener.ok()) return listener.status();
    listener_ = std::move(*listener);
    unix_name_ = RandomName();
    auto unix_listener = ListenUnix(unix_name_);
    if (!unix_listener.ok()) return unix_listener.status();
    unix_listener_ = std::move(*unix_listener);
    return {};
  }

  json Hello() const {
    return {{"rank", me_.rank},           {"size", me_.size},
            {"group", options_.group},    {"node", me_.node.empty() ? OwnNode() : me_.node},
            {"host", options_.advertise}, {"port", LocalPort(listener_.get())},
            {"unix", unix_name_},         {"token", token_}};
  }

  // --- rank 0 ---
  Result<UniqueFd> OpenListener() {
    if (me_.agent_store) {
      auto listening = Listen(0, OnLoopback());
      if (!listening.ok()) return listening.status();
      auto store = AgentStore::Connect(me_.master_addr, me_.master_port, deadline_);
      if (!store.ok()) return store.status();
      token_ = RandomToken();
      const json value = {{"host", store->OwnHost()}, {"port", LocalPort(listening->get())}, {"token", token_}};
      LOCKSTEP_RETURN_IF_ERROR(store->Set(Key(), value.dump(), deadline_));
      return listening;
    }
    TimePoint foreign_until = Now() + kForeignTime;
    while (true) {
      auto listening = Listen(me_.master_port, OnLoopback());
      if (listening.ok() || listening.status().code() != Code::kRendezvous) return listening;
      // Taken. By another group of this job: it becomes free. By another program: it does not.
      if (TakenByUs()) foreign_until = Now() + kForeignTime;
      if (Now() >= std::min(foreign_until, deadline_)) {
        return Status(Code::kRendezvous, fmt::format("rank 0 cannot listen on {}: the port is taken", Where()),
                      "choose another MASTER_PORT, or end the program that listens there");
      }
      std::this_thread::sleep_for(kRetry);
    }
  }

  bool TakenByUs() const {
    auto fd = Connect("127.0.0.1", me_.master_port, Now() + Millis(500));
    if (!fd.ok()) return false;
    json hello = Hello();
    hello["probe"] = true;
    if (!SendFrame(fd->get(), FrameType::kHello, hello, Now() + Millis(500)).ok()) return false;
    return ReceiveFrame(fd->get(), Now() + Millis(500)).ok();
  }

  Status AcceptRanks() {
    result_.control.resize(static_cast<size_t>(me_.size));
    auto listening = OpenListener();
    if (!listening.ok()) return listening.status();
    LOCKSTEP_RETURN_IF_ERROR(Prepare());
    Take(0, Hello(), "");
    int missing = me_.size - 1;
    while (missing > 0) {
      std::vector<pollfd> polls{{listening->get(), POLLIN, 0}};
      std::vector<size_t> ranks{0};
      for (size_t r = 1; r < result_.control.size(); ++r) {
        if (!result_.control[r].valid()) continue;
        polls.push_back({result_.control[r].get(), POLLRDHUP, 0});
        ranks.push_back(r);
      }
      if (poll(polls.data(), polls.size(), 100) < 0 && errno != EINTR) {
        return Status(Code::kInternal, "poll: " + ErrnoText(errno));
      }
      for (size_t k = 1; k < polls.size(); ++k) {
        if (polls[k].revents == 0) continue;
        // Came and went: it may come again (its connection broke), and if it does not, it will be missed.
        result_.control[ranks[k]].reset();
        ++missing;
      }
      if (Now() >= deadline_) {
        std::vector<int> absent;
        for (int r = 1; r < me_.size; ++r) {
          if (!result_.control[static_cast<size_t>(r)].valid()) absent.push_back(r);
        }
        return Status(Code::kRendezvous,
                      fmt::format("ranks {} of {} did not connect to {} within {} s", fmt::join(absent, ", "), me_.size,
                                  Where(), static_cast<double>(options_.timeout.count()) / 1000),
                      "see their logs; check that they reach this address");
      }
      if (polls[0].revents == 0) continue;
      UniqueFd fd(accept4(listening->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd) continue;
      auto welcomed = Welcome(std::move(fd));
      if (!welcomed.ok()) return welcomed.status();
      missing -= *welcomed;
    }
    return {};
  }

  // How many ranks more are there; an error when the job cannot be right.
  Result<int> Welcome(UniqueFd fd) {
    auto frame = ReceiveFrame(fd.get(), std::min(deadline_, Now() + kWelcomeTime));
    if (!frame.ok() || frame->type != FrameType::kHello) return 0;  // not a rank: a port scan
    const json& hello = frame->body;
    if (hello.value("probe", false) || hello.value("group", "") != options_.group ||
        hello.value("token", uint64_t{0}) != token_) {
      (void)SendFrame(fd.get(), FrameType::kComeAgain, json::object(), Now() + Millis(500));
      return 0;
    }
    const int rank = hello.value("rank", -1);
    const int size = hello.value("size", -1);
    Status wrong;
    if (size != me_.size) {
      wrong = Status(Code::kRendezvous, fmt::format("rank {} has WORLD_SIZE={}, rank 0 has {}", rank, size, me_.size),
                     "start all ranks with the same WORLD_SIZE");
    } else if (rank <= 0 || rank >= size || result_.control[static_cast<size_t>(rank)].valid()) {
      wrong = Status(Code::kRendezvous, fmt::format("two processes claim rank {}", rank),
                     "give every process its own RANK; is an older job still running?");
    }
    if (!wrong.ok()) {
      (void)SendFrame(fd.get(), FrameType::kBroken, {{"text", wrong.message()}, {"hint", wrong.hint()}},
                      Now() + Millis(500));
      return wrong;
    }
    const auto from = PeerAddress(fd.get());
    Take(rank, hello, from.has_value() && !from->IsLoopback() ? from->Host() : "");
    if (!SendFrame(fd.get(), FrameType::kWelcome, json::object(), deadline_).ok()) return 0;
    result_.control[static_cast<size_t>(rank)] = std::move(fd);
    return 1;
  }

  void Take(int rank, const json& hello, const std::string& seen_host) {
    const std::string advertised = hello.value("host", "");
    peers_[static_cast<size_t>(rank)] = {hello.value("node", ""), advertised.empty() ? seen_host : advertised,
                                         hello.value("port", 0), hello.value("unix", "")};
  }

  // --- the others ---
  Status ConnectToRank0() {
    Status last(Code::kTimeout, "no attempt");
    Millis pause = kRetry;
    while (Now() < deadline_) {
      const Status status = TryConnect();
      if (status.ok() || status.code() == Code::kRendezvous) return status;
      last = status;
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 3 / 2, Millis(250));
    }
    return Status(Code::kRendezvous,
                  fmt::format("no rank 0 at {} within {} s; last: {}", Where(),
                              static_cast<double>(options_.timeout.count()) / 1000, last.message()),
                  "is rank 0 running, and can this machine reach that address?");
  }

  // kRendezvous: final. Anything else: come again.
  Status TryConnect() {
    rank0_host_ = me_.master_addr;
    int port = me_.master_port;
    if (me_.agent_store) {
      auto store = AgentStore::Connect(me_.master_addr, me_.master_port, deadline_);
      if (!store.ok()) return store.status();
      auto value = store->Get(Key(), deadline_);
      if (!value.ok()) return value.status();
      const json found = json::parse(*value, nullptr, false);
      if (!found.is_object()) return Status(Code::kTimeout, "rank 0 has not announced its address yet");
      if (const std::string host = found.value("host", ""); !host.empty()) rank0_host_ = host;
      port = found.value("port", 0);
      token_ = found.value("token", uint64_t{0});
    }
    auto fd = Connect(rank0_host_, port, std::min(deadline_, Now() + kWelcomeTime));
    if (!fd.ok()) return fd.status().WithCode(Code::kTimeout);
    if (Status status = Prepare(); !status.ok()) return status.WithCode(Code::kRendezvous);
    LOCKSTEP_RETURN_IF_ERROR(SendFrame(fd->get(), FrameType::kHello, Hello(), deadline_));
    auto answer = ReceiveFrame(fd->get(), std::min(deadline_, Now() + kWelcomeTime));
    if (!answer.ok()) return answer.status().WithCode(Code::kTimeout);
    if (answer->type == FrameType::kBroken) return Broken(*answer);
    if (answer->type != FrameType::kWelcome) return Status(Code::kTimeout, "another group holds its rendezvous there");
    result_.control.resize(1);
    result_.control[0] = std::move(*fd);
    return {};
  }

  static Status Broken(const Frame& frame) {
    return Status(Code::kRendezvous, frame.body.value("text", "rank 0 gave up"), frame.body.value("hint", ""));
  }

  // The next frame from rank 0, of this type.
  Result<Frame> FromRank0(FrameType type) {
    auto frame = ReceiveFrame(result_.control[0].get(), deadline_);
    if (!frame.ok()) return frame.status().WithCode(Code::kRendezvous).Context("rank 0");
    if (frame->type == FrameType::kBroken) return Broken(*frame);
    if (frame->type != type) return Status(Code::kRendezvous, "rank 0 sent something unexpected");
    return frame;
  }

  // Every rank tells rank 0 whether it succeeded; rank 0 gets the ranks that failed.
  Result<std::vector<int>> Tell(bool went_well) {
    std::vector<int> failed;
    if (me_.rank != 0) {
      LOCKSTEP_RETURN_IF_ERROR(SendFrame(result_.control[0].get(), FrameType::kLinked, {{"ok", went_well}}, deadline_));
      return failed;
    }
    if (!went_well) failed.push_back(0);
    for (int r = 1; r < me_.size; ++r) {
      auto frame = ReceiveFrame(result_.control[static_cast<size_t>(r)].get(), deadline_);
      if (!frame.ok()) return frame.status().WithCode(Code::kRendezvous).Context(fmt::format("rendezvous, rank {}", r));
      if (frame->type == FrameType::kBroken) return Broken(*frame);
      if (!frame->body.value("ok", false)) failed.push_back(r);
    }
    return failed;
  }

  Status FromRank0ToAll(FrameType type, const json& body) {
    for (UniqueFd& fd : result_.control) {
      if (fd.valid()) LOCKSTEP_RETURN_IF_ERROR(SendFrame(fd.get(), type, body, deadline_));
    }
    return {};
  }

  // --- nodes ---
  Status AgreeOnNodes() {
    for (int round = 0; round <= me_.size; ++round) {
      LOCKSTEP_RETURN_IF_ERROR(me_.rank == 0 ? HandOutTable() : TakeTable());
      SortIntoNodes();
      auto failed = Tell(ReachFirstOfNode().ok());
      if (!failed.ok()) return failed.status();
      json verdict = {{"again", false}};
      if (me_.rank == 0) {
        verdict["again"] = !failed->empty();
        if (!failed->empty()) LOCKSTEP_RETURN_IF_ERROR(Split(*failed, round));
        LOCKSTEP_RETURN_IF_ERROR(FromRank0ToAll(FrameType::kGo, verdict));
      } else {
        auto go = FromRank0(FrameType::kGo);
        if (!go.ok()) return go.status();
        verdict = go->body;
      }
      if (!verdict.value("again", false)) return AcceptLocal();
    }
    return Status(Code::kInternal, "the ranks could not be sorted into nodes");
  }

  Status HandOutTable() {
    link_token_ = RandomToken();  // a new one per round: connections of an earlier round are told apart
    json table = json::array();
    for (const Peer& peer : peers_) table.push_back({peer.node, peer.host, peer.port, peer.unix_name});
    return FromRank0ToAll(FrameType::kTable, {{"token", link_token_}, {"peers", table}});
  }

  Status TakeTable() {
    auto frame = FromRank0(FrameType::kTable);
    if (!frame.ok()) return frame.status();
    try {
      link_token_ = frame->body.at("token");
      for (size_t r = 0; r < peers_.size(); ++r) {
        const json& row = frame->body.at("peers").at(r);
        peers_[r] = {row.at(0), row.at(1), row.at(2), row.at(3)};
      }
    } catch (const json::exception& error) {
      return Status(Code::kRendezvous, fmt::format("rank 0's table of ranks: {}", error.what()));
    }
    return {};
  }

  void SortIntoNodes() {
    std::map<std::string, int> number;
    result_.node_of.assign(peers_.size(), 0);
    result_.ranks_of.clear();
    for (size_t r = 0; r < peers_.size(); ++r) {
      const auto [found, fresh] = number.emplace(peers_[r].node, static_cast<int>(number.size()));
      if (fresh) result_.ranks_of.emplace_back();
      result_.node_of[r] = found->second;
      result_.ranks_of[static_cast<size_t>(found->second)].push_back(static_cast<int>(r));
    }
    const int node = result_.node_of[static_cast<size_t>(me_.rank)];
    const auto& mine = result_.ranks_of[static_cast<size_t>(node)];
    const int local_rank = static_cast<int>(std::find(mine.begin(), mine.end(), me_.rank) - mine.begin());
    result_.identity = {
        me_.rank, me_.size, local_rank, static_cast<int>(mine.size()), node, static_cast<int>(result_.ranks_of.size())};
  }

  const std::vector<int>& Mine() const { return result_.ranks_of[static_cast<size_t>(result_.identity.node)]; }

  Status ReachFirstOfNode() {
    result_.local.clear();
    if (result_.identity.local_rank == 0) return {};
    auto fd = ConnectUnix(peers_[static_cast<size_t>(Mine()[0])].unix_name, deadline_);
    if (!fd.ok()) return fd.status();
    if (!SameUser(fd->get())) return Status(Code::kEnvironment, "another user's");
    const uint64_t words[2] = {link_token_, static_cast<uint64_t>(result_.identity.local_rank)};
    LOCKSTEP_RETURN_IF_ERROR(SendAll(fd->get(), words, sizeof words, deadline_));
    result_.local.push_back(std::move(*fd));
    return {};
  }

  // Ranks that cannot reach the first of their node form a node among themselves, and try again.
  Status Split(const std::vector<int>& failed, int round) {
    const std::string text = fmt::format(
        "ranks {} claim to be on one node with rank {} but cannot share memory with it", fmt::join(failed, ", "),
        result_.ranks_of[static_cast<size_t>(result_.node_of[static_cast<size_t>(failed[0])])][0]);
    const std::string hint = "is LOCKSTEP_NODE the same in several containers or machines?";
    if (!options_.allow_tcp_fallback) return Status(Code::kEnvironment, text, hint);
    LogWarn("communicator '{}': {}: TCP is used between them ({})", options_.group, text, hint);
    for (int r : failed) peers_[static_cast<size_t>(r)].node += fmt::format(" split {}", round);
    return {};
  }

  Status AcceptLocal() {
    if (result_.identity.local_rank != 0) return {};
    result_.local.resize(Mine().size());
    for (size_t missing = Mine().size() - 1; missing > 0;) {
      auto fd = Accept(unix_listener_.get());
      if (!fd.ok()) return fd.status();
      uint64_t words[2] = {};
      if (!SameUser(fd->get()) || !ReceiveAll(fd->get(), words, sizeof words, Now() + kWelcomeTime).ok()) continue;
      if (words[0] != link_token_ || words[1] >= result_.local.size() || result_.local[words[1]].valid()) continue;
      result_.local[words[1]] = std::move(*fd);
      --missing;
    }
    return {};
  }

  // Accepts, and gives up when rank 0 (or, on rank 0, anybody) is gone.
  Result<UniqueFd> Accept(int listener) {
    while (true) {
      UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd) return fd;
      std::vector<pollfd> polls{{listener, POLLIN, 0}};
      for (UniqueFd& control : result_.control) {
        if (control.valid()) polls.push_back({control.get(), POLLRDHUP, 0});
      }
      if (poll(polls.data(), polls.size(), 100) < 0 && errno != EINTR)
        return Status(Code::kInternal, "poll: " + ErrnoText(errno));
      for (size_t k = 1; k < polls.size(); ++k) {
        if (polls[k].revents != 0) return Status(Code::kRendezvous, "a rank died during the rendezvous");
      }
      if (Now() >= deadline_) return Status(Code::kRendezvous, "ranks of the job did not connect before the deadline");
    }
  }

  Status LinkNodes() {
    Status status = Link();
    auto failed = Tell(status.ok());
    if (!failed.ok()) return failed.status();
    if (me_.rank == 0) {
      if (status.ok() && !failed->empty()) {
        status = Status(Code::kRendezvous,
                        fmt::format("ranks {} could not connect to the other nodes", fmt::join(*failed, ", ")),
                        "see their logs");
      }
      if (status.ok()) status = FromRank0ToAll(FrameType::kGo, json::object());
      return status;
    }
    LOCKSTEP_RETURN_IF_ERROR(status);
    return FromRank0(FrameType::kGo).status();
  }

  Status Link() {
    const RankIdentity& identity = result_.identity;
    result_.links.resize(static_cast<size_t>(identity.nodes));
    if (identity.local_rank != 0) return {};
    for (int node = 0; node < identity.node; ++node) {
      const int rank = result_.ranks_of[static_cast<size_t>(node)][0];
      const Peer& peer = peers_[static_cast<size_t>(rank)];
      const std::string host = !peer.host.empty() ? peer.host : me_.rank == 0 ? "127.0.0.1" : rank0_host_;
      auto fd = Connect(host, peer.port, deadline_);
      if (!fd.ok()) return fd.status().WithCode(Code::kRendezvous).Context(fmt::format("rank {}", rank));
      const uint64_t words[2] = {link_token_, static_cast<uint64_t>(identity.node)};
      LOCKSTEP_RETURN_IF_ERROR(SendAll(fd->get(), words, sizeof words, deadline_));
      result_.links[static_cast<size_t>(node)] = std::move(*fd);
    }
    for (int missing = identity.nodes - 1 - identity.node; missing > 0;) {
      auto fd = Accept(listener_.get());
      if (!fd.ok()) return fd.status();
      uint64_t words[2] = {};
      if (!ReceiveAll(fd->get(), words, sizeof words, Now() + kWelcomeTime).ok()) continue;
      if (words[0] != link_token_ || words[1] >= result_.links.size() || result_.links[words[1]].valid()) continue;
      const int one = 1;
      setsockopt(fd->get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      result_.links[words[1]] = std::move(*fd);
      --missing;
    }
    return {};
  }

  const Bootstrap& me_;
  const Options& options_;
  const TimePoint deadline_;
  std::vector<Peer> peers_;
  RendezvousResult result_;
  UniqueFd listener_;
  UniqueFd unix_listener_;
  std::string unix_name_;
  std::string rank0_host_;
  uint64_t token_ = 0;  // under an agent's store: which announcement a rank has followed
  uint64_t link_token_ = 0;
};

}  // namespace

Result<RendezvousResult> Rendezvous(const Bootstrap& bootstrap, const Options& options) {
  return RankRendezvous(bootstrap, options).Run();
}

}  // namespace lockstep::comm
