#include "star.h"

#include <poll.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/sockets.h"

namespace lockstep::demo {
namespace {

Result<int> NumberFromEnv(const char* name) {
  const char* text = std::getenv(name);
  int value = 0;
  if (text == nullptr) {
    return Status(Code::kUsage, std::string(name) + " is not set",
                  "start me under a launcher: lockstep run --no-python lockstep-demo");
  }
  const char* end = text + std::strlen(text);
  if (auto [stop, error] = std::from_chars(text, end, value); error != std::errc() || stop != end || value < 0) {
    return Status(Code::kUsage, std::string(name) + ": expected a number, found '" + text + "'");
  }
  return value;
}

std::string RankText(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

Result<Star> Star::Connect(std::chrono::seconds patience) {
  auto rank = NumberFromEnv("RANK");
  auto world = NumberFromEnv("WORLD_SIZE");
  for (const auto& number : {rank, world}) {
    if (!number.ok()) return number.status();
  }
  if (*rank >= *world) {
    return Status(Code::kUsage, "RANK " + std::to_string(*rank) + " is not below WORLD_SIZE " + std::to_string(*world));
  }
  Star star;
  star.rank_ = *rank;
  star.world_ = *world;
  star.patience_ = patience;
  if (*world == 1) return star;
  auto port = NumberFromEnv("MASTER_PORT");
  if (!port.ok()) return port.status();
  const char* host = std::getenv("MASTER_ADDR");
  if (host == nullptr) return Status(Code::kUsage, "MASTER_ADDR is not set");
  LOCKSTEP_RETURN_IF_ERROR(*rank == 0 ? star.Gather(*port) : star.Join(host, *port));
  return star;
}

Status Star::Gather(int port) {
  auto listener = Listen(port);
  if (!listener.ok()) return listener.status();
  const TimePoint deadline = Now() + patience_;
  peers_.resize(static_cast<size_t>(world_));
  for (int missing = world_ - 1; missing > 0;) {
    pollfd ready{listener->get(), POLLIN, 0};
    const auto left = std::chrono::duration_cast<Millis>(deadline - Now()).count();
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) == 0) {
      return Status(Code::kRendezvous,
                    std::to_string(missing) + " of " + std::to_string(world_ - 1) + " ranks did not come");
    }
    UniqueFd peer(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
    int32_t rank = 0;
    if (!peer || !ReceiveAll(peer.get(), &rank, sizeof(rank), deadline).ok()) continue;
    if (rank < 1 || rank >= world_ || peers_[static_cast<size_t>(rank)]) {
      return Status(Code::kRendezvous, RankText(rank) + " came twice or does not belong to this job");
    }
    peers_[static_cast<size_t>(rank)] = std::move(peer);
    --missing;
  }
  return {};
}

Status Star::Join(const std::string& host, int port) {
  const TimePoint deadline = Now() + patience_;
  for (;;) {
    auto peer = lockstep::Connect(host, port, deadline);
    if (peer.ok()) {
      const int32_t rank = rank_;
      LOCKSTEP_RETURN_IF_ERROR(SendAll(peer->get(), &rank, sizeof(rank), deadline));
      peers_.push_back(std::move(*peer));
      return {};
    }
    if (Now() >= deadline) return peer.status().Context("rank 0 was not reached");
    poll(nullptr, 0, 20);  // rank 0 is not listening yet
  }
}

Status Star::Sum(std::vector<float>* values) {
  const size_t bytes = values->size() * sizeof(float);
  const TimePoint deadline = Now() + patience_;
  if (rank_ != 0) {
    LOCKSTEP_RETURN_IF_ERROR(SendAll(peers_[0].get(), values->data(), bytes, deadline).Context("to rank 0"));
    return ReceiveAll(peers_[0].get(), values->data(), bytes, deadline).Context("from rank 0");
  }
  std::vector<float> theirs(values->size());
  for (size_t rank = 1; rank < peers_.size(); ++rank) {
    LOCKSTEP_RETURN_IF_ERROR(ReceiveAll(peers_[rank].get(), theirs.data(), bytes, deadline)
                                 .Context("from " + RankText(static_cast<int>(rank))));
    for (size_t i = 0; i < theirs.size(); ++i) (*values)[i] += theirs[i];
  }
  for (size_t rank = 1; rank < peers_.size(); ++rank) {
    LOCKSTEP_RETURN_IF_ERROR(
        SendAll(peers_[rank].get(), values->data(), bytes, deadline).Context("to " + RankText(static_cast<int>(rank))));
  }
  return {};
}

}  // namespace lockstep::demo
