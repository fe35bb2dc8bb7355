#include "plan/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/text.h"
#include "plan/collective.h"

namespace lockstep::plan {
namespace {

constexpr int kMostGpus = 1 << 20;

Status WrongScale(const std::string& text, const std::string& why) {
  return Status(Code::kUsage, fmt::format("--scale {}: {}", Printable(text), why),
                "write a range, --scale 8..16384, or numbers, --scale 8,64,512");
}

std::optional<int> Number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Result<std::vector<int>> ParseScale(const std::string& text) {
  std::vector<int> points;
  const auto take = [&](std::string_view part, int* into) {
    const std::optional<int> value = Number(Trim(part));
    if (!value) return WrongScale(text, fmt::format("'{}' is no number of GPUs", Printable(part)));
    if (*value < 1 || *value > kMostGpus) {
      return WrongScale(text, fmt::format("{} GPUs: expected 1 to {}", *value, kMostGpus));
    }
    *into = *value;
    return Status::Ok();
  };
  if (const size_t dots = text.find(".."); dots != std::string::npos) {
    int first = 0, last = 0;
    LOCKSTEP_RETURN_IF_ERROR(take(std::string_view(text).substr(0, dots), &first));
    LOCKSTEP_RETURN_IF_ERROR(take(std::string_view(text).substr(dots + 2), &last));
    if (last < first) return WrongScale(text, fmt::format("{} is less than {}", last, first));
    for (int n = first; n < last; n *= 2) points.push_back(n);
    points.push_back(last);
    return points;
  }
  for (const std::string& part : Split(text, ',')) {
    points.push_back(0);
    LOCKSTEP_RETURN_IF_ERROR(take(part, &points.back()));
    if (points.size() > 1 && points.back() <= points[points.size() - 2]) return WrongScale(text, "numbers must grow");
  }
  return points;
}

std::vector<ScalePoint> ScaleOf(const Workload& workload, const Setting& base, const Machine& machine,
                                const std::vector<int>& gpus, Scaling scaling, const Reliability& reliability) {
  std::vector<ScalePoint> points;
  const auto per_gpu = static_cast<uint64_t>(base.share());
  const double gradients = 4.0 * static_cast<double>(workload.trained());
  for (const int n : gpus) {
    ScalePoint point;
    point.gpus = n;
    point.nodes = (n + machine.links.gpus_per_node - 1) / machine.links.gpus_per_node;
    Setting setting = base;
    setting.ranks = n;
    setting.batch =
        scaling == Scaling::kWeak ? per_gpu * static_cast<uint64_t>(n) : std::max(base.batch, static_cast<uint64_t>(n));
    point.line = LineOf(workload, setting, machine);
    point.ring = SecondsOf(Collective::kAllReduce, Algorithm::kRing, gradients, n, machine.links);
    point.tree = SecondsOf(Collective::kAllReduce, Algorithm::kTree, gradients, n, machine.links);
    point.goodput = GoodputOf(point.nodes, reliability);
    const auto rate = [](const ScalePoint& p) {
      return static_cast<double>(p.line.setting.batch) / p.line.time.Total() / p.gpus;
    };
    points.push_back(point);
    points.back().efficiency = rate(points.back()) / rate(points.front());
  }
  return points;
}

}  // namespace lockstep::plan
