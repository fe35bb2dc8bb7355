// Every variant at its full size against an independent implementation (tests/golden/variants.py): counts, names, drawn
// weights, outputs and gradients.
#include <gtest/gtest.h>

#include "golden/golden.h"
#include "models/taehv.h"

namespace lockstep::models {
namespace {

at::Tensor Digests(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& tensor : tensors) rows.push_back(golden::Digest(tensor));
  return at::stack(rows);
}

// Row by row: every tensor has its own scale.
double RowDistance(const at::Tensor& found, const at::Tensor& expected) {
  double largest = found.sizes() == expected.sizes() ? 0 : INFINITY;
  for (int64_t i = 0; i < expected.size(0); ++i) largest = std::max(largest, golden::Distance(found[i], expected[i]));
  return largest;
}

class TaehvVariant : public testing::TestWithParam<const char*> {
 protected:
  TaehvVariant() : doc(golden::Json("taehv_variants")), row(doc["variants"][GetParam()]) {
    at::set_num_threads(1);
    for (const auto& [name, tensor] : golden::Tensors("taehv_variants")) {
      std::string prefix = std::string(GetParam()) + ".";
      if (name.starts_with(prefix)) expected[name.substr(prefix.size())] = tensor;
    }
  }
  void Check(Taehv& model, bool same) {
    at::Tensor latents = model.Encode(expected.at("frames")), decoded = model.Decode(latents);
    ((decoded - 0.3).square().mean() + 0.1 * latents.square().mean()).backward();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : model.parameters()) gradients.push_back(parameter.grad());
    const auto& noise = row["noise"];
    EXPECT_EQ(golden::Distance(latents, expected.at("latents")) < golden::Allowed(noise["latents"]), same);
    EXPECT_EQ(golden::Distance(decoded, expected.at("decoded")) < golden::Allowed(noise["decoded"]), same);
    EXPECT_EQ(RowDistance(Digests(gradients), expected.at("gradients")) < golden::Allowed(noise["gradients"]), same);
  }
  nlohmann::json doc, row;
  std::map<std::string, at::Tensor> expected;
};

TEST_P(TaehvVariant, HasTheNamesCountsAndDrawnBitsOfPyTorch) {
  Taehv model(*FindTaehv(GetParam()), doc["seed"]);
  std::vector<std::string> names;
  std::map<std::string, int64_t> count;
  std::vector<at::Tensor> parameters;
  for (const auto& item : model.named_parameters()) {
    names.push_back(item.key());
    count[item.key().substr(0, 8)] += item.value().numel();
    parameters.push_back(item.value());
  }
  EXPECT_EQ(names, row["names"].get<std::vector<std::string>>());
  EXPECT_EQ(count, (row["parameters"].get<std::map<std::string, int64_t>>()));
  at::Tensor found = Digests(parameters).to(at::kFloat);
  EXPECT_TRUE(at::equal(found.narrow(1, 1, 8), expected.at("drawn").narrow(1, 1, 8)));  // the values; norms are sums
}

TEST_P(TaehvVariant, GivesTheOutputsAndGradientsOfPyTorch) {
  Taehv model(*FindTaehv(GetParam()), doc["seed"]);
  model.StartNearIdentity();
  Check(model, true);
}

TEST_P(TaehvVariant, OneWeightOffIsNoticed) {
  Taehv model(*FindTaehv(GetParam()), doc["seed"]);
  model.StartNearIdentity();
  {
    torch::NoGradGuard no_grad;
    model.named_parameters()["encoder.4.conv.4.bias"].add_(0.01);
  }
  Check(model, false);
}

INSTANTIATE_TEST_SUITE_P(Goldens, TaehvVariant,
                         testing::Values("taehv", "taecvx", "taehv1_5", "taew2_2", "taeh3", "taeltx_2",
                                         "taehv1_5_super", "taew2_2_super"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lockstep::models
