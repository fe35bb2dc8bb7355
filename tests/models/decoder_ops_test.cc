// The decoder's own functions against the same written with ATen and its autograd; the loss against cross_entropy, and
// what it allocates.
#include "models/decoder_ops.h"

#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "models/linear_cross_entropy.h"

namespace lockstep::models {
namespace {

using OpTensors = std::vector<at::Tensor>;
using OpCompute = std::function<OpTensors(const OpTensors&)>;

// Outputs, then the gradients of all inputs for random gradients of the outputs.
OpTensors EvaluateOp(const OpCompute& compute, const OpTensors& inputs) {
  OpTensors leaves, all;
  for (const at::Tensor& x : inputs) leaves.push_back(x.detach().clone().requires_grad_(true));
  const OpTensors outputs = compute(leaves);
  at::manual_seed(5);
  OpTensors gradients;
  for (const at::Tensor& y : outputs) gradients.push_back(at::randn_like(y));
  torch::autograd::backward(outputs, gradients);
  for (const at::Tensor& y : outputs) all.push_back(y.detach());
  for (const at::Tensor& x : leaves) all.push_back(x.grad());
  return all;
}

at::Tensor PlainNorm(const at::Tensor& x, const at::Tensor& weight) {
  return weight * (x * (x.square().mean(-1, true) + 1e-5).rsqrt());
}

at::Tensor PlainRotate(const at::Tensor& x, const decoder::Rotary& rotary) {
  const auto halves = x.chunk(2, -1);
  return x * at::cat({rotary.cos, rotary.cos}, -1) +
         at::cat({-halves[1], halves[0]}, -1) * at::cat({rotary.sin, rotary.sin}, -1);
}

TEST(DecoderOps, AreThePlainFormulasAndTheirGradients) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({3, 5, 4, 8}), y = at::randn({3, 5, 4, 8}), weight = at::rand({8}) + 0.5;
  const auto rotary = decoder::MakeRotary(at::arange(5).unsqueeze(0) * 7, 8, 1e4, at::kFloat);
  struct Row {
    const char* name;
    OpTensors inputs;
    OpCompute ours, plain;
  };
  const Row rows[] = {
      {"norm",
       {x, weight},
       [](const OpTensors& t) { return OpTensors{decoder::RmsNorm(t[0], t[1], 1e-5)}; },
       [](const OpTensors& t) { return OpTensors{PlainNorm(t[0], t[1])}; }},
      {"add and norm",
       {x, y, weight},
       [](const OpTensors& t) {
         const auto out = decoder::AddRmsNorm(t[0], t[1], t[2], 1e-5);
         return OpTensors{out.sum, out.normed};
       },
       [](const OpTensors& t) { return OpTensors{t[0] + t[1], PlainNorm(t[0] + t[1], t[2])}; }},
      {"rotary",
       {x},
       [&](const OpTensors& t) { return OpTensors{decoder::Rotate(t[0], rotary)}; },
       [&](const OpTensors& t) { return OpTensors{PlainRotate(t[0], rotary)}; }},
      {"swiglu",
       {x, y},
       [](const OpTensors& t) { return OpTensors{decoder::SwiGlu(t[0], t[1])}; },
       [](const OpTensors& t) { return OpTensors{at::silu(t[0]) * t[1]}; }},
  };
  for (const Row& row : rows) {
    const OpTensors found = EvaluateOp(row.ours, row.inputs), expected = EvaluateOp(row.plain, row.inputs);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-5, 1e-6)) << row.name << " " << i;
    }
    OpTensors half;
    for (const at::Tensor& t : row.inputs) half.push_back(t.to(at::kBFloat16));
    const OpTensors narrow = EvaluateOp(row.ours, half);
    for (size_t i = 0; i < narrow.size(); ++i)
      EXPECT_EQ(narrow[i].scalar_type(), at::kBFloat16) << row.name << " " << i;
  }
}

OpCompute LossOf(const at::Tensor& labels, int64_t rows) {
  return [=](const OpTensors& t) { return OpTensors{LinearCrossEntropy(t[0], t[1], labels, rows)}; };
}

TEST(LinearCrossEntropy, IsCrossEntropyOfTheProductInChunksOfAnySize) {
  at::manual_seed(2);
  const at::Tensor hidden = at::randn({13, 6}), weight = at::randn({29, 6});
  at::Tensor labels = at::randint(0, 29, {13});
  for (const int64_t ignored : {0, 4, 5, 12}) labels[ignored] = -100;
  const OpTensors expected =
      EvaluateOp([&](const OpTensors& t) { return OpTensors{at::cross_entropy_loss(at::linear(t[0], t[1]), labels)}; },
                 {hidden, weight});
  for (const int64_t rows : {1, 3, 5, 13, 100, 0}) {
    const OpTensors found = EvaluateOp(LossOf(labels, rows), {hidden, weight});
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-5, 1e-6)) << rows << i;
  }
  const OpTensors none = EvaluateOp(LossOf(at::full_like(labels, -100), 4), {hidden, weight});
  for (const at::Tensor& zero : none) EXPECT_EQ(zero.abs().max().item<double>(), 0) << "no labels: no loss";
  const OpTensors half = EvaluateOp(LossOf(labels, 4), {hidden.to(at::kBFloat16), weight.to(at::kBFloat16)});
  EXPECT_EQ(half[0].scalar_type(), at::kFloat);
  EXPECT_EQ(half[2].scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::allclose(half[0], expected[0], 0.02, 0.02));
  EXPECT_THROW(LinearCrossEntropy(hidden, at::randn({29, 7}), labels), c10::Error);
}

// The largest allocation while it lives.
struct LargestAllocation : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* /*at*/, int64_t bytes, size_t, size_t, c10::Device) override {
    largest = std::max(largest, bytes);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t largest = 0;
};

TEST(LinearCrossEntropy, NeverHasAllLogits) {
  const int64_t tokens = 512, vocabulary = 2000, width = 8;
  at::Tensor hidden = at::randn({tokens, width}).requires_grad_(true);
  at::Tensor weight = at::randn({vocabulary, width}).requires_grad_(true);
  const at::Tensor labels = at::randint(0, vocabulary, {tokens});
  const auto peak = [&](const std::function<at::Tensor()>& compute) {
    const auto largest = std::make_shared<LargestAllocation>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, largest);
    compute().backward();
    return largest->largest;
  };
  const int64_t all = tokens * vocabulary * 4;
  EXPECT_LE(peak([&] { return LinearCrossEntropy(hidden, weight, labels, 16); }), all / 16);
  EXPECT_GE(peak([&] { return at::cross_entropy_loss(at::linear(hidden, weight), labels); }), all) << "the control";
}

}  // namespace
}  // namespace lockstep::models
