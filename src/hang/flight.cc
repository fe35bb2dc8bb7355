#include "hang/flight.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "base/clock.h"
#include "base/digits.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/pickle.h"
#include "base/sockets.h"
#include "base/text.h"

namespace lockstep::hang {
namespace {

constexpr size_t kLargestDump = 64u << 20;
constexpr Millis kFreshDump{6000};  // PyTorch looks at its pipe every second or two and writes stacks of C++, too
constexpr Millis kRasAnswer{3000};
constexpr size_t kMostRas = 256u << 10;

const PickleValue* Find(const Pickle& pickle, const PickleValue& dict, std::string_view key) {
  if (dict.kind != PickleValue::Kind::kDict) return nullptr;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue& name = pickle.at(dict.items[i]);
    if ((name.kind == PickleValue::Kind::kText || name.kind == PickleValue::Kind::kBytes) && name.text == key) {
      return &pickle.at(dict.items[i + 1]);
    }
  }
  return nullptr;
}

int64_t Number(const Pickle& pickle, const PickleValue& dict, std::string_view key, int64_t otherwise) {
  const PickleValue* value = Find(pickle, dict, key);
  return value != nullptr && value->kind == PickleValue::Kind::kInt ? value->number : otherwise;
}

std::string Words(const Pickle& pickle, const PickleValue& dict, std::string_view key) {
  const PickleValue* value = Find(pickle, dict, key);
  return value != nullptr && value->kind == PickleValue::Kind::kText ? value->text : "";
}

// PyTorch reads a new and an old name of each setting.
std::string VariableOf(pid_t pid, std::string_view name, std::string_view old_name) {
  std::ifstream file(fmt::format("/proc/{}/environ", pid), std::ios::binary);
  std::string value;
  for (std::string entry; std::getline(file, entry, '\0');) {
    const auto is = [&](std::string_view key) {
      return entry.size() > key.size() && entry.starts_with(key) && entry[key.size()] == '=';
    };
    if (is(name)) return entry.substr(name.size() + 1);
    if (is(old_name)) value = entry.substr(old_name.size() + 1);
  }
  return value;
}

// Size and time of a file's last change; a dump that is being written changes.
std::optional<std::pair<int64_t, int64_t>> Stamp(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  return std::pair<int64_t, int64_t>(info.st_size, info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec);
}

// True when the process reads the pipe: then it writes a dump soon.
bool AskForDump(const FlightSource& source) {
  const std::string stem = VariableOf(source.pid, "TORCH_FR_DUMP_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
  if (stem.empty()) return false;
  const UniqueFd fd(open(fmt::format("{}{}.pipe", stem, source.rank).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  return fd && write(fd.get(), "1\n", 2) == 2;
}

}  // namespace

Result<std::string> LastCollective(std::string_view data, const std::string& source) {
  auto pickle = ParsePickle(data, source, [](std::string_view) { return false; });
  if (!pickle.ok()) return pickle.status();
  const PickleValue* entries = Find(*pickle, pickle->at(pickle->root), "entries");
  if (entries == nullptr || entries->kind != PickleValue::Kind::kList) {
    return Status(Code::kEnvironment, fmt::format("{}: no flight recorder dump (no 'entries')", source));
  }
  const PickleValue* last = nullptr;
  int64_t newest = -1;
  for (uint32_t index : entries->items) {
    const PickleValue& entry = pickle->at(index);
    const int64_t record = Number(*pickle, entry, "record_id", 0);
    if (entry.kind == PickleValue::Kind::kDict && record >= newest) {
      newest = record;
      last = &entry;
    }
  }
  if (last == nullptr) return std::string("no collective yet");
  std::string name = Words(*pickle, *last, "profiling_name");
  if (const size_t colon = name.rfind(':'); colon != std::string::npos) name = name.substr(colon + 1);
  const int64_t sequence =
      Number(*pickle, *last, "collective_seq_id", Number(*pickle, *last, "seq_id", Number(*pickle, *last, "op_id", 0)));
  return fmt::format("{} #{} ({})", Printable(name, 60), sequence, Printable(Words(*pickle, *last, "state"), 20));
}

std::map<int, std::string> LastCollectives(std::vector<FlightSource> sources) {
  std::map<int, std::string> found;
  for (FlightSource& source : sources) {
    const std::string stem = VariableOf(source.pid, "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
    if (!stem.empty()) source.path = fmt::format("{}{}", stem, source.rank);
  }
  std::vector<std::optional<std::pair<int64_t, int64_t>>> before;
  bool asked = false;
  for (const FlightSource& source : sources) {
    before.push_back(Stamp(source.path));
    asked = AskForDump(source) || asked;
  }
  const TimePoint until = Now() + (asked ? kFreshDump : Millis(0));
  for (size_t i = 0; i < sources.size(); ++i) {
    auto now = Stamp(sources[i].path);
    // Fresh, and the same twice: written to its end.
    while (Now() < until && (now == before[i] || !now)) {
      usleep(50000);
      now = Stamp(sources[i].path);
    }
    for (auto again = now; Now() < until; now = again) {
      usleep(50000);
      again = Stamp(sources[i].path);
      if (again == now) break;
    }
    if (!now) continue;
    auto data = ReadFile(sources[i].path, kLargestDump);
    if (!data.ok()) continue;
    auto last = LastCollective(*data, sources[i].path);
    if (last.ok()) found[sources[i].rank] = *last;
  }
  return found;
}

std::string AskRas(const std::string& address) {
  std::string host = "127.0.0.1";
  int port = 28028;
  const char* variable = std::getenv("NCCL_RAS_ADDR");
  const std::string where = !address.empty() ? address : variable != nullptr ? variable : "";
  if (const size_t colon = where.rfind(':'); colon != std::string::npos) {
    host = where.substr(0, colon);
    port = ParseDigits(std::string_view(where).substr(colon + 1)).value_or(port);
  }
  const TimePoint until = Now() + kRasAnswer;
  auto fd = Connect(host, port, std::min(until, Now() + Millis(300)));
  if (!fd.ok()) return "";
  static constexpr std::string_view kQuestion = "verbose status\n";
  if (send(fd->get(), kQuestion.data(), kQuestion.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(kQuestion.size())) {
    return "";
  }
  std::string text;
  while (text.size() < kMostRas) {
    const auto left = std::chrono::duration_cast<Millis>(until - Now()).count();
    pollfd poller{fd->get(), POLLIN, 0};
    if (left <= 0 || poll(&poller, 1, static_cast<int>(left)) <= 0) break;
    char buffer[16384];
    const ssize_t n = recv(fd->get(), buffer, sizeof buffer, 0);
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  // Anything may listen on a port; only what speaks of NCCL is worth keeping.
  return text.find("NCCL") != std::string::npos ? text : "";
}

}  // namespace lockstep::hang
