// VRT on a GPU in half precision, by its own kernels, against itself on the CPU in float32. For builds with CUDA.
#ifdef LOCKSTEP_CUDA
#include <ATen/autocast_mode.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/vrt.h"
#include "models/vrt_fused.h"

namespace lockstep::models {
namespace {

struct VrtAutocast {
  explicit VrtAutocast(at::ScalarType type) {
    at::autocast::set_autocast_enabled(at::kCUDA, true);
    at::autocast::set_autocast_dtype(at::kCUDA, type);
  }
  ~VrtAutocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCUDA, false);
  }
};

VrtConfig GpuVrt(std::array<int64_t, 3> window, int64_t width, int64_t last) {
  VrtConfig config = *FindVrt("006");
  config.window_size = window;
  config.img_size = {6, 64, 64};
  config.embed_dims = {width, width, width, width, width, width, width, last, last};
  config.depths = {4, 4, 4, 4, 4, 4, 4, 2, 2};
  config.num_heads = std::vector<int64_t>(9, 6);
  config.indep_reconsts = {8};
  config.deformable_groups = 12;
  config.no_checkpoint_attn_blocks = config.no_checkpoint_ffn_blocks = {};
  config.drop_path_rate = 0.2;
  return config;
}

double Apart(const at::Tensor& mine, const at::Tensor& expected) {
  const at::Tensor a = mine.detach().cpu().to(at::kDouble), b = expected.detach().cpu().to(at::kDouble);
  return (a - b).norm().item<double>() / (b.norm().item<double>() + 1e-12);
}

struct BlockCase {
  const char* what;
  std::array<int64_t, 3> window, clip;
  int64_t width, last;
};

TEST(VrtOnAGpu, BlocksAreThoseOfTheCpu) {
  if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  const BlockCase cases[] = {{"whole windows", {6, 8, 8}, {6, 32, 24}, 96, 120},
                             {"padded clips", {6, 8, 8}, {8, 20, 28}, 96, 120},
                             {"clips shorter than the window", {6, 8, 8}, {4, 16, 16}, 120, 180},
                             {"wider rows in whole windows", {6, 8, 8}, {12, 24, 16}, 120, 180},
                             {"windows of four frames", {4, 8, 8}, {8, 16, 24}, 48, 60}};
  for (const BlockCase& c : cases) {
    const VrtConfig config = GpuVrt(c.window, c.width, c.last);
    Vrt host(config, 3), device(config, 3);
    host.train();
    device.train();
    device.to(at::kCUDA);
    at::manual_seed(1);
    struct Row {
      const char* name;
      const vrt::Tmsa *host, *device;
    };
    const auto& one = host.stage(0);
    const auto& two = device.stage(0);
    const Row rows[] = {{"mutual", one.residual_group1->blocks[0].get(), two.residual_group1->blocks[0].get()},
                        {"mutual, shifted", one.residual_group1->blocks[1].get(), two.residual_group1->blocks[1].get()},
                        {"self", one.residual_group2->blocks[0].get(), two.residual_group2->blocks[0].get()}};
    for (const Row& row : rows) {
      const at::Tensor x = at::randn({2, c.clip[0], c.clip[1], c.clip[2], c.width});
      const at::Tensor weight = at::randn(x.sizes());
      const at::Tensor factors = host.Factors(at::rand({2, host.Draws()}), at::kFloat);
      const at::Tensor here = x.clone().requires_grad_(true), there = x.to(at::kCUDA).detach().requires_grad_(true);
      host.zero_grad();
      device.zero_grad();
      const at::Tensor expected = row.host->Forward(here, {{}, factors, {}});
      (expected * weight).sum().backward();
      at::Tensor mine, bare;  // bare: of a pass that keeps nothing, which has other kernels
      {
        const VrtAutocast autocast(at::kBFloat16);
        ASSERT_TRUE(vrt::Fuses(*row.device->norm1, *row.device->attn, there));
        mine = row.device->Forward(there, {{}, factors.to(at::kCUDA), {}});
        const at::NoGradGuard none;
        bare = row.device->Forward(there, {{}, factors.to(at::kCUDA), {}});
      }
      (mine.to(at::kFloat) * weight.to(at::kCUDA)).sum().backward();
      const std::string where = fmt::format("{}, {}", c.what, row.name);
      EXPECT_LT(Apart(mine, expected), 6e-3) << where;
      EXPECT_LT(Apart(bare, expected), 6e-3) << where;
      EXPECT_LT(Apart(there.grad(), here.grad()), 2e-2) << where;
      const auto parameters = row.device->named_parameters();
      for (const auto& item : row.host->named_parameters()) {
        ASSERT_TRUE(parameters[item.key()].grad().defined()) << item.key();
        EXPECT_LT(Apart(parameters[item.key()].grad(), item.value().grad()), 3e-2) << where << ", " << item.key();
      }
    }
  }
}

TEST(VrtOnAGpu, TheWholeModelIsThatOfTheCpu) {
  if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const VrtConfig config = GpuVrt({6, 8, 8}, 96, 120);
    Vrt host(config, 5), device(config, 5);
    host.eval();
    device.eval();
    device.to(at::kCUDA);
    at::manual_seed(2);
    const at::Tensor clips = at::rand({1, 6, 3, 64, 72}), target = at::rand({1, 6, 3, 64, 72});
    const at::Tensor expected = host.Forward(clips);
    (expected - target).square().mean().backward();
    at::Tensor mine;
    {
      const VrtAutocast autocast(type);
      mine = device.Forward(clips.to(at::kCUDA));
    }
    const double scale = type == at::kHalf ? 1024 : 1;
    ((mine.to(at::kFloat) - target.to(at::kCUDA)).square().mean() * scale).backward();
    EXPECT_LT(Apart(mine, expected), 2e-2);
    const auto parameters = device.named_parameters();
    double sum = 0, count = 0;
    std::string worst;
    double largest = 0;
    for (const auto& item : host.named_parameters()) {
      if (!item.value().grad().defined() || item.value().grad().norm().item<double>() < 1e-9) continue;
      ASSERT_TRUE(parameters[item.key()].grad().defined()) << item.key();
      const double apart = Apart(parameters[item.key()].grad() / scale, item.value().grad());
      sum += apart, ++count;
      if (apart > largest) largest = apart, worst = item.key();
    }
    EXPECT_LT(sum / count, 5e-2) << "worst " << worst << " " << largest;
    EXPECT_LT(largest, 0.3) << worst;
    RecordProperty("worst", fmt::format("{} {}", worst, largest));
  }
}

}  // namespace
}  // namespace lockstep::models
#endif
