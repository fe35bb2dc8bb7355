// LPIPS against PyTorch modules written from its description (tests/golden/lpips.py). The weights come from a formula
// both sides compute.
#include "media/lpips.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/safetensors.h"
#include "golden/golden.h"

namespace lockstep::media {
namespace {

using models::NamedTensors;
using testing::HasSubstr;

at::Tensor Numbers(int64_t count, double salt) {
  const at::Tensor x = at::sin(at::arange(count, at::kDouble) * 12.9898 + salt) * 43758.5453;
  return x - x.floor() - 0.5;
}

struct Conv {
  int number;
  std::vector<int64_t> shape;
};
const Conv kConvs[] = {
    {0, {64, 3, 11, 11}}, {3, {192, 64, 5, 5}}, {6, {384, 192, 3, 3}}, {8, {256, 384, 3, 3}}, {10, {256, 256, 3, 3}}};

// As torchvision and lpips name them, or as the state dict of lpips' whole module does.
NamedTensors AlexNet(bool whole = false) {
  NamedTensors weights;
  for (int k = 0; k < 5; ++k) {
    const auto& [number, shape] = kConvs[k];
    const int64_t fan = shape[1] * shape[2] * shape[3];
    const std::string name = whole ? fmt::format("net.slice{}.{}", k + 1, number) : fmt::format("features.{}", number);
    weights.emplace_back(
        name + ".weight",
        (Numbers(shape[0] * fan, k + 1) * std::sqrt(24.0 / static_cast<double>(fan))).to(at::kFloat).view(shape));
    weights.emplace_back(name + ".bias", (Numbers(shape[0], k + 11) * 0.2).to(at::kFloat));
  }
  return weights;
}

NamedTensors Lins(const std::string& form = "lin{}.model.1.weight") {
  NamedTensors weights;
  for (int k = 0; k < 5; ++k) {
    weights.emplace_back(fmt::format(fmt::runtime(form), k),
                         (Numbers(kConvs[k].shape[0], k + 21) + 0.5).to(at::kFloat).view({1, -1, 1, 1}));
  }
  return weights;
}

NamedTensors Both(NamedTensors a, const NamedTensors& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::pair<at::Tensor, at::Tensor> Pictures(int64_t n, int64_t height, int64_t width) {
  const auto levels = [&](double salt) {
    return ((Numbers(9 * height * width, salt) + 0.5) * 255).round().view({1, 3, 3, height, width});
  };
  const at::Tensor a = levels(static_cast<double>(31 + n));
  return {a / 255, (a + levels(static_cast<double>(41 + n)) * 0.2 - 25).round().clamp(0, 255) / 255};
}

TEST(Lpips, EqualsTheModuleWrittenFromItsDescription) {
  const Lpips lpips = *Lpips::FromTensors(Both(AlexNet(), Lins()), "x");
  int64_t n = 0;
  for (const nlohmann::json& row : golden::Json("lpips")) {
    const auto [a, b] = Pictures(n++, row["height"], row["width"]);
    // Three pictures as clips of one frame, then as one clip: its distance is their mean.
    const at::Tensor each = lpips(a.transpose(0, 1), b.transpose(0, 1));
    double mean = 0;
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(each[i].item<double>(), row["distance"][i].get<double>(), 1e-5 * row["distance"][i].get<double>());
      mean += row["distance"][i].get<double>() / 3;
    }
    EXPECT_NEAR(lpips(a, b)[0].item<double>(), mean, 1e-5 * mean);
  }
  EXPECT_EQ(n, 4);
}

TEST(Lpips, SeesTheRangeTheScalingAndTheCalibration) {
  const auto [a, b] = Pictures(0, 64, 64);
  const Lpips lpips = *Lpips::FromTensors(Both(AlexNet(), Lins()), "x");
  const double right = lpips(a, b)[0].item<double>();
  EXPECT_EQ(lpips(a, a)[0].item<double>(), 0);
  EXPECT_NEAR(lpips(b, a)[0].item<double>(), right, 1e-6);
  EXPECT_EQ(lpips(a, b)[0].item<double>(), lpips(a + 0.3 / 255, b)[0].item<double>());  // less than half a level
  NamedTensors other = Both(AlexNet(), Lins());
  other.back().second = other.back().second * 2;
  EXPECT_GT(std::abs((*Lpips::FromTensors(other, "x"))(a, b)[0].item<double>() - right), 1e-3 * right);
}

TEST(Lpips, AcceptsEveryNamingInOneFileOrTwo) {
  const auto [a, b] = Pictures(1, 40, 50);
  const double right = (*Lpips::FromTensors(Both(AlexNet(), Lins()), "x"))(a, b)[0].item<double>();
  NamedTensors whole = Both(AlexNet(true), Lins("lins.{}.model.1.weight"));
  whole.emplace_back("scaling_layer.shift", at::zeros({1, 3, 1, 1}));
  whole.emplace_back("classifier.1.weight", at::zeros({4, 4}));
  for (const NamedTensors& weights :
       {whole, Both(AlexNet(true), Lins()), Both(Lins("lin{}.model.0.weight"), AlexNet())})
    EXPECT_EQ((*Lpips::FromTensors(weights, "x"))(a, b)[0].item<double>(), right);
  const TempDir dir = *TempDir::Create();
  std::vector<std::string> files;
  for (const NamedTensors& weights : {AlexNet(), Lins()}) {
    std::vector<TensorSpec> specs;
    for (const auto& [name, tensor] : weights) specs.push_back({name, Dtype::kF32, tensor.sizes().vec()});
    files.push_back(dir / fmt::format("{}.safetensors", files.size()));
    auto writer = *SafetensorsWriter::Create(files.back(), specs);
    for (const auto& [name, tensor] : weights)
      ASSERT_TRUE(writer.Write(name, tensor.data_ptr(), static_cast<size_t>(tensor.nbytes())).ok());
    ASSERT_TRUE(writer.Finish().ok());
  }
  EXPECT_EQ((*Lpips::Load(files))(a, b)[0].item<double>(), right);
  EXPECT_THAT(Lpips::Load({files[0]}).status().ToString(), HasSubstr("AlexNet alone"));
}

TEST(Lpips, AWrongFileIsNamedWithWhatItMisses) {
  const auto error = [](const NamedTensors& weights) {
    return Lpips::FromTensors(weights, "w.pth").status().ToString();
  };
  EXPECT_THAT(error(AlexNet()), HasSubstr("w.pth: 5 of the 15 tensors of LPIPS are missing: lin0.model.1.weight"));
  EXPECT_THAT(error(Lins()), HasSubstr("calibration weights alone"));
  EXPECT_THAT(error({}), HasSubstr("15 of the 15"));
  NamedTensors cut = Both(AlexNet(), Lins());
  cut.erase(cut.begin() + 3);
  EXPECT_THAT(error(cut), HasSubstr("1 of the 15 tensors of LPIPS are missing: features.3.bias"));
  NamedTensors vgg = Both(AlexNet(), Lins());
  vgg[0].second = at::zeros({64, 3, 3, 3});
  EXPECT_THAT(error(vgg), HasSubstr("features.0.weight has the shape [64, 3, 3, 3], expected [64, 3, 11, 11]"));
  EXPECT_THAT(error(vgg), HasSubstr("VGG"));
  EXPECT_THAT(Lpips::Load({"/nonexistent.pth"}).status().ToString(), HasSubstr("/nonexistent.pth"));
}

TEST(Lpips, FramesTooSmallForTheNetworkAreRefused) {
  const Lpips lpips = *Lpips::FromTensors(Both(AlexNet(), Lins()), "x");
  EXPECT_THROW(lpips(at::zeros({1, 1, 3, 30, 64}), at::zeros({1, 1, 3, 30, 64})), c10::Error);
  EXPECT_THROW(lpips(at::zeros({1, 1, 3, 64, 64}), at::zeros({1, 1, 3, 64, 65})), c10::Error);
  EXPECT_NO_THROW(lpips(at::zeros({1, 1, 3, 31, 31}), at::zeros({1, 1, 3, 31, 31})));
}

}  // namespace
}  // namespace lockstep::media
