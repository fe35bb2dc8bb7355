// The own part of a rank: shares of several ranks together have the bits of the whole, and parameters in bf16 follow a
// float32 master.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "engine/ema.h"
#include "engine/optimizer.h"

namespace lockstep::engine {
namespace {

constexpr int kOwnedSteps = 5;

struct OwnedNet : torch::nn::Module {
  OwnedNet() {
    for (const int64_t size : {3, 40, 1, 17}) {
      register_parameter("p" + std::to_string(size), at::linspace(-1, 1, size * 7).view({size, 7}));
    }
  }
};

FlatParameters Flatten(OwnedNet& net, const FlatParameters::Options& options) {
  return *FlatParameters::Create(net, [&](int64_t n) { return at::zeros({n}, options.parameters); }, options);
}

FlatParameters::Options Shares(int shares, int share) {
  FlatParameters::Options options;
  options.layout = {.bucket_bytes = 400, .first_bucket_bytes = 100, .shares = shares};
  options.stage = shares == 1 ? Stage::kReplicated : Stage::kOptimizer;
  options.share = share;
  return options;
}

// A gradient that depends on the parameter and the step alone, not on where it lies.
void FillGradients(FlatParameters& flat, int step) {
  flat.ResetGradients();
  for (const FlatParameter& p : flat.parameters()) {
    FlatParameters::View(flat.gradients(), p).copy_(at::sin(at::arange(p.numel).view(p.tensor.sizes()) + step));
  }
  flat.ReadOwnedGradients();
}

struct Trained {
  std::map<std::string, at::Tensor> values, ema, moments;
};

// Adds this rank's segments of a buffer to whole tensors by name.
void Collect(const FlatParameters& flat, const at::Tensor& own, bool in_place,
             std::map<std::string, at::Tensor>* whole) {
  for (const Segment& segment : flat.owned().segments) {
    const FlatParameter& parameter = flat.parameters()[segment.parameter];
    at::Tensor& tensor = (*whole)[parameter.name];
    if (!tensor.defined()) tensor = at::full({parameter.numel}, std::nan(""));
    tensor.narrow(0, segment.flat - parameter.offset, segment.end - segment.begin)
        .copy_(own.narrow(0, in_place ? segment.flat : segment.begin, segment.end - segment.begin));
  }
}

Trained Train(int shares, OptimizerConfig::Kind kind) {
  Trained trained;
  for (int share = 0; share < shares; ++share) {
    OwnedNet net;
    FlatParameters flat = Flatten(net, Shares(shares, share));
    OptimizerConfig config;
    config.kind = kind;
    config.lr = 0.1;
    config.momentum = 0.9;
    // Two groups, one parameter that sits out every second step.
    Optimizer optimizer(config, flat.owned(), {{1, 0.01}, {0.5, 0}}, {0, 1, 0, 1});
    Ema ema({.decay = 0.9}, flat.owned());
    for (int step = 0; step < kOwnedSteps; ++step) {
      FillGradients(flat, step);
      optimizer.Step(1, 0.7, {true, true, step % 2 == 0, true});
      ema.Update();
    }
    Collect(flat, flat.owned().values, flat.owned().values_in_place, &trained.values);
    Collect(flat, ema.values(), false, &trained.ema);
    Collect(flat, optimizer.slots()[0].own, false, &trained.moments);
  }
  return trained;
}

TEST(OwnedParameters, SharesOfAllRanksHaveTheBitsOfTheWhole) {
  for (const auto kind : {OptimizerConfig::Kind::kAdamW, OptimizerConfig::Kind::kSgd}) {
    const Trained whole = Train(1, kind);
    for (const int shares : {2, 3, 4}) {
      const Trained parts = Train(shares, kind);
      for (const auto& [name, tensor] : whole.values) {
        EXPECT_TRUE(at::equal(parts.values.at(name), tensor)) << name << " on " << shares;
        EXPECT_TRUE(at::equal(parts.ema.at(name), whole.ema.at(name))) << name << " on " << shares;
        EXPECT_TRUE(at::equal(parts.moments.at(name), whole.moments.at(name))) << name << " on " << shares;
      }
    }
  }
}

TEST(OwnedParameters, KeepAShareOfTheState) {
  OwnedNet net;
  FlatParameters flat = Flatten(net, Shares(4, 1));
  EXPECT_EQ(flat.owned().numel() * 4, flat.numel());
  Optimizer optimizer({}, flat.owned(), {{1, 0}}, {0, 0, 0, 0});
  for (const Optimizer::Slot& slot : optimizer.slots()) EXPECT_EQ(slot.own.numel(), flat.owned().numel());
}

TEST(OwnedParameters, LieInTheWholeBuffersWhereThoseAreThere) {
  OwnedNet net;
  FlatParameters flat = Flatten(net, Shares(4, 1));
  EXPECT_EQ(flat.owned().values.data_ptr(), flat.values().data_ptr());
  EXPECT_EQ(flat.owned().gradients.data_ptr(), flat.gradients().data_ptr());
  int64_t n = 0;
  for (const auto& [begin, part] : flat.owned().ValueParts()) {
    EXPECT_EQ(begin, n);
    n += part.numel();
  }
  EXPECT_EQ(n, flat.owned().numel());
}

TEST(OwnedParameters, AreTheBuffersThemselvesWhereNothingIsShared) {
  OwnedNet net;
  FlatParameters flat = Flatten(net, Shares(1, 0));
  EXPECT_EQ(flat.owned().values.data_ptr(), flat.values().data_ptr());
  EXPECT_EQ(flat.owned().gradients.data_ptr(), flat.gradients().data_ptr());
}

TEST(OwnedParameters, InBf16FollowAFloat32Master) {
  OwnedNet net, reference;
  FlatParameters::Options options = Shares(1, 0);
  FlatParameters exact = Flatten(reference, options);
  options.parameters = at::kBFloat16;
  FlatParameters flat = Flatten(net, options);
  Optimizer ours({.lr = 1e-4}, flat.owned(), {{1, 0}}, {0, 0, 0, 0});
  Optimizer theirs({.lr = 1e-4}, exact.owned(), {{1, 0}}, {0, 0, 0, 0});
  for (const auto& parameter : net.parameters()) EXPECT_EQ(parameter.scalar_type(), at::kBFloat16);
  for (int step = 0; step < kOwnedSteps; ++step) {
    FillGradients(flat, step);
    FillGradients(exact, step);
    exact.gradients().copy_(exact.gradients().to(at::kBFloat16));  // what the other was given
    ours.Step(1, 1, {true, true, true, true});
    theirs.Step(1, 1, {true, true, true, true});
    flat.WriteOwnedValues();
  }
  EXPECT_TRUE(at::equal(flat.owned().values, exact.values())) << "steps too small for bf16 are not lost";
  EXPECT_TRUE(at::equal(flat.values(), exact.values().to(at::kBFloat16)));
}

}  // namespace
}  // namespace lockstep::engine
