// Our TAEHV beside upstream's own code, which is not part of this tree: run by hand, see tests/golden/upstream.py.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "golden/golden.h"
#include "models/taehv.h"

namespace lockstep::models {
namespace {

TEST(TaehvUpstream, DISABLED_WeightsForwardAndGradientsAgree) {
  const char* folder = getenv("LOCKSTEP_UPSTREAM");
  ASSERT_NE(folder, nullptr) << "run tests/golden/upstream.py first";
  for (const char* name : {"taehv", "taecvx", "taehv1_5", "taew2_2", "taeh3", "taeltx_2"}) {
    auto expected = golden::ReadTensors(fmt::format("{}/{}.safetensors", folder, name));
    Taehv model(*FindTaehv(name), 7), loaded(*FindTaehv(name), 8);
    NamedTensors drawn;
    for (const auto& [key, tensor] : expected) {
      if (key.starts_with("drawn.")) drawn.emplace_back(key.substr(6), tensor);
    }
    EXPECT_GT(golden::Distance(loaded.Encode(expected.at("frames")), expected.at("latents")), 1e-3) << "before loading";
    Status status = loaded.Load(drawn);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (const auto& item : model.named_parameters()) {
      EXPECT_TRUE(at::equal(item.value(), loaded.named_parameters()[item.key()])) << name << " " << item.key();
    }
    loaded.SetOutputBias(0.5);
    at::Tensor latents = loaded.Encode(expected.at("frames")), decoded = loaded.Decode(latents);
    (decoded.square().mean() + latents.square().mean()).backward();
    double forward =
        std::max(golden::Distance(latents, expected.at("latents")), golden::Distance(decoded, expected.at("decoded")));
    double gradient = 0;
    for (const auto& item : loaded.named_parameters()) {
      gradient = std::max(gradient, golden::Distance(item.value().grad(), expected.at("gradient." + item.key())));
    }
    fmt::print("{}: latents and frames {:.2g}, gradients {:.2g}\n", name, forward, gradient);
    EXPECT_LT(forward, 1e-6) << name;
    EXPECT_LT(gradient, 1e-5) << name;
  }
}

}  // namespace
}  // namespace lockstep::models
