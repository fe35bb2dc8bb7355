// VRT against an independent implementation (tests/golden/vrt.py) in every variant: names, counts, outputs, gradients
// of all parameters, steps of Adam.
#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include "models/vrt_golden.h"

namespace lockstep::models {
namespace {

constexpr double kAllowed = 1e-6;

at::Tensor Five(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().flatten().to(at::kDouble);
  const at::Tensor at = at::div(at::arange(4) * (flat.numel() - 1), 3, "floor");
  return at::cat({flat.norm().unsqueeze(0), flat.index_select(0, at)});
}

at::Tensor Some(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().flatten();
  return flat.index_select(0, at::div(at::arange(256) * (flat.numel() - 1), 255, "floor"));
}

// Every row by its own scale, but none that is a thousandth of the largest: gradients that are zero but for rounding.
double Rows(const std::vector<at::Tensor>& found, const at::Tensor& expected) {
  if (static_cast<int64_t>(found.size()) != expected.size(0)) return INFINITY;
  const at::Tensor truth = expected.to(at::kDouble), largest = truth.abs().amax(1);
  const at::Tensor scale = largest.clamp_min(1e-3 * largest.max().item<double>());
  return ((at::stack(found) - truth).abs().amax(1) / scale).max().item<double>();
}

class VrtGolden : public testing::TestWithParam<const char*> {
 protected:
  VrtGolden() : it(GetParam()) {}
  std::vector<at::Tensor> Gradients() const {
    std::vector<at::Tensor> rows;
    for (const auto& [name, tensor] : it.Sorted()) rows.push_back(Five(tensor.grad()));
    return rows;
  }
  VrtCase it;
};

TEST_P(VrtGolden, NamesOutputsGradientsAndStepsAreThoseOfPyTorch) {
  std::string names;
  int64_t count = 0;
  std::vector<at::Tensor> trained;
  for (const auto& [name, tensor] : it.Sorted()) {
    names += fmt::format("{} [{}]\n", name, fmt::join(tensor.sizes(), ", "));
    count += tensor.numel();
    if (!name.starts_with("spynet.")) trained.push_back(tensor);
  }
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : names) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  EXPECT_EQ(fmt::format("{:016x}", hash), it.row["names"].get<std::string>()) << names;
  EXPECT_EQ(count, it.row["parameters"].get<int64_t>());
  EXPECT_EQ(it.model->Draws(), it.row["draws"].get<int64_t>());

  const at::Tensor single = it.model->Forward(it.clips, it.draws);
  EXPECT_LT(golden::Distance(Some(single), it.expected.at("output")), 2e-5);
  it.model->to(at::kDouble);
  const at::Tensor clips = it.clips.to(at::kDouble);
  const std::vector<double> losses = it.row["loss"];
  torch::optim::Adam adam(trained, torch::optim::AdamOptions(1e-3).eps(1e-4));
  std::vector<double> found;
  for (size_t step = 0; step < losses.size(); ++step) {
    const at::Tensor out = it.model->Forward(clips, it.draws);
    const at::Tensor loss = it.Loss(out);
    it.model->zero_grad();
    loss.backward();
    if (step == 0) {
      EXPECT_LT(golden::Distance(Some(out), it.expected.at("output")), kAllowed);
      EXPECT_LT(Rows(Gradients(), it.expected.at("gradients")), 10 * kAllowed);
    }
    found.push_back(loss.item<double>());
    adam.step();
  }
  EXPECT_LT(golden::Distance(at::tensor(found), at::tensor(losses)), kAllowed);
  std::vector<at::Tensor> ends;
  for (const auto& [name, tensor] : it.Sorted()) ends.push_back(Five(tensor));
  EXPECT_LT(Rows(ends, it.expected.at("ends")), 10 * kAllowed);
}

// Each prefix is one test of ctest.
#define LOCKSTEP_CASE(prefix, name) INSTANTIATE_TEST_SUITE_P(prefix, VrtGolden, testing::Values(name))
LOCKSTEP_CASE(Deblur, "deblur");
LOCKSTEP_CASE(Spike, "spike");
LOCKSTEP_CASE(Denoise, "denoise");
LOCKSTEP_CASE(Upscale4, "sr4");
LOCKSTEP_CASE(Upscale3, "sr3");
LOCKSTEP_CASE(Interpolate, "interpolate");
LOCKSTEP_CASE(Steps, "steps");

TEST(VrtGoldenControl, OneWeightOffIsNoticed) {
  const VrtCase it("denoise");
  {
    const torch::NoGradGuard no_grad;
    it.model->named_parameters()["stage4.residual_group1.blocks.0.attn.qkv_mut.bias"].add_(0.5);
  }
  const at::Tensor out = it.model->Forward(it.clips, it.draws);
  EXPECT_GT(golden::Distance(Some(out), it.expected.at("output")), 1e-4);
}

}  // namespace
}  // namespace lockstep::models
