// Units of a model between a strategy's calls: the order of the calls, and a model whose parameters exist only there.
#include "engine/unit_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

namespace lockstep::engine {
namespace {

using testing::ElementsAre;

// Parameters of a unit are not numbers outside of it. The rest of a strategy's work is none here.
class OnlyInside : public Replicated {
 public:
  explicit OnlyInside(std::vector<torch::nn::Linear> units) : Replicated(nullptr, nullptr), units_(std::move(units)) {
    for (size_t i = 0; i < units_.size(); ++i) {
      for (const at::Tensor& p : units_[i]->parameters()) whole_.push_back(p.detach().clone());
      Release(i);
    }
  }
  bool wraps_units() const override { return true; }
  void BeforeUnit(size_t unit, Phase phase) override {
    calls.push_back((phase == Phase::kForward ? "forward " : "backward ") + std::to_string(unit));
    size_t at = unit * 2;
    for (const at::Tensor& p : units_[unit]->parameters()) p.variable_data().copy_(whole_[at++]);
  }
  void AfterUnit(size_t unit, Phase phase) override {
    calls.push_back((phase == Phase::kForward ? "end forward " : "end backward ") + std::to_string(unit));
    Release(unit);
  }

  void BeginStep() override {}
  void BeginBackward(bool /*last*/) override {}
  Status EndBackward(Backward /*outcome*/) override { return Status::Ok(); }
  Status FinishGradients() override { return Status::Ok(); }
  bool captures_exchange() const override { return false; }
  void BeginCapture(bool /*last*/) override {}
  Status EndCapture(bool /*last*/) override { return Status::Ok(); }
  Status Replayed(bool /*last*/) override { return Status::Ok(); }
  void TrainableChanged() override {}
  const std::vector<bool>& used() const override { return used_; }
  double exposed_seconds() const override { return 0; }

  std::vector<std::string> calls;

 private:
  void Release(size_t unit) {
    for (const at::Tensor& p : units_[unit]->parameters()) p.variable_data().fill_(std::nan(""));
  }
  std::vector<torch::nn::Linear> units_;
  std::vector<at::Tensor> whole_;
  std::vector<bool> used_;
};

struct UnitGradients {
  std::vector<at::Tensor> all;
  std::vector<std::string> calls;
};

UnitGradients GradientsOf(bool wrapped, bool recompute) {
  torch::manual_seed(3);
  std::vector<torch::nn::Linear> units;
  for (int i = 0; i < 3; ++i) units.emplace_back(4, 4);
  const at::Tensor input = at::linspace(-1, 1, 8).view({2, 4});
  OnlyInside strategy(wrapped ? units : std::vector<torch::nn::Linear>());
  const UnitRunner run = MakeUnitRunner(wrapped ? &strategy : nullptr, recompute);
  at::Tensor x = input;
  for (size_t i = 0; i < units.size(); ++i) {
    x = run(i, [&, i](const at::Tensor& y) { return units[i]->forward(y).tanh(); }, x);
  }
  x.sum().backward();
  UnitGradients found{{}, strategy.calls};
  for (const auto& unit : units) {
    for (const at::Tensor& p : unit->parameters()) found.all.push_back(p.grad());
  }
  return found;
}

TEST(UnitRunner, ParametersAreNeededBetweenTheCallsOnly) {
  const UnitGradients plain = GradientsOf(false, false);
  for (const bool recompute : {false, true}) {
    const UnitGradients wrapped = GradientsOf(true, recompute);
    // The input of the first unit needs no gradient: its end is the end of backward.
    EXPECT_THAT(wrapped.calls,
                ElementsAre("forward 0", "end forward 0", "forward 1", "end forward 1", "forward 2", "end forward 2",
                            "backward 2", "end backward 2", "backward 1", "end backward 1", "backward 0"))
        << recompute;
    ASSERT_EQ(wrapped.all.size(), plain.all.size());
    for (size_t i = 0; i < plain.all.size(); ++i) {
      ASSERT_TRUE(wrapped.all[i].defined()) << i;
      EXPECT_TRUE(at::equal(wrapped.all[i], plain.all[i])) << i << " " << recompute;
    }
  }
}

TEST(UnitRunner, UnitsThatKeepTheirActivationsRunOnce) {
  for (const bool wrapped : {false, true}) {
    std::vector<torch::nn::Linear> units{torch::nn::Linear(2, 2), torch::nn::Linear(2, 2)};
    OnlyInside strategy(wrapped ? units : std::vector<torch::nn::Linear>());
    const UnitRunner run = MakeUnitRunner(wrapped ? &strategy : nullptr, true, {}, {false, true});
    std::vector<int> forwards(2);
    at::Tensor x = at::ones({1, 2});
    for (size_t i = 0; i < units.size(); ++i) {
      x = run(i, [&, i](const at::Tensor& y) { return ++forwards[i], units[i]->forward(y); }, x);
    }
    x.sum().backward();
    EXPECT_THAT(forwards, ElementsAre(2, 1)) << wrapped;
  }
}

TEST(UnitRunner, WithoutGradientsOnlyForwardIsCalled) {
  const at::NoGradGuard no_grad;
  std::vector<torch::nn::Linear> units{torch::nn::Linear(2, 2)};
  OnlyInside strategy(units);
  const at::Tensor y =
      MakeUnitRunner(&strategy, true)(0, [&](const at::Tensor& x) { return units[0]->forward(x); }, at::ones({1, 2}));
  EXPECT_FALSE(y.isnan().any().item<bool>());
  EXPECT_THAT(strategy.calls, ElementsAre("forward 0", "end forward 0"));
}

}  // namespace
}  // namespace lockstep::engine
