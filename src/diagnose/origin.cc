#include "diagnose/origin.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "base/digits.h"
#include "diagnose/line_text.h"
#include "record/time_stamp.h"

namespace lockstep::diagnose {
namespace {

bool IsHost(char c) { return IsWord(c) || c == '-' || c == '.'; }

// A number at `at`, moved behind it.
std::optional<int> Number(std::string_view text, size_t& at) {
  std::string_view rest = text.substr(std::min(at, text.size()));
  const std::optional<int> value = TakeDigits(&rest);
  if (!value || *value > 9'999'999) return std::nullopt;
  at = text.size() - rest.size();
  return value;
}

std::optional<int> NumberAfter(std::string_view text, std::string_view word) {
  const size_t found = text.find(word);
  if (found == std::string_view::npos) return std::nullopt;
  size_t at = found + word.size();
  return Number(text, at);
}

size_t SkipSpace(std::string_view text, size_t at) { return at < text.size() && text[at] == ' ' ? at + 1 : at; }

Level LevelOfLetter(char c) {
  switch (c) {
    case 'E':
    case 'F':
    case 'C':
      return Level::kError;
    case 'W':
      return Level::kWarning;
    case 'I':
      return Level::kInfo;
    case 'D':
      return Level::kDebug;
    default:
      return Level::kNone;
  }
}

// Each takes one tag off the front of `text` and says how many bytes it was; 0: not this kind.

// [rank3]:  [default3]:  [Rank 3]  [trainer3]:
size_t RankTag(std::string_view text, Origin* origin) {
  if (text.size() < 4 || text[0] != '[') return 0;
  static constexpr std::string_view kWords[] = {"rank",  "default", "Rank ",  "rank ",
                                                "RANK ", "trainer", "worker", "Rank"};
  for (std::string_view word : kWords) {
    if (!text.substr(1).starts_with(word)) continue;
    size_t at = 1 + word.size();
    const std::optional<int> number = Number(text, at);
    if (!number || at >= text.size() || text[at] != ']') continue;
    ++at;
    if (at < text.size() && text[at] == ':') ++at;
    origin->rank = *number;
    return SkipSpace(text, at);
  }
  return 0;
}

// [1,3]<stderr>:
size_t MpiTag(std::string_view text, Origin* origin) {
  if (text.size() < 8 || text[0] != '[' || !IsDigit(text[1])) return 0;
  size_t at = 1;
  if (!Number(text, at) || at >= text.size() || text[at] != ',') return 0;
  ++at;
  const std::optional<int> rank = Number(text, at);
  if (!rank || at >= text.size() || text[at] != ']') return 0;
  ++at;
  if (!text.substr(at).starts_with("<std")) return 0;
  const size_t close = text.find(">:", at);
  if (close == std::string_view::npos || close > at + 10) return 0;
  origin->rank = *rank;
  return close + 2;
}

// "Fri Sep 25 16:52:51 2026[3]<stderr>:" of horovodrun
size_t HorovodTag(std::string_view text, Origin* origin) {
  const size_t close = text.substr(0, 40).find("]<std");
  const size_t open = close == std::string_view::npos ? close : text.rfind('[', close);
  if (open == std::string_view::npos || open < 20) return 0;
  size_t at = open + 1;
  const std::optional<int> rank = Number(text, at);
  const size_t end = text.find(">:", close);
  if (!rank || at != close || end == std::string_view::npos || end > close + 12) return 0;
  origin->rank = *rank;
  return end + 2;
}

// [gpu-7:4711]
size_t HostPidTag(std::string_view text, Origin* origin) {
  if (text.size() < 5 || text[0] != '[') return 0;
  size_t at = 1;
  while (at < text.size() && IsHost(text[at])) ++at;
  if (at < 3 || at >= text.size() || text[at] != ':' || IsDigit(text[1])) return 0;
  const std::string_view host = text.substr(1, at - 1);
  ++at;
  const size_t digits = at;
  if (!Number(text, at) || at - digits < 2 || at >= text.size() || text[at] != ']') return 0;
  if (host.ends_with(".py") || host.ends_with(".cpp") || host.ends_with(".cc")) return 0;
  origin->node = host;
  return SkipSpace(text, at + 1);
}

// 0:3| of our own console
size_t OurTag(std::string_view text, Origin* origin) {
  if (text.empty() || !IsDigit(text[0])) return 0;
  size_t at = 0;
  if (!Number(text, at) || at >= text.size() || text[at] != ':') return 0;
  ++at;
  const std::optional<int> rank = Number(text, at);
  if (!rank || at >= text.size() || text[at] != '|') return 0;
  origin->rank = *rank;
  return SkipSpace(text, at + 1);
}

// [pod/job-worker-1/pytorch]
size_t PodTag(std::string_view text, Origin* origin) {
  if (!text.starts_with("[pod/")) return 0;
  const size_t close = text.find(']');
  if (close > 200) return 0;
  std::string_view name = text.substr(5, close - 5);
  name = name.substr(0, name.find('/'));
  origin->node = name;
  return SkipSpace(text, close + 1);
}

// (train pid=4711, ip=10.0.0.7)  (RayTrainWorker pid=4711)
size_t RayTag(std::string_view text, Origin* origin) {
  if (text.empty() || text[0] != '(') return 0;
  const size_t close = text.find(')');
  if (close > 120 || text.substr(0, close).find(" pid=") == std::string_view::npos) {
    return 0;
  }
  const size_t ip = text.substr(0, close).find("ip=");
  if (ip != std::string_view::npos) origin->node = text.substr(ip + 3, std::min(close, text.find(',', ip)) - ip - 3);
  return SkipSpace(text, close + 1);
}

// 2026-01-01T10:00:00Z, [2026-01-01 10:00:00,123], W1115 10:00:00.1 4711 api.py:882], [E626 05:06:30.9 x.cpp:632]
size_t StampTag(std::string_view text, Origin* origin, int year) {
  const size_t open = !text.empty() && text[0] == '[' ? 1 : 0;
  const std::optional<record::TimeStamp> stamp = record::ParseTimeStamp(text.substr(open), year);
  if (!stamp) return 0;
  size_t at = open + stamp->length;
  const char letter = text[open];
  const bool glog = letter >= 'A' && letter <= 'Z' && IsDigit(text[open + 1]);
  if (origin->time == 0) origin->time = stamp->time;
  if (glog) {
    // The thread, file and line belong to it.
    origin->level = LevelOfLetter(letter);
    const size_t close = text.find(']', at);
    if (close != std::string_view::npos && close < at + 160) return SkipSpace(text, close + 1);
  }
  if (open == 1) {
    if (at < text.size() && text[at] == ']') return SkipSpace(text, at + 1);
    const size_t close = text.find(']', at);
    return close != std::string_view::npos && close < at + 60 ? SkipSpace(text, close + 1) : 0;
  }
  if (at < text.size() && text[at] != ' ' && text[at] != '\t' && text[at] != ':' && text[at] != ']') return 0;
  if (letter >= 'A' && letter <= 'Z' && !glog) {
    // syslog: "Jan 15 10:00:00 host kernel: [123.456] text"
    const size_t host = SkipSpace(text, at);
    size_t end = host;
    while (end < text.size() && IsHost(text[end])) ++end;
    const size_t tag = text.find(": ", end);
    if (end > host && end < text.size() && text[end] == ' ' && tag != std::string_view::npos && tag < end + 48) {
      origin->node = text.substr(host, end - host);
      return tag + 2;
    }
  }
  if (text.substr(at).starts_with(": ")) ++at;
  at = SkipSpace(text, at);
  // "2026-01-01 10:00:00.123456: E external/xla/x.cc:954] text" of TensorFlow and XLA
  if (at + 2 < text.size() && text[at + 1] == ' ' && text.substr(at, 160).find(".cc:") != std::string_view::npos) {
    origin->level = LevelOfLetter(text[at]);
  }
  return at;
}

// "- name - INFO - [rank3]: " of a program that logs what its ranks print: the level is not the rank's.
size_t WrapperTag(std::string_view text) {
  if (!text.starts_with("- ")) return 0;
  const size_t tag = text.find(" - [rank");
  if (tag == std::string_view::npos || tag > 60) return 0;
  return tag + 3;
}

// [E ProcessGroupNCCL.cpp:458] of older c10
size_t OldC10Tag(std::string_view text, Origin* origin) {
  if (text.size() < 8 || text[0] != '[' || text[2] != ' ' || LevelOfLetter(text[1]) == Level::kNone) return 0;
  const size_t close = text.find(']');
  if (close > 80 || text.substr(0, close).find(".c") == std::string_view::npos || !IsDigit(text[close - 1])) {
    return 0;
  }
  origin->level = LevelOfLetter(text[1]);
  return SkipSpace(text, close + 1);
}

// ERROR 11-15 10:00:00 engine.py:366] and ERROR 11-15 10:00:00 [core.py:489] of vLLM and its relatives
size_t LevelStampTag(std::string_view text, Origin* origin, int year) {
  size_t word = 0;
  while (word < text.size() && text[word] >= 'A' && text[word] <= 'Z') ++word;
  if (word < 4 || word > 8 || word + 1 >= text.size() || text[word] != ' ') return 0;
  const std::optional<record::TimeStamp> stamp = record::ParseTimeStamp(text.substr(word + 1), year);
  if (!stamp) return 0;
  const size_t at = word + 1 + stamp->length;
  const size_t close = text.find(']', at);
  if (close == std::string_view::npos || close > at + 80) return 0;
  if (origin->time == 0) origin->time = stamp->time;
  const std::string_view name = text.substr(0, word);
  origin->level = name == "ERROR" || name == "CRITICAL" ? Level::kError
                  : name == "WARNING"                   ? Level::kWarning
                  : name == "DEBUG"                     ? Level::kDebug
                                                        : Level::kInfo;
  return SkipSpace(text, close + 1);
}

// [ERROR] after a stamp, before every line
size_t LevelTag(std::string_view text, Origin* origin) {
  struct Word {
    std::string_view text;
    Level level;
  };
  static constexpr Word kTags[] = {
      {"[ERROR] ", Level::kError},  {"[INFO] ", Level::kInfo},   {"[WARNING] ", Level::kWarning},
      {"[WARN] ", Level::kWarning}, {"[DEBUG] ", Level::kDebug}, {"[CRITICAL] ", Level::kError},
      {"[FATAL] ", Level::kError},  {"[error] ", Level::kError}, {"[info] ", Level::kInfo},
      {"[stderr] ", Level::kNone},  {"[stdout] ", Level::kNone}};
  if (text.empty() || text[0] != '[') return 0;
  for (const Word& tag : kTags) {
    if (!text.starts_with(tag.text)) continue;
    if (tag.level != Level::kNone) origin->level = tag.level;
    return tag.text.size();
  }
  return 0;
}

// [12345.678901] of the kernel
size_t KernelTag(std::string_view text, Origin*) {
  if (text.size() < 8 || text[0] != '[') return 0;
  size_t at = 1;
  while (at < text.size() && text[at] == ' ') ++at;
  const size_t first = at;
  while (at < text.size() && IsDigit(text[at])) ++at;
  if (at == first || at >= text.size() || text[at] != '.') return 0;
  ++at;
  const size_t fraction = at;
  while (at < text.size() && IsDigit(text[at])) ++at;
  if (at - fraction != 6 || at >= text.size() || text[at] != ']') return 0;
  return SkipSpace(text, at + 1);
}

// gpu-7:4711:4812 [3] NCCL WARN ..., also with file:line between. Not taken off: "NCCL WARN" belongs to the message.
void ReadNccl(std::string_view text, Origin* origin) {
  const size_t nccl = text.find("NCCL ");
  if (nccl > 160) return;  // npos too
  size_t at = 0;
  while (at < text.size() && IsHost(text[at])) ++at;
  if (at == 0 || at >= text.size() || text[at] != ':') return;
  const std::string_view host = text.substr(0, at);
  ++at;
  if (!Number(text, at) || at >= text.size() || text[at] != ':') return;
  ++at;
  if (!Number(text, at)) return;
  if (origin->node.empty()) origin->node = host;
  at = SkipSpace(text, at);
  if (at < text.size() && text[at] == '[') {
    ++at;
    if (const std::optional<int> device = Number(text, at); device && origin->local_rank < 0)
      origin->local_rank = *device;
  }
}

// srun --label: "  3: text"
size_t RankLabel(std::string_view text, int* rank) {
  size_t at = 0;
  while (at < text.size() && at < 6 && text[at] == ' ') ++at;
  const size_t digits = at;
  const std::optional<int> number = at < text.size() && IsDigit(text[at]) ? Number(text, at) : std::nullopt;
  if (!number || at - digits > 6 || at >= text.size() || text[at] != ':') return 0;
  ++at;
  if (at < text.size() && text[at] != ' ') return 0;
  *rank = *number;
  return SkipSpace(text, at);
}

// pdsh: "worker-1: text"
size_t HostLabel(std::string_view text, std::string_view* host) {
  size_t at = 0;
  while (at < text.size() && IsHost(text[at])) ++at;
  if (at < 2 || at > 64 || at >= text.size() || text[at] != ':') return 0;
  if (at + 1 < text.size() && text[at + 1] != ' ') return 0;
  *host = text.substr(0, at);
  const bool numbered = std::any_of(host->begin(), host->end(), IsDigit);
  if (!numbered) return 0;
  return SkipSpace(text, at + 1);
}

struct LevelWord {
  std::string_view text;
  Level level;
};

// The level a logger writes near the front: whole words in capitals, or a Python warning's class.
Level SniffLevel(std::string_view text) {
  static constexpr LevelWord kWords[] = {
      {"CRITICAL", Level::kError}, {"FATAL", Level::kError}, {"ERROR", Level::kError}, {"WARNING", Level::kWarning},
      {"WARN", Level::kWarning},   {"INFO", Level::kInfo},   {"DEBUG", Level::kDebug}};
  const std::string_view front = text.substr(0, 100);
  size_t best = std::string_view::npos;
  Level level = Level::kNone;
  for (const LevelWord& word : kWords) {
    for (size_t at = front.find(word.text); at != std::string_view::npos; at = front.find(word.text, at + 1)) {
      const bool left = at == 0 || !IsWord(front[at - 1]);
      const size_t end = at + word.text.size();
      const bool right = end >= front.size() || !IsWord(front[end]);
      if (left && right && at < best) {
        best = at;
        level = word.level;
      }
    }
  }
  // "NCCL WARN" is how NCCL says that something failed; "NCCL INFO" is what it says.
  if (level == Level::kWarning && front.find("NCCL WARN") != std::string_view::npos) return Level::kNone;
  if (level == Level::kNone) {
    const std::string_view more = text.substr(0, 300);
    static constexpr std::string_view kWarnings[] = {"Warning: ", "warning: ", "[warn]", "WARNING:", "Warning]"};
    for (std::string_view word : kWarnings) {
      if (more.find(word) != std::string_view::npos) return Level::kWarning;
    }
  }
  return level;
}

// "rank-3", "rank_3", "rank3" as a word of a file's or folder's name.
void ReadTag(std::string_view part, std::string_view word, bool whole, int* number, std::string* name) {
  for (size_t at = part.find(word); at != std::string_view::npos; at = part.find(word, at + 1)) {
    if (at > 0 && (whole || (part[at - 1] != '-' && part[at - 1] != '_' && part[at - 1] != '.'))) continue;
    if (at >= 6 && part.substr(at - 6, 5) == "local") continue;
    size_t end = at + word.size();
    if (end < part.size() && (part[end] == '-' || part[end] == '_' || part[end] == '.' || part[end] == '=')) ++end;
    if (end >= part.size() || !IsDigit(part[end])) continue;
    const std::optional<int> found = Number(part, end);
    if (!found || (end < part.size() && part[end] != '.' && (whole || (part[end] != '-' && part[end] != '_'))))
      continue;
    if (part.substr(end).starts_with("-of-") && whole) continue;
    *number = *found;
    if (name != nullptr) *name = std::string(part.substr(at, end - at));
    return;
  }
}

}  // namespace

LineStyle LearnStyle(std::string_view lines) {
  LineStyle style;
  size_t counted = 0, ranks = 0, hosts = 0;
  std::map<std::string_view, size_t> names;
  while (!lines.empty() && counted < 400) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.empty() || line == "\r") continue;
    ++counted;
    int rank = -1;
    if (RankLabel(line, &rank) > 0) ++ranks;
    std::string_view host;
    if (HostLabel(line, &host) > 0) {
      ++hosts;
      ++names[host];
    }
    Origin origin;
    if (RankTag(line, &origin) > 0 || MpiTag(line, &origin) > 0 || OurTag(line, &origin) > 0) style.rank_tag = true;
  }
  style.rank_label = ranks >= 2 && ranks * 10 >= counted * 6;
  style.host_label = !style.rank_label && hosts >= 3 && hosts * 10 >= counted * 7 && names.size() * 3 <= hosts;
  return style;
}

Origin ReadOrigin(std::string_view line, const LineStyle& style, int year) {
  Origin origin;
  if (style.rank_label) {
    line.remove_prefix(RankLabel(line, &origin.rank));
  } else if (style.host_label) {
    line.remove_prefix(HostLabel(line, &origin.node));
  }
  for (int i = 0; i < 8 && !line.empty(); ++i) {
    size_t taken = 0;
    if (line[0] == '[' || line[0] == '(' || IsDigit(line[0]) || (line[0] >= 'A' && line[0] <= 'Z')) {
      taken = RankTag(line, &origin);
      if (taken == 0) taken = MpiTag(line, &origin);
      if (taken == 0) taken = HorovodTag(line, &origin);
      if (taken == 0) taken = OurTag(line, &origin);
      if (taken == 0) taken = PodTag(line, &origin);
      if (taken == 0) taken = StampTag(line, &origin, year);
      if (taken == 0) taken = KernelTag(line, &origin);
      if (taken == 0) taken = OldC10Tag(line, &origin);
      if (taken == 0) taken = LevelTag(line, &origin);
      if (taken == 0) taken = LevelStampTag(line, &origin, year);
      if (taken == 0) taken = HostPidTag(line, &origin);
      if (taken == 0) taken = RayTag(line, &origin);
    }
    if (taken == 0) taken = WrapperTag(line);
    if (taken == 0) break;
    line.remove_prefix(std::min(taken, line.size()));
  }
  origin.text = line;
  ReadNccl(line, &origin);
  if (origin.level == Level::kNone) origin.level = SniffLevel(line);
  if (origin.rank < 0) {
    // torch names the rank inside its own messages too.
    static constexpr std::string_view kWords[] = {"[Rank ", " Rank ", "[rank", "[rank ", "[Rank"};
    for (std::string_view word : kWords) {
      const size_t found = line.substr(0, 200).find(word);
      if (found == std::string_view::npos) continue;
      size_t at = found + word.size();
      const std::optional<int> number = at < line.size() && IsDigit(line[at]) ? Number(line, at) : std::nullopt;
      if (number && at < line.size() && line[at] == ']') {
        origin.rank = *number;
        break;
      }
    }
  }
  return origin;
}

std::string_view CleanLine(std::string_view line, size_t at, std::string* buffer) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  at = std::min(at, line.empty() ? 0 : line.size() - 1);
  // Of a bar that redraws itself: the state around `at`.
  if (line.find('\r') != std::string_view::npos) {
    const size_t begin = line.rfind('\r', at);
    const size_t from = begin == std::string_view::npos ? 0 : begin + 1;
    const size_t end = line.find('\r', from);
    line = line.substr(from, end == std::string_view::npos ? end : end - from);
  }
  bool dirty = false;
  for (char c : line) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\t') {
      dirty = true;
      break;
    }
  }
  if (!dirty) return line;
  buffer->clear();
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\x1b') {
      if (i + 1 < line.size() && line[i + 1] == '[') {
        i += 2;
        while (i < line.size() && (line[i] < '@' || line[i] > '~')) ++i;
      }
      continue;
    }
    if (static_cast<unsigned char>(c) < 0x20 && c != '\t') continue;
    buffer->push_back(c);
  }
  return *buffer;
}

PathOrigin ReadPathOrigin(std::string_view path) {
  PathOrigin origin;
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    if (end > at) parts.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  if (parts.empty()) return origin;
  // torchrun --log-dir: <run>/attempt_0/3/stderr.log
  if (parts.size() >= 3 && (parts.back() == "stderr.log" || parts.back() == "stdout.log")) {
    size_t at = 0;
    const std::string_view number = parts[parts.size() - 2];
    if (const std::optional<int> rank = Number(number, at); rank && at == number.size()) origin.rank = *rank;
    if (const std::optional<int> attempt = NumberAfter(parts[parts.size() - 3], "attempt_")) origin.attempt = *attempt;
  }
  // A folder speaks only when its whole name is such a tag; a file's name may hold more.
  const size_t first = parts.size() > 3 ? parts.size() - 3 : 0;
  for (size_t i = first; i < parts.size(); ++i) {
    const bool whole = i + 1 < parts.size();
    for (std::string_view word : {"rank", "task", "global_rank"}) ReadTag(parts[i], word, whole, &origin.rank, nullptr);
    for (std::string_view word : {"node", "host", "worker", "master", "machine", "pod", "launcher"}) {
      int ignored = -1;
      ReadTag(parts[i], word, whole, &ignored, &origin.node);
    }
  }
  return origin;
}

}  // namespace lockstep::diagnose
