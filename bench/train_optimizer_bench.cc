// One optimizer step over many parameters on the CPU: our AdamW pass, and clipping by global norm with it. One JSON
// object with the median seconds of both.
//
//   train_optimizer_bench MILLIONS THREADS [ROUNDS]
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/clock.h"
#include "engine/optimizer.h"

namespace lockstep::engine {
namespace {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Measure(int64_t millions, int rounds) {
  torch::nn::Module module;  // tensors of a million, as the peer's
  for (int64_t i = 0; i < millions; ++i) module.register_parameter(fmt::format("p{}", i), at::rand({1000, 1000}));
  FlatParameters flat = *FlatParameters::Create(module, [](int64_t n) { return at::empty({n}); });
  flat.gradients().copy_(at::rand_like(flat.gradients()));
  const size_t count = flat.parameters().size();
  Optimizer optimizer({}, flat.owned(), {GroupSettings{1, 0.01}}, std::vector<int>(count, 0));
  const std::vector<bool> all(count, true);
  std::vector<double> pass, clipped;
  for (int round = -2; round < rounds; ++round) {
    const TimePoint start = Now();
    optimizer.Step(1, 1, all);
    const TimePoint middle = Now();
    const double norm = GradientNorm(flat.gradients());
    optimizer.Step(1, std::min(1.0, 1 / (norm + 1e-6)), all);
    if (round < 0) continue;
    pass.push_back(std::chrono::duration<double>(middle - start).count());
    clipped.push_back(SecondsSince(middle));
  }
  fmt::print("{{\"parameters\": {}, \"step\": {:.9f}, \"clip_and_step\": {:.9f}}}\n", flat.count(), Median(pass),
             Median(clipped));
}

}  // namespace
}  // namespace lockstep::engine

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: train_optimizer_bench MILLIONS THREADS [ROUNDS]\n");
    return 2;
  }
  at::set_num_threads(std::atoi(argv[2]));
  lockstep::engine::Measure(std::atoll(argv[1]), argc > 3 ? std::atoi(argv[3]) : 15);
  return 0;
}
