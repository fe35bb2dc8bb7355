// What a background save costs training: a loop of synthetic steps (compute on all cores, then an optimizer pass that
// rewrites the whole state), with a save every few steps. Prints one JSON object: the added wall time of the steps that
// overlap a save against those that do not, and the part for which the training thread was blocked. Medians over saves.
//
//   checkpoint_bench FOLDER [MiB of state, 512] [saves, 5] [ms of compute per step, 300]
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "record/background_saver.h"

namespace lockstep::record {
namespace {

constexpr size_t kTensorFloats = 1u << 20;  // 4 MiB each

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Work that lives in the core's cache, as convolutions on blocked tiles do.
void Compute(std::vector<float>& tile, size_t rounds) {
  for (size_t r = 0; r < rounds; ++r) {
    for (float& x : tile) x = x * 0.999f + 0.001f;
  }
}

// A fixed number of rounds: a step is an amount of work, not of time.
size_t RoundsFor(double seconds) {
  std::vector<float> tile(16384, 1.0f);
  size_t rounds = 1000;
  for (;; rounds *= 2) {
    const TimePoint start = Now();
    Compute(tile, rounds);
    const double took = SecondsSince(start);
    if (took > 0.05) return static_cast<size_t>(static_cast<double>(rounds) * seconds / took);
  }
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: checkpoint_bench FOLDER [MiB] [saves] [ms]\n");
    return 2;
  }
  const size_t mib = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 512;
  const int saves = argc > 3 ? std::atoi(argv[3]) : 5;
  const double compute_seconds = (argc > 4 ? std::atof(argv[4]) : 300) / 1e3;
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));

  std::vector<std::unique_ptr<float[]>> state;
  CheckpointContent content;
  content.recipe = "bench";
  for (size_t i = 0; i < mib / 4; ++i) {
    state.push_back(std::make_unique<float[]>(kTensorFloats));
    std::fill_n(state.back().get(), kTensorFloats, static_cast<float>(i));
    content.tensors.push_back({fmt::format("{}/layer.{}", i % 3 == 0 ? "model" : "optimizer", i),
                               Dtype::kF32,
                               {static_cast<int64_t>(kTensorFloats)},
                               state.back().get(),
                               kTensorFloats * 4});
  }
  BackgroundSaver::Options options;
  options.folder = argv[1];
  options.keep.last = 2;
  auto saver = BackgroundSaver::Create(std::move(options));
  if (!saver.ok()) {
    fmt::print(stderr, "{}\n", saver.status().ToString());
    return ExitCode(saver.status());
  }
  if (Status reserved = (*saver)->Reserve(content.tensors); !reserved.ok()) {
    fmt::print(stderr, "{}\n", reserved.ToString());
    return ExitCode(reserved);
  }

  const size_t rounds = RoundsFor(compute_seconds);
  std::barrier<> meet(threads);
  bool stop = false;
  auto work = [&](int thread, auto before_optimizer) {
    std::vector<float> tile(16384, 1.0f);
    Compute(tile, rounds);
    before_optimizer();
    meet.arrive_and_wait();
    for (size_t i = static_cast<size_t>(thread); i < state.size(); i += static_cast<size_t>(threads)) {
      for (size_t k = 0; k < kTensorFloats; ++k) state[i][k] = state[i][k] * 0.9999f + tile[0];
    }
    meet.arrive_and_wait();
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) {
    others.emplace_back([&, t] {
      for (;;) {
        meet.arrive_and_wait();
        if (stop) return;
        work(t, [] {});
      }
    });
  }
  uint64_t step = 0;
  auto one_step = [&] {
    const TimePoint start = Now();
    meet.arrive_and_wait();
    work(0, [&] { (void)(*saver)->WaitCopied(); });
    ++step;
    return SecondsSince(start);
  };

  std::vector<double> quiet, added, blocked, copy, write, cpu, overlapped;
  for (int i = 0; i < 3; ++i) (void)one_step();
  for (int save = 0; save < saves; ++save) {
    std::vector<double> before;
    for (int i = 0; i < 5; ++i) before.push_back(one_step());
    const TimePoint start = Now();
    content.step = step;
    auto begun = (*saver)->Begin(content);
    if (!begun.ok() || !*begun) {
      fmt::print(stderr, "the save did not begin: {}\n", begun.status().message());
      return 1;
    }
    double extra = SecondsSince(start);
    int steps = 0;
    while ((*saver)->busy()) {
      extra += one_step();
      ++steps;
    }
    for (int i = 0; i < 5; ++i) before.push_back(one_step());
    const double base = Median(before);
    for (const SaveReport& report : (*saver)->Poll()) {
      if (!report.status.ok()) {
        fmt::print(stderr, "{}\n", report.status.ToString());
        return 1;
      }
      quiet.push_back(base);
      added.push_back(extra - base * steps);
      blocked.push_back(report.blocked_seconds);
      copy.push_back(report.copy_seconds);
      write.push_back(report.write_seconds);
      cpu.push_back(report.write_cpu_seconds);
      overlapped.push_back(steps);
    }
  }
  stop = true;
  meet.arrive_and_wait();
  for (std::thread& thread : others) thread.join();
  fmt::print(
      "{{\"mib\": {}, \"threads\": {}, \"step_seconds\": {:.4f}, \"added_seconds\": {:.4f}, \"blocked_seconds\": "
      "{:.4f}, "
      "\"copy_seconds\": {:.4f}, \"write_seconds\": {:.4f}, \"write_cpu_seconds\": {:.4f}, \"overlapped_steps\": "
      "{}}}\n",
      mib, threads, Median(quiet), Median(added), Median(blocked), Median(copy), Median(write), Median(cpu),
      Median(overlapped));
  return 0;
}

}  // namespace
}  // namespace lockstep::record

int main(int argc, char** argv) { return lockstep::record::Main(argc, argv); }
