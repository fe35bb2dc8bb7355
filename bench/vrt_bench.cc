// One training step of VRT without neighbours (the shape of 009: no SpyNet, no deformable convolution), one of
// deblurring (006: with both), and the deformable convolution alone, forward and backward, in milliseconds.
// bench/vrt_step.py runs it beside PyTorch.
//
//   vrt_bench THREADS REPEATS
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/optim/adam.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <vector>

#include "models/deformable.h"
#include "models/vrt.h"

namespace {

// The fastest of all: other programs on the machine only add.
double Milliseconds(int repeats, const std::function<void()>& work) {
  work();
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

// A training step of this model at 4 x 64 x 64 with two blocks a stage.
double StepOf(const char* name, int repeats) {
  using lockstep::models::Vrt;
  lockstep::models::VrtConfig config = *lockstep::models::FindVrt(name);
  config.img_size = {4, 64, 64};
  config.window_size = {4, 8, 8};
  config.depths.assign(11, 2);
  config.mul_attn_ratio = 0.5;
  config.drop_path_rate = 0;
  Vrt model(config, 1);
  torch::optim::Adam adam(model.parameters(), torch::optim::AdamOptions(1e-4));
  const at::Tensor clips = at::rand({1, 4, 3, 64, 64});
  return Milliseconds(repeats, [&] {
    adam.zero_grad();
    (model.Forward(clips).square() + 1e-6).sqrt().mean().backward();
    adam.step();
  });
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::models;  // NOLINT(google-build-using-namespace)
  const int threads = argc > 1 ? atoi(argv[1]) : 2, repeats = argc > 2 ? atoi(argv[2]) : 3;
  at::set_num_threads(threads);
  const double step = StepOf("009", repeats), deblur = StepOf("006", repeats);
  const auto input = [](at::IntArrayRef shape, double scale) {
    return (at::randn(shape) * scale).requires_grad_(true);
  };
  const DeformableArgs args{input({4, 64, 64, 96}, 1), input({4, 64, 64, 288}, 3), input({4, 64, 64, 144}, 1),
                            input({96, 96, 3, 3}, 0.03), input({96}, 1)};
  const double deformable = Milliseconds(repeats, [&] { DeformableConv(args).sum().backward(); });
  fmt::print("{{\"step_ms\": {:.1f}, \"deblur_ms\": {:.1f}, \"deformable_ms\": {:.1f}, \"threads\": {}}}\n", step,
             deblur, deformable, threads);
  return 0;
}
