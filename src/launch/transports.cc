#include "launch/transports.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/digits.h"
#include "base/fd.h"

namespace lockstep::launch {
namespace {

constexpr int64_t kMostOfAFile = 8 << 20;  // what matters stands in the beginning
constexpr double kEnough = 60;             // seconds until some ranks are reported without the others
constexpr int kSettle = 2;                 // polls after the last one: connections are made with the first collective

// The rank of "nccl-rank-3.4711.log"; -1 for other names, whose lines tell.
int RankOf(const std::string& name) {
  constexpr std::string_view kStem = "nccl-rank-";
  if (!name.starts_with(kStem)) return -1;
  return LeadingDigits(std::string_view(name).substr(kStem.size())).value_or(-1);
}

}  // namespace

void TransportWatch::Read() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("nccl-") || !name.ends_with(".log")) continue;
    File& file = files_[name];
    file.rank = RankOf(name);
    if (file.read >= kMostOfAFile) continue;
    const UniqueFd fd(open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) continue;
    char buffer[1 << 16];
    for (ssize_t got = 0; file.read < kMostOfAFile && (got = pread(fd.get(), buffer, sizeof buffer, file.read)) > 0;) {
      file.read += got;
      file.tail.append(buffer, static_cast<size_t>(got));
      size_t start = 0;
      for (size_t end; (end = file.tail.find('\n', start)) != std::string::npos; start = end + 1) {
        file.reader.Line(std::string_view(file.tail).substr(start, end - start));
      }
      file.tail.erase(0, start);
    }
  }
}

std::map<int, diagnose::Transport> TransportWatch::Complete() const {
  std::map<int, diagnose::Transport> out;
  for (const auto& [name, file] : files_) {
    if (!file.reader.transport().complete) continue;
    // Launchers of one rank each share the folder of their node.
    if (file.rank >= 0 && std::find(ranks_.begin(), ranks_.end(), file.rank) == ranks_.end()) continue;
    diagnose::Transport transport = file.reader.transport();
    // A communicator of some ranks counts them anew; the file's name does not.
    if (file.rank >= 0) transport.rank = file.rank;
    transport.node = node_;
    auto [at, added] = out.emplace(transport.rank, transport);
    if (!added && at->second.nranks < transport.nranks) at->second = transport;
  }
  return out;
}

std::vector<diagnose::Transport> TransportWatch::Poll() {
  std::vector<diagnose::Transport> out;
  if (told_) return out;
  Read();
  const std::map<int, diagnose::Transport> complete = Complete();
  if (complete.empty()) return out;
  if (first_ == TimePoint{}) first_ = Now();
  const bool all = complete.size() >= ranks_.size();
  if (all && ++polls_since_all_ < kSettle) return out;
  if (!all && SecondsSince(first_) < kEnough) return out;
  told_ = true;
  for (const auto& [rank, transport] : complete) out.push_back(transport);
  return out;
}

std::vector<diagnose::Transport> TransportWatch::Rest() {
  std::vector<diagnose::Transport> out;
  if (std::exchange(told_, true)) return out;
  Read();
  for (const auto& [rank, transport] : Complete()) out.push_back(transport);
  return out;
}

void TransportCensus::Begin(int world, int nnodes) {
  *this = {};
  world_ = world;
  nnodes_ = nnodes;
}

std::optional<TransportCensus::Verdict> TransportCensus::Add(const message::Comm& comm) {
  if (comm.rdma_active) nodes_with_rdma_.insert(comm.node);
  for (const Json& item : comm.ranks) {
    diagnose::Transport transport = diagnose::TransportFromJson(item);
    transport.node = comm.node;
    if (transport.rank >= 0) by_rank_[transport.rank] = std::move(transport);
  }
  if (told_ || static_cast<int>(by_rank_.size()) < world_) return std::nullopt;
  return Rest();
}

std::optional<TransportCensus::Verdict> TransportCensus::Rest() {
  if (by_rank_.empty() || std::exchange(told_, true)) return std::nullopt;
  return Judge();
}

TransportCensus::Verdict TransportCensus::Judge() const {
  std::vector<diagnose::Transport> all;
  std::string version;
  for (const auto& [rank, transport] : by_rank_) {
    all.push_back(transport);
    if (version.empty()) version = transport.version;
  }
  Verdict out;
  out.event = {{"nccl", version}, {"transports", diagnose::TransportGroups(all)}, {"ranks_seen", all.size()}};
  // NCCL chooses a network also where it will send nothing over it.
  if (nnodes_ < 2) {
    for (Json& group : out.event["transports"]) group["network"] = nullptr;
  }
  out.warning = diagnose::TransportWarning(all, nnodes_, nodes_with_rdma_);
  if (!out.warning.empty()) out.event["warning"] = out.warning;
  return out;
}

message::Comm CommMessage(const std::vector<diagnose::Transport>& transports, int node, bool rdma_active) {
  message::Comm comm{node, rdma_active, {}};
  for (const diagnose::Transport& transport : transports) comm.ranks.push_back(diagnose::ToJson(transport));
  return comm;
}

}  // namespace lockstep::launch
