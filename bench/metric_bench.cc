// What one metric call costs the training thread: p50, p99 and the worst of Metrics::Set while steps of ten scalars
// come at 1 kHz and the writer feeds all sinks (metric lines, TensorBoard, CSV, W&B); then the same in one burst,
// without any pause. Prints one JSON object; times are nanoseconds with the cost of reading the clock (also given)
// subtracted.
//
//   metric_bench [seconds]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "track/metrics.h"

namespace {

using lockstep::Now;
using lockstep::Result;
using lockstep::TempDir;
using lockstep::TimePoint;
using lockstep::track::MetricId;
using lockstep::track::Metrics;

constexpr int kScalars = 10;

double Nanoseconds(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double, std::nano>(end - begin).count();
}

double Quantile(std::vector<double>& sorted, double q) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(q * static_cast<double>(sorted.size())))];
}

struct Outcome {
  std::vector<double> calls;  // sorted
  uint64_t dropped = 0;
};

Outcome Measure(uint64_t steps, std::chrono::nanoseconds period, double clock) {
  Result<TempDir> dir = TempDir::Create();
  Result<std::unique_ptr<Metrics>> metrics = Metrics::Start({.jsonl_path = *dir / "rank-0.jsonl",
                                                             .tensorboard_dir = *dir / "tensorboard",
                                                             .csv_path = *dir / "metrics.csv",
                                                             .wandb = {.dir = *dir / "wandb", .name = "bench"}});
  if (!metrics.ok()) {
    fmt::print(stderr, "{}\n", metrics.status().ToString());
    std::exit(3);
  }
  std::vector<MetricId> ids;
  for (int i = 0; i < kScalars; ++i) ids.push_back((*metrics)->Register(fmt::format("group/metric_{}", i)));
  Outcome outcome;
  outcome.calls.reserve(steps * kScalars);
  const TimePoint start = Now();
  for (uint64_t step = 0; step < steps; ++step) {
    for (MetricId id : ids) {
      const TimePoint begin = Now();
      (*metrics)->Set(id, step, 0.1 * static_cast<double>(step));
      outcome.calls.push_back(std::max(0.0, Nanoseconds(begin, Now()) - clock));
    }
    (*metrics)->EndStep(step);
    std::this_thread::sleep_until(start + (step + 1) * period);
  }
  outcome.dropped = (*metrics)->dropped();
  std::sort(outcome.calls.begin(), outcome.calls.end());
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 3;
  if (!(seconds > 0 && seconds < 600)) {
    fmt::print(stderr, "usage: metric_bench [seconds], found '{}'\n", argv[1]);
    return 2;
  }
  std::vector<double> pairs;
  for (int i = 0; i < 10000; ++i) {
    const TimePoint begin = Now();
    pairs.push_back(Nanoseconds(begin, Now()));
  }
  std::sort(pairs.begin(), pairs.end());
  const double clock = Quantile(pairs, 0.5);
  const auto steps = static_cast<uint64_t>(seconds * 1000);
  Outcome paced = Measure(steps, std::chrono::milliseconds(1), clock);
  Outcome burst = Measure(2000, std::chrono::nanoseconds(0), clock);
  fmt::print(
      "{{\"steps_per_second\": 1000, \"scalars_per_step\": {}, \"calls\": {}, \"p50_ns\": {:.0f}, \"p99_ns\": {:.0f}, "
      "\"worst_ns\": {:.0f}, \"dropped\": {}, \"burst_p50_ns\": {:.0f}, \"burst_p99_ns\": {:.0f}, \"clock_ns\": "
      "{:.0f}, "
      "\"cores\": {}}}\n",
      kScalars, paced.calls.size(), Quantile(paced.calls, 0.5), Quantile(paced.calls, 0.99), paced.calls.back(),
      paced.dropped, Quantile(burst.calls, 0.5), Quantile(burst.calls, 0.99), clock,
      std::thread::hardware_concurrency());
  return 0;
}
