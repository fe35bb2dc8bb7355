#include "media/lpips.h"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <map>

#include "base/text.h"
#include "engine/state.h"

namespace lockstep::media {
namespace {

// AlexNet up to its last convolution, in torchvision's version: each row is one convolution with its ReLU, whose output
// is compared; before rows with `pool` the picture is halved by a 3x3 maximum.
struct Layer {
  int number;  // in torchvision's `features`
  int in, out, kernel, stride, padding;
  bool pool;
};
constexpr Layer kAlexNet[] = {{0, 3, 64, 11, 4, 2, false},
                              {3, 64, 192, 5, 1, 2, true},
                              {6, 192, 384, 3, 1, 1, true},
                              {8, 384, 256, 3, 1, 1, false},
                              {10, 256, 256, 3, 1, 1, false}};
constexpr int kSmallest = 31;  // below, nothing is left after the second pooling

using ByName = std::map<std::string, at::Tensor>;

// The tensor under any of its names; `wanted` collects what is missing under its first.
Status Take(const ByName& weights, const std::vector<std::string>& names, at::IntArrayRef shape, at::Tensor* tensor,
            std::vector<std::string>* missing) {
  for (const std::string& name : names) {
    const auto it = weights.find(name);
    if (it == weights.end()) continue;
    if (it->second.sizes() != shape) {
      const bool vgg = it->second.dim() == 4 && it->second.size(2) == 3 && shape.size() == 4 && shape[2] == 11;
      return Status(Code::kUsage,
                    fmt::format("{} has the shape {}, expected {}", name, fmt::streamed(it->second.sizes()),
                                fmt::streamed(shape)),
                    vgg ? "these are VGG's weights; this LPIPS is AlexNet's (net='alex')"
                        : "use the weights of LPIPS v0.1 with AlexNet");
    }
    if (!it->second.is_floating_point()) return Status(Code::kUsage, name + " does not hold floating-point numbers");
    *tensor = it->second.to(at::kFloat).contiguous();
    return Status::Ok();
  }
  missing->push_back(names.front());
  return Status::Ok();
}

// Every position's feature vector at length one.
at::Tensor Normalize(const at::Tensor& features) {
  return features / (features.square().sum(1, /*keepdim=*/true).sqrt() + 1e-10);
}

// 8-bit levels in [-1, 1], then as ImageNet's mean and spread in that range ask.
at::Tensor Scale(const at::Tensor& frames) {
  const at::Tensor shift = at::tensor({-0.030f, -0.088f, -0.188f}, frames.options()).view({1, 3, 1, 1});
  const at::Tensor scale = at::tensor({0.458f, 0.448f, 0.450f}, frames.options()).view({1, 3, 1, 1});
  return (frames.clamp(0, 1).mul(255).round().div(127.5).sub(1) - shift) / scale;
}

}  // namespace

Result<Lpips> Lpips::Load(const std::vector<std::string>& files) {
  models::NamedTensors all;
  for (const std::string& file : files) {
    auto weights = engine::ReadWeights(file);
    if (!weights.ok()) return weights.status();
    all.insert(all.end(), weights->begin(), weights->end());
  }
  return FromTensors(all, Join(files, " + "));
}

Result<Lpips> Lpips::FromTensors(const models::NamedTensors& weights, const std::string& source) {
  const ByName by_name(weights.begin(), weights.end());
  Lpips lpips;
  std::vector<std::string> missing;
  for (int k = 0; k < kLayers; ++k) {
    const Layer& layer = kAlexNet[k];
    for (const bool bias : {false, true}) {
      const std::string tail = fmt::format("{}.{}", layer.number, bias ? "bias" : "weight");
      const std::vector<std::string> names = {"features." + tail, fmt::format("net.slice{}.{}", k + 1, tail),
                                              fmt::format("slice{}.{}", k + 1, tail)};
      const std::vector<int64_t> shape = bias ? std::vector<int64_t>{layer.out}
                                              : std::vector<int64_t>{layer.out, layer.in, layer.kernel, layer.kernel};
      at::Tensor* place = bias ? &lpips.bias_[k] : &lpips.weight_[k];
      LOCKSTEP_RETURN_IF_ERROR(Take(by_name, names, shape, place, &missing).Context(source));
    }
  }
  for (int k = 0; k < kLayers; ++k) {
    std::vector<std::string> names;  // the dropout in front, which has no weights, may be absent
    for (const char* form : {"lin{}.model.1.weight", "lins.{}.model.1.weight", "lin{}.model.0.weight"}) {
      names.push_back(fmt::format(fmt::runtime(form), k));
    }
    LOCKSTEP_RETURN_IF_ERROR(
        Take(by_name, names, {1, kAlexNet[k].out, 1, 1}, &lpips.lin_[k], &missing).Context(source));
  }
  if (missing.empty()) return lpips;
  const bool no_lin = missing.size() == kLayers && missing.front().starts_with("lin");
  const bool no_net = missing.size() == 2 * kLayers && missing.front().starts_with("features");
  return Status(Code::kUsage,
                fmt::format("{}: {} of the {} tensors of LPIPS are missing: {}", source, missing.size(), 3 * kLayers,
                            Join(missing, ", ")),
                no_lin   ? "this is AlexNet alone: add lpips' own weights/v0.1/alex.pth with a second --lpips"
                : no_net ? "these are the calibration weights alone: add torchvision's AlexNet "
                           "(alexnet-owt-7be5be79.pth) with a second --lpips"
                         : "give torchvision's AlexNet and lpips' weights/v0.1/alex.pth, or one file with both");
}

void Lpips::To(at::Device device) {
  for (auto* list : {&weight_, &bias_, &lin_}) {
    for (at::Tensor& tensor : *list) tensor = tensor.to(device);
  }
}

at::Tensor Lpips::operator()(const at::Tensor& a, const at::Tensor& b) const {
  TORCH_CHECK(a.dim() == 5 && a.sizes() == b.sizes() && a.size(2) == 3 && a.numel() > 0,
              "LPIPS compares two clips of one shape (clips, frames, 3, height, width), not ", a.sizes(), " and ",
              b.sizes());
  TORCH_CHECK(a.size(3) >= kSmallest && a.size(4) >= kSmallest, "LPIPS needs frames of at least ", kSmallest, " x ",
              kSmallest, ", not ", a.size(3), " x ", a.size(4));
  const torch::NoGradGuard no_grad;
  const at::Tensor frames = at::cat({a.detach().flatten(0, 1), b.detach().flatten(0, 1)}).to(at::kFloat);
  std::vector<at::Tensor> distances;
  const int64_t count = a.size(0) * a.size(1);
  for (int64_t i = 0; i < count; ++i) {  // pair by pair: features of whole clips would need gigabytes
    at::Tensor x = Scale(at::stack({frames[i], frames[count + i]}));
    at::Tensor sum;
    for (int k = 0; k < kLayers; ++k) {
      const Layer& layer = kAlexNet[k];
      if (layer.pool) x = at::max_pool2d(x, {3, 3}, {2, 2});
      x = at::relu(at::conv2d(x, weight_[k], bias_[k], layer.stride, layer.padding));
      const at::Tensor unit = Normalize(x);
      const at::Tensor part = at::conv2d((unit.narrow(0, 0, 1) - unit.narrow(0, 1, 1)).square(), lin_[k]).mean();
      sum = k == 0 ? part : sum + part;
    }
    distances.push_back(sum);
  }
  return at::stack(distances).to(at::kDouble).view({a.size(0), a.size(1)}).mean(1).cpu();
}

}  // namespace lockstep::media
