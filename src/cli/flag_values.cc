#include "cli/flag_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <set>

#include "base/digits.h"
#include "base/process.h"
#include "base/text.h"
#include "base/units.h"

namespace lockstep::cli {
namespace {

Status Wrong(const std::string& expected, const std::string& found, std::string hint = "") {
  return Status(Code::kUsage, fmt::format("expected {}, found '{}'", expected, Printable(found)), std::move(hint));
}

// The number, or nothing when the text is no decimal number or does not fit.
std::optional<long> Number(std::string_view text) {
  text = Trim(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  return ParseInteger<long>(text);
}

}  // namespace

Result<long> ParseCount(const std::string& text, const std::string& what, long low, long high) {
  const std::optional<long> value = Number(text);
  if (!value || *value < low || *value > high) return Wrong(fmt::format("{} from {} to {}", what, low, high), text);
  return *value;
}

Result<int> ParseNodes(const std::string& text) {
  const std::string expected = fmt::format("a number of nodes from 1 to {}, or N:N", kMaxNodes);
  const std::vector<std::string> parts = Split(text, ':');
  if (parts.size() > 2) return Wrong(expected, text);
  std::vector<long> bounds;
  for (const std::string& part : parts) {
    const std::optional<long> value = Number(part);
    if (!value || *value < 1 || *value > kMaxNodes) return Wrong(expected, text);
    bounds.push_back(*value);
  }
  if (bounds.front() > bounds.back()) return Wrong("MIN:MAX with MIN not above MAX", text);
  if (bounds.front() < bounds.back()) {
    return Status(Code::kUsage,
                  fmt::format("a job whose number of nodes may change ({}) is not supported: all nodes start together",
                              Printable(text)),
                  fmt::format("use --nnodes {}", bounds.back()));
  }
  return static_cast<int>(bounds.front());
}

Result<std::string> ParseRanksPerNode(const std::string& text) {
  const std::string word(Trim(text));
  if (word == "auto" || word == "gpu" || word == "cpu") return word;
  if (word == "xpu") {
    return Status(Code::kUsage, "xpu is not supported: Lockstep counts NVIDIA GPUs and CPUs",
                  "give the number of devices instead of xpu");
  }
  const std::optional<long> value = Number(word);
  if (!value || *value < 1 || *value > kMaxRanksPerNode) {
    return Wrong(fmt::format("a number of ranks from 1 to {}, or auto, gpu or cpu", kMaxRanksPerNode), text);
  }
  return std::to_string(*value);
}

Result<double> ParsePositive(const std::string& text) {
  const std::string word(Trim(text));
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (word.empty() || *end != '\0' || !std::isfinite(value) || value <= 0) return Wrong("a number above 0", text);
  return value;
}

Result<bool> ParseSwitch(const std::string& text) {
  const std::optional<long> value = Number(text);
  if (!value) return Wrong("0 or 1", text);
  return *value != 0;
}

Result<launch::StreamSet> ParseStreams(const std::string& text) {
  const std::string expected = "0 (none), 1 (stdout), 2 (stderr) or 3 (both), or LOCAL_RANK:STREAMS pairs like 0:3,1:1";
  const auto streams = [](const std::string& part) -> std::optional<int> {
    if (part.size() != 1 || part[0] < '0' || part[0] > '3') return std::nullopt;
    return part[0] - '0';
  };
  launch::StreamSet set;
  if (const auto all = streams(text)) {
    set.all = *all;
    return set;
  }
  for (const std::string& pair : Split(text, ',')) {
    const std::vector<std::string> sides = Split(pair, ':');
    if (sides.size() != 2 || !IsDigits(sides[0])) return Wrong(expected, text);
    const std::optional<long> rank = Number(sides[0]);
    const std::optional<int> value = streams(sides[1]);
    if (!rank || *rank >= kMaxRanksPerNode || !value) return Wrong(expected, text);
    set.by_local_rank[static_cast<int>(*rank)] = *value;
  }
  return set;
}

Result<std::vector<int>> ParseRankList(const std::string& text, bool ranges) {
  const std::string expected = ranges ? "ranks like 0,3,8-11" : "local ranks like 0,1,2";
  std::set<int> ranks;
  for (const std::string& part : Split(text, ',')) {
    const size_t dash = ranges ? part.find('-') : std::string::npos;
    const std::optional<long> first = Number(part.substr(0, dash));
    const std::optional<long> last = dash == std::string::npos ? first : Number(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > kMaxRanks) return Wrong(expected, text);
    for (long rank = *first; rank <= *last; ++rank) ranks.insert(static_cast<int>(rank));
  }
  return std::vector<int>(ranks.begin(), ranks.end());
}

Result<launch::ConsoleRanks> ParseConsole(const std::string& text) {
  using Kind = launch::ConsoleRanks::Kind;
  if (text == "all") return launch::ConsoleRanks{Kind::kAll, {}};
  if (text == "none") return launch::ConsoleRanks{Kind::kNone, {}};
  const auto ranks = ParseRankList(text, true);
  if (!ranks.ok()) return Wrong("all, none, or ranks like 0,3,8-11", text);
  return launch::ConsoleRanks{Kind::kListed, *ranks};
}

Result<std::pair<int, int>> ParsePortRange(const std::string& text) {
  const size_t dash = text.find_first_of("-:");
  const std::optional<long> first = Number(text.substr(0, dash));
  const std::optional<long> last = dash == std::string::npos ? std::nullopt : Number(text.substr(dash + 1));
  if (!first || !last || *first < 1 || *last > 65535 || *first > *last) {
    return Wrong("FIRST-LAST with ports from 1 to 65535", text);
  }
  return std::pair<int, int>(static_cast<int>(*first), static_cast<int>(*last));
}

Result<std::pair<int, int>> ParseSteps(const std::string& text) {
  const size_t dots = text.find("..");
  const std::optional<long> first = Number(text.substr(0, dots));
  const std::optional<long> last = dots == std::string::npos ? first : Number(text.substr(dots + 2));
  if (!first || !last || *first < 1 || *last > 1'000'000'000 || *first > *last) {
    return Wrong("steps A..B from 1 on, such as 10..12", text);
  }
  if (*last - *first >= 1000) return Wrong("at most 1,000 steps (a trace has thousands of events for each)", text);
  return std::pair<int, int>(static_cast<int>(*first), static_cast<int>(*last));
}

Result<logs::LogRotation> ParseRotation(const std::string& text) {
  logs::LogRotation rotation;
  const size_t colon = text.rfind(':');
  const Result<uint64_t> bytes = ParseSize(text.substr(0, colon));
  if (!bytes.ok()) return bytes.status().Context("expected SIZE:KEEP like 100MiB:5").WithCode(Code::kUsage);
  // Below this a rank would spend its time renaming files.
  if (*bytes < 4096) return Wrong("a size of at least 4KiB in SIZE:KEEP", text);
  rotation.bytes = *bytes;
  if (colon != std::string::npos) {
    const std::optional<long> keep = Number(text.substr(colon + 1));
    if (!keep || *keep < 0 || *keep > 1000) return Wrong("SIZE:KEEP with KEEP from 0 to 1000 old files", text);
    rotation.keep = static_cast<int>(*keep);
  }
  return rotation;
}

Result<std::vector<int>> ParseSignals(const std::string& text) {
  std::vector<int> signals;
  for (const std::string& part : Split(text, ',')) {
    const std::string name(Trim(part));
    const int number = SignalNumber(name);
    if (number <= 0) return Wrong("signal names like SIGTERM,SIGUSR1", text);
    if (number == SIGKILL || number == SIGSTOP) {
      return Status(Code::kUsage, fmt::format("{} cannot be handled by any process", SignalName(number)),
                    "leave it out; `lockstep stop` ends a run");
    }
    if (std::find(signals.begin(), signals.end(), number) == signals.end()) signals.push_back(number);
  }
  return signals;
}

Result<std::pair<std::string, std::string>> ParseAssignment(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const bool named = !name.empty() && !(name[0] >= '0' && name[0] <= '9') &&
                     std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  if (equals == std::string::npos || !named) return Wrong("NAME=VALUE", text);
  return std::pair<std::string, std::string>(name, text.substr(equals + 1));
}

Result<std::map<std::string, std::string>> ParseRendezvousConf(const std::string& text) {
  std::map<std::string, std::string> conf;
  if (Trim(text).empty()) return conf;
  for (const std::string& part : Split(text, ',')) {
    const size_t equals = part.find('=');
    const std::string key(Trim(part.substr(0, equals)));
    const std::string value(equals == std::string::npos ? "" : Trim(part.substr(equals + 1)));
    if (key.empty() || value.empty()) return Wrong("KEY=VALUE,KEY=VALUE", text);
    conf[key] = value;
  }
  return conf;
}

Result<std::string> ParseEndpoint(const std::string& text) {
  const std::string expected = "HOST or HOST:PORT with a port from 0 to 65535 ([ADDRESS]:PORT for IPv6)";
  const std::string endpoint(Trim(text));
  std::string host = endpoint, port;
  bool has_port = false;
  if (endpoint.starts_with('[')) {
    const size_t close = endpoint.find(']');
    if (close == std::string::npos) return Wrong(expected, text);
    host = endpoint.substr(1, close - 1);
    if (close + 1 < endpoint.size()) {
      if (endpoint[close + 1] != ':') return Wrong(expected, text);
      has_port = true;
      port = endpoint.substr(close + 2);
    }
  } else if (std::count(endpoint.begin(), endpoint.end(), ':') == 1) {
    has_port = true;
    host = endpoint.substr(0, endpoint.find(':'));
    port = endpoint.substr(endpoint.find(':') + 1);
  } else if (std::count(endpoint.begin(), endpoint.end(), ':') > 1) {
    // torchrun would take the last group of a bare IPv6 address for a port.
    return Wrong(expected, text, "put an IPv6 address into brackets");
  }
  const bool host_ok = !host.empty() && std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == ':' || c == '-' || c == '_' || c == '%';
  });
  if (!host_ok) return Wrong(expected, text);
  if (has_port) {
    const std::optional<long> value = IsDigits(port) ? Number(port) : std::nullopt;
    if (!value || *value > 65535) return Wrong(expected, text);
  }
  return endpoint;
}

Result<std::string> ParseGpuList(const std::string& text) {
  std::vector<std::string> parts;
  for (const std::string& raw : Split(text, ',')) {
    const std::string part(Trim(raw));
    const bool uuid = part.starts_with("GPU-") || part.starts_with("MIG-");
    if (!uuid && (!IsDigits(part) || part.size() > 4))
      return Wrong("GPU numbers like 0,1 or UUIDs (GPU-..., MIG-...)", text);
    if (std::find(parts.begin(), parts.end(), part) != parts.end()) {
      return Wrong("each GPU once", text);
    }
    parts.push_back(part);
  }
  return Join(parts, ",");
}

}  // namespace lockstep::cli
