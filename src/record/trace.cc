#include "record/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <fstream>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "base/digits.h"
#include "base/files.h"
#include "base/json.h"

namespace lockstep::record {
namespace {

using Span = std::pair<double, double>;  // begin and end, microseconds
using Spans = std::vector<Span>;         // sorted, apart from each other

constexpr size_t kTop = 12;

// Parts of names in lower case; the first row that matches counts.
struct NameRow {
  const char* part;
  const char* kind;
};
constexpr std::array kKernelKinds = {
    NameRow{"nccl", "collectives"},       NameRow{"flash", "attention"},         NameRow{"fmha", "attention"},
    NameRow{"sdpa", "attention"},         NameRow{"attention", "attention"},     NameRow{"gemm", "matrix products"},
    NameRow{"nvjet", "matrix products"},  NameRow{"cutlass", "matrix products"}, NameRow{"splitk", "matrix products"},
    NameRow{"cublas", "matrix products"}, NameRow{"memcpy", "copies"},           NameRow{"memset", "copies"},
};
// Of what the main thread calls. What lies inside several kinds counts for the first of kHostOrder.
constexpr std::array kHostKinds = {
    NameRow{"lockstep.data", "data"},
    NameRow{"dataloader", "data"},
    NameRow{"lockstep.collective", "collective"},
    NameRow{"gloo:", "collective"},
    NameRow{"nccl:", "collective"},
    NameRow{"mpi:", "collective"},
    NameRow{"c10d::", "collective"},
    NameRow{"_c10d_functional", "collective"},
    NameRow{"lockstep.optimizer", "optimizer"},
    NameRow{"optimizer.step", "optimizer"},
    NameRow{"optimizer.zero_grad", "optimizer"},
    NameRow{"lockstep.checkpoint", "checkpoint"},
    NameRow{"lockstep.backward", "backward"},
    NameRow{"autograd::engine", "backward"},
    NameRow{"backward", "backward"},
    NameRow{"lockstep.forward", "forward"},
};
constexpr std::array kHostOrder = {"data", "collective", "optimizer", "checkpoint", "backward", "forward"};

template <size_t N>
const char* Match(const std::array<NameRow, N>& rows, std::string_view name, const char* otherwise) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const NameRow& row : rows) {
    if (lower.find(row.part) != std::string::npos) return row.kind;
  }
  return otherwise;
}

Spans Union(Spans spans) {
  std::sort(spans.begin(), spans.end());
  Spans apart;
  for (const Span& span : spans) {
    if (!apart.empty() && span.first <= apart.back().second) {
      apart.back().second = std::max(apart.back().second, span.second);
    } else {
      apart.push_back(span);
    }
  }
  return apart;
}

Spans Both(const Spans& a, const Spans& b) {
  Spans both;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const double begin = std::max(a[i].first, b[j].first), end = std::min(a[i].second, b[j].second);
    if (begin < end) both.emplace_back(begin, end);
    ++(a[i].second < b[j].second ? i : j);
  }
  return both;
}

Spans Without(const Spans& a, const Spans& b) {
  Spans rest;
  size_t j = 0;
  for (const Span& span : a) {
    double begin = span.first;
    while (j < b.size() && b[j].second <= begin) ++j;
    for (size_t k = j; k < b.size() && b[k].first < span.second; ++k) {
      if (b[k].first > begin) rest.emplace_back(begin, b[k].first);
      begin = std::max(begin, b[k].second);
    }
    if (begin < span.second) rest.emplace_back(begin, span.second);
  }
  return rest;
}

double Seconds(const Spans& spans) {
  double sum = 0;
  for (const auto& [begin, end] : spans) sum += end - begin;
  return sum / 1e6;
}

struct TraceEvent {
  std::string name;
  enum class Kind { kHost, kStep, kKernel } kind = Kind::kHost;
  bool op = false;  // an operator of torch, not a scope around some
  std::string thread;
  Span span;
  int64_t launch = 0;  // of a kernel: the number of the call that launched it; 0: not known
};

// Events of a trace that matter, read one by one: traces are large.
class TraceReader {
 public:
  Status Read(std::istream& in, const std::string& path) {
    const auto take = [this](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
      // {"traceEvents": [ {event}, ... ]}: an event that was taken is not kept.
      if (depth != 2 || event != nlohmann::json::parse_event_t::object_end) return true;
      Take(value);
      return false;
    };
    const nlohmann::json document = nlohmann::json::parse(in, take, /*allow_exceptions=*/false);
    if (document.is_discarded()) return Status(Code::kUsage, fmt::format("{} is no trace: it is no JSON", path));
    return Status::Ok();
  }

  std::vector<TraceEvent> events;
  std::unordered_map<int64_t, double> launches;  // calls that launched kernels, and their time

 private:
  static std::string Word(const nlohmann::json& value, const char* key) {
    const auto found = value.find(key);
    if (found == value.end()) return "";
    return found->is_string() ? found->get<std::string>() : ToJsonLine(*found);
  }

  void Take(const nlohmann::json& value) {
    if (GetString(value, "ph") != "X") return;
    const std::string category = GetString(value, "cat");
    TraceEvent event;
    event.name = GetString(value, "name");
    event.span.first = GetNumber(value, "ts");
    event.span.second = event.span.first + std::max(0.0, GetNumber(value, "dur"));
    if (!std::isfinite(event.span.first) || !std::isfinite(event.span.second)) return;
    event.thread = Word(value, "pid") + "/" + Word(value, "tid");
    const auto arguments = value.find("args");
    const int64_t number = arguments != value.end() ? GetInt(*arguments, "correlation") : 0;
    if (category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset") {
      event.kind = TraceEvent::Kind::kKernel;
      event.launch = number;
    } else if (category == "cuda_runtime" || category == "cuda_driver") {
      if (number != 0) launches.emplace(number, event.span.first);
      return;
    } else if (category == "cpu_op" || category == "user_annotation") {
      event.op = category == "cpu_op";
      if (event.name.starts_with(kStepScope)) event.kind = TraceEvent::Kind::kStep;
    } else {
      return;  // Python frames, and annotations repeated for the device
    }
    events.push_back(std::move(event));
  }
};

// When the device worked for these steps of the host, which queues kernels ahead: from the last kernel that was
// launched before the steps to the last that was launched in them. As they are where launches are not in the trace.
Spans OnTheDevice(const TraceReader& reader, Spans steps) {
  double begin = steps.front().first, end = steps.back().second;
  for (const TraceEvent& event : reader.events) {
    if (event.kind != TraceEvent::Kind::kKernel || reader.launches.empty()) continue;
    const auto launch = reader.launches.find(event.launch);
    // Launched before the trace began, or in it.
    const double at = launch == reader.launches.end() ? -std::numeric_limits<double>::infinity() : launch->second;
    if (at < steps.front().first) begin = std::max(begin, event.span.second);
    if (at >= steps.front().first && at <= steps.back().second) end = std::max(end, event.span.second);
  }
  if (begin >= end) return steps;  // no kernel of theirs was traced
  steps.back().second = end;
  return Without(steps, {{steps.front().first, begin}});
}

// A step that is given a closure (Lightning, L-BFGS) calls forward and backward itself: it begins behind them.
void LeaveOutClosures(const Spans& backward, Spans* optimizer) {
  for (Span& span : *optimizer) {
    const auto after = std::upper_bound(backward.begin(), backward.end(), span.second,
                                        [](double end, const Span& one) { return end < one.second; });
    if (after != backward.begin() && std::prev(after)->first >= span.first) span.first = std::prev(after)->second;
  }
}

std::vector<TraceEntry> Longest(const std::map<std::string, TraceEntry>& found) {
  std::vector<TraceEntry> entries;
  for (const auto& [name, entry] : found) entries.push_back(entry);
  std::sort(entries.begin(), entries.end(), [](const TraceEntry& a, const TraceEntry& b) {
    return std::tie(b.seconds, a.name) < std::tie(a.seconds, b.name);
  });
  if (entries.size() > kTop) entries.resize(kTop);
  return entries;
}

void Count(std::map<std::string, TraceEntry>* found, const std::string& name, double seconds, uint64_t times = 1) {
  TraceEntry& entry = (*found)[name];
  entry.name = name;
  entry.seconds += seconds;
  entry.count += times;
}

// Time of each operator without that of the operators inside it. `operators` are those of one thread.
void CountSelf(std::vector<const TraceEvent*> operators, std::map<std::string, TraceEntry>* found) {
  std::sort(operators.begin(), operators.end(), [](const TraceEvent* a, const TraceEvent* b) {
    return std::pair(a->span.first, -a->span.second) < std::pair(b->span.first, -b->span.second);
  });
  std::vector<const TraceEvent*> open;
  for (const TraceEvent* event : operators) {
    while (!open.empty() && open.back()->span.second <= event->span.first) open.pop_back();
    const double seconds = (event->span.second - event->span.first) / 1e6;
    Count(found, event->name, seconds);
    if (!open.empty()) Count(found, open.back()->name, -seconds, 0);
    open.push_back(event);
  }
}

std::string PerStep(double seconds, const TraceSummary& rank) {
  return fmt::format("{:.2f} ms", 1e3 * seconds / static_cast<double>(std::max<uint64_t>(1, rank.steps)));
}

std::string Share(double seconds, double of) { return fmt::format("{:.1f} %", of > 0 ? 100 * seconds / of : 0); }

std::string Cut(const std::string& name, size_t width) {
  return name.size() <= width ? name : name.substr(0, width - 3) + "...";
}

void AppendTop(const char* title, const std::vector<TraceEntry>& entries, const TraceSummary& rank, double of,
               std::string* text) {
  if (entries.empty()) return;
  *text += fmt::format("\n{}\n", title);
  for (const TraceEntry& entry : entries) {
    *text += fmt::format("  {:<72} {:>11} {:>8} {:>8.1f} calls\n", Cut(entry.name, 72), PerStep(entry.seconds, rank),
                         Share(entry.seconds, of),
                         static_cast<double>(entry.count) / static_cast<double>(std::max<uint64_t>(1, rank.steps)));
  }
}

}  // namespace

const char* KindOfKernel(std::string_view name) { return Match(kKernelKinds, name, "other"); }

Result<TraceSummary> SummariseTrace(const std::string& path, int rank) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return FileError("read", path, errno);
  return SummariseTrace(in, path, rank);
}

Result<TraceSummary> SummariseTrace(std::istream& in, const std::string& path, int rank) {
  TraceReader reader;
  LOCKSTEP_RETURN_IF_ERROR(reader.Read(in, path));
  TraceSummary summary;
  summary.rank = rank;
  Spans steps;
  std::string main_thread;
  for (const TraceEvent& event : reader.events) {
    if (event.kind != TraceEvent::Kind::kStep) continue;
    steps.push_back(event.span);
    main_thread = event.thread;
  }
  if (steps.empty()) return Status(Code::kUsage, fmt::format("{} holds no step", path));
  summary.steps = steps.size();
  steps = OnTheDevice(reader, Union(std::move(steps)));
  summary.seconds = Seconds(steps);

  std::map<std::string, Spans> host;
  Spans kernels, computing, collectives, awaited, own_operators, backward;
  std::map<std::string, TraceEntry> kernel_entries, operator_entries;
  std::map<std::string, std::vector<const TraceEvent*>> operators;
  for (const TraceEvent& event : reader.events) {
    if (event.kind == TraceEvent::Kind::kStep || Both({event.span}, steps).empty()) continue;
    // A kernel that ends as the steps begin is one of those before.
    if (event.kind == TraceEvent::Kind::kKernel && event.span.first < steps.front().first) continue;
    if (event.kind == TraceEvent::Kind::kKernel) {
      const std::string kind = KindOfKernel(event.name);
      const double seconds = (event.span.second - event.span.first) / 1e6;
      summary.device[kind] += seconds;
      Count(&kernel_entries, event.name, seconds);
      kernels.push_back(event.span);
      if (kind == "collectives") collectives.push_back(event.span);
      if (kind != "collectives" && kind != "copies") computing.push_back(event.span);
      continue;
    }
    const std::string kind = Match(kHostKinds, event.name, event.op ? "forward" : "");
    if (event.op) operators[event.thread].push_back(&event);
    if (kind == "collective") {
      collectives.push_back(event.span);
      awaited.push_back(event.span);
    }
    if (kind == "backward") backward.push_back(event.span);  // on a GPU in a thread of its own
    if (event.thread != main_thread) continue;
    if (event.op && kind != "collective") own_operators.push_back(event.span);
    if (!kind.empty()) host[kind].push_back(event.span);
  }
  LeaveOutClosures(Union(std::move(backward)), &host["optimizer"]);
  Spans left = steps;
  for (const char* kind : kHostOrder) {
    const Spans spans = Both(Union(std::move(host[kind])), left);
    if (!spans.empty()) summary.host[kind] = Seconds(spans);
    left = Without(left, spans);
  }
  // A main thread that calls nothing while a collective is under way on another thread waits for it.
  if (const Spans waits = Both(left, Union(std::move(awaited))); !waits.empty()) {
    summary.host["collective"] += Seconds(waits);
    left = Without(left, waits);
  }
  summary.host["other"] = Seconds(left);
  // With a GPU its kernels compute; without, the main thread does.
  const bool gpu = !kernels.empty();
  const Spans busy = Union(gpu ? std::move(computing) : std::move(own_operators));
  const Spans sent = Both(Union(std::move(collectives)), steps);
  summary.collective = Seconds(sent);
  summary.collective_exposed = Seconds(Without(sent, busy));
  summary.device_busy = Seconds(Both(Union(std::move(kernels)), steps));
  for (const auto& [thread, list] : operators) CountSelf(list, &operator_entries);
  summary.kernels = Longest(kernel_entries);
  summary.operators = Longest(operator_entries);
  return summary;
}

nlohmann::json TraceSummary::ToJson() const {
  const auto list = [](const std::vector<TraceEntry>& entries) {
    nlohmann::json array = nlohmann::json::array();
    for (const TraceEntry& entry : entries) {
      array.push_back({{"name", entry.name}, {"seconds", entry.seconds}, {"count", entry.count}});
    }
    return array;
  };
  return {{"rank", rank},
          {"steps", steps},
          {"seconds", seconds},
          {"host", host},
          {"device", device},
          {"device_busy", device_busy},
          {"collective", collective},
          {"collective_exposed", collective_exposed},
          {"kernels", list(kernels)},
          {"operators", list(operators)}};
}

TraceSummary TraceSummary::FromJson(const nlohmann::json& json) {
  TraceSummary summary;
  summary.rank = static_cast<int>(GetInt(json, "rank"));
  summary.steps = static_cast<uint64_t>(GetInt(json, "steps"));
  summary.seconds = GetNumber(json, "seconds");
  summary.device_busy = GetNumber(json, "device_busy");
  summary.collective = GetNumber(json, "collective");
  summary.collective_exposed = GetNumber(json, "collective_exposed");
  for (const auto& [key, map] : {std::pair("host", &summary.host), {"device", &summary.device}}) {
    if (!json.contains(key)) continue;
    for (const auto& [name, value] : json[key].items()) (*map)[name] = value.is_number() ? value.get<double>() : 0;
  }
  for (const auto& [key, list] : {std::pair("kernels", &summary.kernels), {"operators", &summary.operators}}) {
    if (!json.contains(key)) continue;
    for (const nlohmann::json& entry : json[key]) {
      list->push_back(
          {GetString(entry, "name"), GetNumber(entry, "seconds"), static_cast<uint64_t>(GetInt(entry, "count"))});
    }
  }
  return summary;
}

std::string ProfileLine(const TraceSummary& rank) {
  std::vector<std::pair<double, std::string>> parts;
  for (const auto& [kind, seconds] : rank.device.empty() ? rank.host : rank.device) parts.emplace_back(seconds, kind);
  std::sort(parts.rbegin(), parts.rend());
  std::string text = fmt::format("step {}", PerStep(rank.seconds, rank));
  if (!rank.device.empty()) text += fmt::format(", GPU busy {}", Share(rank.device_busy, rank.seconds));
  for (const auto& [seconds, kind] : parts) {
    text += fmt::format("{}{} {}", kind == parts.front().second ? ": " : ", ", kind, Share(seconds, rank.seconds));
  }
  return text + fmt::format("; exposed collectives {}", Share(rank.collective_exposed, rank.seconds));
}

std::string ProfileText(const std::vector<TraceSummary>& ranks) {
  if (ranks.empty()) return "no trace\n";
  const TraceSummary& first = ranks.front();
  std::string text = fmt::format("{} step{} of {} rank{}; times of one step\n\n", first.steps,
                                 first.steps == 1 ? "" : "s", ranks.size(), ranks.size() == 1 ? "" : "s");
  constexpr std::array kColumns = {"forward", "backward", "collective", "data", "optimizer", "checkpoint", "other"};
  text += fmt::format("{:>5} {:>12}", "rank", "step");
  for (const char* column : kColumns) text += fmt::format(" {:>11}", column);
  text += "   main thread\n";
  for (const TraceSummary& rank : ranks) {
    text += fmt::format("{:>5} {:>12}", rank.rank, PerStep(rank.seconds, rank));
    for (const char* column : kColumns) {
      const auto found = rank.host.find(column);
      text += fmt::format(" {:>11}", found == rank.host.end() ? "-" : Share(found->second, rank.seconds));
    }
    text += "\n";
  }
  if (!first.device.empty()) {
    text += fmt::format("\n{:>5} {:>12} {:>12}   kernels\n", "rank", "GPU busy", "GPU idle");
    for (const TraceSummary& rank : ranks) {
      text += fmt::format("{:>5} {:>12} {:>12}   ", rank.rank, Share(rank.device_busy, rank.seconds),
                          Share(rank.seconds - rank.device_busy, rank.seconds));
      for (const auto& [kind, seconds] : rank.device)
        text += fmt::format("{} {}  ", kind, Share(seconds, rank.seconds));
      text += "\n";
    }
  }
  text += "\nexposed: nothing computed meanwhile\n";
  for (const TraceSummary& rank : ranks) {
    const auto data = rank.host.find("data");
    text += fmt::format("{:>5} collectives {} of {} a step ({} of the step), data {}\n", rank.rank,
                        PerStep(rank.collective_exposed, rank), PerStep(rank.collective, rank),
                        Share(rank.collective_exposed, rank.seconds),
                        PerStep(data == rank.host.end() ? 0 : data->second, rank));
  }
  AppendTop(fmt::format("kernels of rank {}, longest first", first.rank).c_str(), first.kernels, first, first.seconds,
            &text);
  AppendTop(fmt::format("operators of rank {} on the host, without what they call", first.rank).c_str(),
            first.operators, first, first.seconds, &text);
  return text;
}

Status WriteProfileSummary(const std::string& folder, const std::vector<TraceSummary>& ranks) {
  nlohmann::json document = {{"format", 1}, {"ranks", nlohmann::json::array()}};
  for (const TraceSummary& rank : ranks) document["ranks"].push_back(rank.ToJson());
  LOCKSTEP_RETURN_IF_ERROR(WriteFileAtomic(
      folder + "/summary.json", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", 0644,
      Durability::kProcess));
  return WriteFileAtomic(folder + "/summary.txt", ProfileText(ranks), 0644, Durability::kProcess);
}

Result<std::string> SummariseProfile(const std::string& folder) {
  const Result<std::vector<std::string>> names = ListDir(folder);
  if (!names.ok()) return names.status();
  std::vector<TraceSummary> ranks;
  Status failed(Code::kEnvironment, fmt::format("there is no trace in {}", folder),
                "the program took fewer steps than the profile begins at, or it uses no optimizer of torch");
  for (const std::string& name : *names) {
    constexpr std::string_view kPrefix = "rank-", kEnding = ".json";
    if (!name.starts_with(kPrefix) || !name.ends_with(kEnding)) continue;
    const auto rank =
        ParseDigits(std::string_view(name).substr(kPrefix.size(), name.size() - kPrefix.size() - kEnding.size()));
    if (!rank) continue;
    Result<TraceSummary> one = SummariseTrace(folder + "/" + name, static_cast<int>(*rank));
    if (one.ok()) {
      ranks.push_back(std::move(*one));
    } else {
      failed = one.status();
    }
  }
  if (ranks.empty()) return failed;
  std::sort(ranks.begin(), ranks.end(), [](const TraceSummary& a, const TraceSummary& b) { return a.rank < b.rank; });
  LOCKSTEP_RETURN_IF_ERROR(WriteProfileSummary(folder, ranks));
  return ProfileText(ranks);
}

}  // namespace lockstep::record
