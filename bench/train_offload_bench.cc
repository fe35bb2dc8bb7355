// The CPU's part of an offloaded optimizer step: gradients in host memory, float32 master and moments, updated
// parameters in bf16 to be copied to the device. One fused pass in the chunks of the offloaded updater. One JSON object
// with the median seconds:
//
//   fp32           gradients in float32
//   bf16           gradients in bf16, as they come where the model computes in it
//   norm_and_fp32  the norm of the gradients before it (with a GPU it is computed there)
//
//   train_offload_bench MILLIONS THREADS [ROUNDS]
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "engine/host_memory.h"
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
  FlatParameters::Options options;
  options.host_master = true;
  options.parameters = at::kBFloat16;
  FlatParameters flat = *FlatParameters::Create(module, [](int64_t n) { return at::empty({n}); }, options);
  const at::Tensor gradients = at::rand({flat.owned().numel()});
  const at::Tensor narrow = gradients.to(at::kBFloat16);
  const at::Tensor out = flat.OwnedWorking();
  const size_t count = flat.parameters().size();
  Optimizer optimizer({}, flat.owned(), {GroupSettings{1, 0.01}}, std::vector<int>(count, 0));
  const std::vector<bool> all(count, true);
  const auto pass = [&](const at::Tensor& from, double factor) {
    const int64_t numel = flat.owned().numel();
    for (int64_t begin = (numel - 1) / kHostChunk * kHostChunk; begin >= 0; begin -= kHostChunk) {
      const FlatRange range{begin, std::min(begin + kHostChunk, numel)};
      optimizer.StepChunk(range, 1, factor, all, from.narrow(0, range.begin, range.size()),
                          out.narrow(0, range.begin, range.size()));
    }
    optimizer.EndChunks(all);
  };
  struct Way {
    const char* name;
    std::function<void()> step;
    std::vector<double> seconds;
  };
  std::vector<Way> ways = {{"fp32", [&] { pass(gradients, 0.5); }, {}},
                           {"bf16", [&] { pass(narrow, 0.5); }, {}},
                           {"norm_and_fp32", [&] { pass(gradients, std::min(1.0, 1 / GradientNorm(gradients))); }, {}}};
  for (int round = -2; round < rounds; ++round) {
    for (Way& way : ways) {
      const TimePoint start = Now();
      way.step();
      if (round >= 0) way.seconds.push_back(SecondsSince(start));
    }
  }
  fmt::print("{{\"parameters\": {}", flat.count());
  for (const Way& way : ways) fmt::print(", \"{}\": {:.9f}", way.name, Median(way.seconds));
  fmt::print("}}\n");
}

}  // namespace
}  // namespace lockstep::engine

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: train_offload_bench MILLIONS THREADS [ROUNDS]\n");
    return 2;
  }
  at::set_num_threads(std::atoi(argv[2]));
  lockstep::engine::Measure(std::atoll(argv[1]), argc > 3 ? std::atoi(argv[3]) : 15);
  return 0;
}
