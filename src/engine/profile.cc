#include "engine/profile.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "base/files.h"

namespace lockstep::engine {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

constexpr char kCopies[] = "copies";

// Parts of kernels' names in lower case; the first row that matches counts.
struct KindRow {
  const char* part;
  const char* kind;
};
constexpr std::array kKinds = {
    KindRow{"nccl", "collectives"},       KindRow{"flash", "attention"},
    KindRow{"fmha", "attention"},         KindRow{"sdpa", "attention"},
    KindRow{"attention", "attention"},    KindRow{"gemm", "matrix products"},
    KindRow{"nvjet", "matrix products"},  KindRow{"cutlass", "matrix products"},
    KindRow{"splitk", "matrix products"}, KindRow{"cublas", "matrix products"},
    KindRow{"memcpy", kCopies},           KindRow{"memset", kCopies},
};

std::string Summary(const profiler::ProfilerResult& result) {
  std::vector<std::pair<uint64_t, uint64_t>> busy;
  std::map<std::string, uint64_t> spent;
  uint64_t sum = 0, first = std::numeric_limits<uint64_t>::max(), last = 0;
  for (const profiler::KinetoEvent& event : result.events()) {
    if (event.deviceType() != c10::DeviceType::CUDA || event.durationNs() == 0) continue;
    const std::string kind = KindOfKernel(event.name());
    spent[kind] += event.durationNs();
    sum += event.durationNs();
    first = std::min(first, event.startNs());
    last = std::max(last, event.endNs());
    if (kind != kCopies) busy.emplace_back(event.startNs(), event.endNs());  // copies need no multiprocessor
  }
  if (busy.empty()) return "no work of a GPU was seen";
  std::sort(busy.begin(), busy.end());
  uint64_t covered = 0, until = first;
  for (const auto& [begin, end] : busy) {
    covered += end > until ? end - std::max(begin, until) : 0;
    until = std::max(until, end);
  }
  std::string text = fmt::format("GPU computes {:.1f} % of {:.1f} ms; of its time: ",
                                 100.0 * static_cast<double>(covered) / static_cast<double>(last - first),
                                 static_cast<double>(last - first) / 1e6);
  std::vector<std::pair<uint64_t, std::string>> order;
  for (const auto& [kind, time] : spent) order.emplace_back(time, kind);
  std::sort(order.rbegin(), order.rend());
  for (const auto& [time, kind] : order) {
    text += fmt::format("{}{} {:.1f} %", &kind == &order.front().second ? "" : ", ", kind,
                        100.0 * static_cast<double>(time) / static_cast<double>(sum));
  }
  return text;
}

}  // namespace

const char* KindOfKernel(const std::string& name) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const KindRow& row : kKinds) {
    if (lower.find(row.part) != std::string::npos) return row.kind;
  }
  return "other";
}

Profile::~Profile() {
  if (running_) profiler::disableProfiler();
}

Result<std::string> Profile::Turn() {
  if (!running_) {
    std::set<ActivityType> what = {ActivityType::CPU};
    if (cuda_) what.insert(ActivityType::CUDA);
    const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
    profiler::prepareProfiler(config, what);
    profiler::enableProfiler(config, what, {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION});
    running_ = true;
    return std::string();
  }
  const auto result = profiler::disableProfiler();
  running_ = false;
  const std::string folder = file_.substr(0, file_.rfind('/'));
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(folder));
  result->save(file_);
  return (cuda_ ? Summary(*result) + "; " : std::string()) + file_;
}

}  // namespace lockstep::engine
