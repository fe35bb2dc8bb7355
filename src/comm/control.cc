#include "comm/control.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/sockets.h"

namespace lockstep::comm {
namespace {

// How long ranks may take to say where they stand, and how long a rank waits for rank 0's conclusion.
constexpr Millis kAnswerTime{700};
constexpr Millis kConclusionTime{2500};
constexpr Millis kSendTime{200};
constexpr Millis kLostTime{1000};

// A peer whose machine vanished closes nothing: the kernel finds out.
void KeepAlive(int fd) {
  const int on = 1, idle = 5, interval = 2, count = 5;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

nlohmann::json BodyOf(const Status& status) {
  return {{"code", static_cast<int>(status.code())}, {"text", status.message()}, {"hint", status.hint()}};
}

Status StatusOf(const nlohmann::json& body) {
  return Status(static_cast<Code>(body.value("code", static_cast<int>(Code::kRankFailed))),
                body.value("text", "a rank reported an error without words"), body.value("hint", ""));
}

}  // namespace

Control::Control(int rank, std::vector<UniqueFd> fds, Health* health)
    : rank_(rank),
      fds_(std::move(fds)),
      health_(health),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      readers_(fds_.size()),
      open_(fds_.size()),
      left_(fds_.size()) {
  for (size_t r = 0; r < fds_.size(); ++r) {
    open_[r] = fds_[r].valid();
    if (open_[r]) KeepAlive(fds_[r].get());
  }
  thread_ = std::thread([this] { Watch(); });
}

Control::~Control() {
  uint64_t after = 0;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    after = finished_ || current_.sequence == 0 ? current_.sequence : current_.sequence - 1;
  }
  {
    std::lock_guard lock(report_mutex_);
    SendAllBut(rank_, FrameType::kLeft, {{"rank", rank_}, {"after", after}});
  }
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

Status Control::Begin(const Descriptor& what) {
  std::unique_lock lock(mutex_);
  current_ = what;
  finished_ = false;
  if (left_rank_ < 0 || what.sequence <= left_after_) return {};
  const int rank = left_rank_;
  lock.unlock();
  Left(rank, left_after_);
  return health_->status();
}

void Control::End() {
  std::lock_guard lock(mutex_);
  finished_ = true;
}

Control::Standing Control::Mine() const {
  std::lock_guard lock(mutex_);
  return {current_.sequence, finished_, current_.kind == Kind::kNone ? "" : DescribeNumbered(current_)};
}

std::string Control::DuringWhat() const {
  const Standing mine = Mine();
  if (mine.text.empty()) return "before the first operation";
  return (mine.finished ? "after " : "during ") + mine.text;
}

void Control::Send(int to, FrameType type, const nlohmann::json& body) {
  const int fd = fds_[static_cast<size_t>(to)].get();
  if (fd < 0) return;
  std::lock_guard lock(send_mutex_);
  // A peer that cannot take it is dead or stuck; either is found out by other means.
  (void)SendFrame(fd, type, body, Now() + kSendTime);
}

void Control::SendAllBut(int except, FrameType type, const nlohmann::json& body) {
  for (size_t r = 0; r < fds_.size(); ++r) {
    if (static_cast<int>(r) != except) Send(static_cast<int>(r), type, body);
  }
}

void Control::Report(const Status& status) { Spread(status, rank_); }

// The others hear of it before this rank's own threads do: one of those may close the communicator at once.
void Control::Spread(const Status& status, int from) {
  std::lock_guard lock(report_mutex_);
  if (health_->broken()) return;
  if (rank_ == 0 || from == rank_) SendAllBut(from, FrameType::kBroken, BodyOf(status));
  health_->Break(status);
}

Status Control::Late(const Descriptor& what, Millis timeout) {
  const double seconds = static_cast<double>(timeout.count()) / 1000;
  if (rank_ == 0) {
    {
      std::lock_guard lock(mutex_);
      late_ = true;
      late_what_ = what;
      late_seconds_ = seconds;
    }
    eventfd_write(wake_.get(), 1);
  } else {
    Send(0, FrameType::kLate, {{"sequence", what.sequence}, {"what", DescribeNumbered(what)}, {"seconds", seconds}});
  }
  const Status verdict = health_->AwaitBroken(Now() + kConclusionTime);
  if (!verdict.ok()) return verdict;
  Report(Status(Code::kStalled,
                fmt::format("{} did not finish within {} s on rank {}, and rank 0 does not answer",
                            DescribeNumbered(what), seconds, rank_),
                "rank 0 is stopped or its node is unreachable; see its log"));
  return health_->status();
}

Status Control::Lost(const Status& fallback) {
  const Status verdict = health_->AwaitBroken(Now() + kLostTime);
  if (!verdict.ok()) return verdict;
  Report(fallback);
  return health_->status();
}

void Control::Watch() {
  while (true) {
    std::vector<pollfd> polls{{wake_.get(), POLLIN, 0}};
    std::vector<int> ranks{-1};
    for (size_t r = 0; r < fds_.size(); ++r) {
      if (!open_[r]) continue;
      polls.push_back({fds_[r].get(), POLLIN, 0});
      ranks.push_back(static_cast<int>(r));
    }
    int wait = -1;
    if (inquiry_.active) {
      wait = static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<Millis>(inquiry_.until - Now()).count()));
    }
    if (poll(polls.data(), polls.size(), wait) < 0 && errno != EINTR) return;
    for (size_t k = 1; k < polls.size(); ++k) {
      if (polls[k].revents != 0) Receive(ranks[k]);
    }
    bool late = false;
    {
      std::lock_guard lock(mutex_);
      if (stop_) return;
      std::swap(late, late_);
    }
    if (polls[0].revents != 0) {
      eventfd_t value = 0;
      eventfd_read(wake_.get(), &value);
    }
    if (late) Inquire(late_what_.sequence, DescribeNumbered(late_what_), late_seconds_);
    if (inquiry_.active && (Now() >= inquiry_.until || inquiry_.answers.size() + 1 == fds_.size())) Conclude();
  }
}

void Control::Receive(int from) {
  const auto r = static_cast<size_t>(from);
  char bytes[4096];
  const ssize_t got = recv(fds_[r].get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    open_[r] = false;
    if (!left_[r]) Died(from);
    return;
  }
  readers_[r].Append(bytes, static_cast<size_t>(got));
  while (true) {
    auto frame = readers_[r].Next();
    if (!frame.ok()) {
      open_[r] = false;
      return Report(frame.status().Context(fmt::format("control connection to rank {}", from)));
    }
    if (!frame->has_value()) return;
    Handle(from, **frame);
  }
}

void Control::Handle(int from, const Frame& frame) {
  switch (frame.type) {
    case FrameType::kBroken:
      return Spread(StatusOf(frame.body), from);
    case FrameType::kLeft: {
      const int rank = frame.body.value("rank", from);
      left_[static_cast<size_t>(from)] = left_[static_cast<size_t>(from)] || rank == from;
      Left(rank, frame.body.value("after", uint64_t{0}));
      if (rank_ == 0) SendAllBut(from, FrameType::kLeft, frame.body);
      return;
    }
    case FrameType::kLate:
      return Inquire(frame.body.value("sequence", uint64_t{0}), frame.body.value("what", ""),
                     frame.body.value("seconds", 0.0));
    case FrameType::kWhere: {
      const Standing mine = Mine();
      return Send(0, FrameType::kHere, {{"sequence", mine.sequence}, {"finished", mine.finished}, {"text", mine.text}});
    }
    case FrameType::kHere:
      inquiry_.answers[from] = {frame.body.value("sequence", uint64_t{0}), frame.body.value("finished", true),
                                frame.body.value("text", "")};
      return;
    default:
      return;  // of a later version
  }
}

void Control::Died(int rank) {
  // Rank 0 sees every death; its word reaches the others faster than any deadline.
  Report(Status(Code::kRankFailed, fmt::format("rank {} died {}", rank, DuringWhat()),
                fmt::format("see the log of rank {}: it exited or was killed without closing its communicator", rank)));
}

void Control::Left(int rank, uint64_t after) {
  std::string text;
  {
    std::lock_guard lock(mutex_);
    if (left_rank_ < 0) {
      left_rank_ = rank;
      left_after_ = after;
    }
    if (finished_ || current_.sequence <= after) return;
    text = fmt::format("rank {} closed its communicator after operation {}, this rank is in {}", rank, after,
                       DescribeNumbered(current_));
  }
  Report(Status(Code::kRankFailed, text, fmt::format("see the log of rank {}: it ended before the others", rank)));
}

void Control::Inquire(uint64_t sequence, const std::string& what, double seconds) {
  if (inquiry_.active || health_->broken()) return;
  inquiry_ = {true, sequence, what, seconds, Now() + kAnswerTime, {}};
  SendAllBut(rank_, FrameType::kWhere, nlohmann::json::object());
}

void Control::Conclude() {
  inquiry_.active = false;
  inquiry_.answers[rank_] = Mine();
  std::vector<std::string> missing;
  std::vector<std::string> silent;
  for (size_t r = 0; r < fds_.size(); ++r) {
    const auto found = inquiry_.answers.find(static_cast<int>(r));
    if (found == inquiry_.answers.end()) {
      silent.push_back(std::to_string(r));
    } else if (found->second.sequence < inquiry_.sequence) {
      const Standing& at = found->second;
      missing.push_back(fmt::format(
          "rank {} has not arrived, it {}", r,
          at.text.empty() ? "has not started any operation" : (at.finished ? "stands after " : "is in ") + at.text));
    }
  }
  if (!silent.empty()) {
    missing.push_back(fmt::format("rank{} {} {} not answer (stopped, or unreachable)", silent.size() > 1 ? "s" : "",
                                  fmt::join(silent, ", "), silent.size() > 1 ? "do" : "does"));
  }
  if (missing.empty()) missing.emplace_back("every rank is in it, so the transfer is slower than the deadline allows");
  Report(Status(
      Code::kStalled,
      fmt::format("{} did not finish within {} s: {}", inquiry_.what, inquiry_.seconds, fmt::join(missing, "; ")),
      "see the logs of the ranks named; a deadline that is too short can be raised"));
}

}  // namespace lockstep::comm
