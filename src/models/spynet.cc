#include "models/spynet.h"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include <string_view>

#include "models/flow_warp.h"
#include "models/resize.h"

namespace lockstep::models {
namespace {

using at::Tensor;

constexpr int64_t kLevels = 6, kReturned = 4;
constexpr int64_t kWidths[] = {8, 32, 64, 32, 16, 2};
constexpr double kMean[] = {0.485, 0.456, 0.406}, kDeviation[] = {0.229, 0.224, 0.225};  // of ImageNet
constexpr int64_t kMultiple = 32;  // of height and width, for six levels

// Off until the end of the scope.
class NoAutocast {
 public:
  explicit NoAutocast(at::DeviceType device) : device_(device), before_(at::autocast::is_autocast_enabled(device)) {
    at::autocast::set_autocast_enabled(device_, false);
  }
  ~NoAutocast() { at::autocast::set_autocast_enabled(device_, before_); }
  NoAutocast(const NoAutocast&) = delete;
  NoAutocast& operator=(const NoAutocast&) = delete;

 private:
  at::DeviceType device_;
  bool before_;
};

Tensor ChannelsLast(const Tensor& x) { return x.permute({0, 2, 3, 1}); }
Tensor ChannelsFirst(const Tensor& x) { return x.permute({0, 3, 1, 2}); }

}  // namespace

Tensor SpyNetMean() { return OnDevice(kMean, at::kFloat).view({1, 3, 1, 1}); }
Tensor SpyNetDeviation() { return OnDevice(kDeviation, at::kFloat).view({1, 3, 1, 1}); }

SpyNet::SpyNet() : torch::nn::Module("SpyNet") {
  const auto list = register_module("basic_module", std::make_shared<vrt::Numbered>());
  for (int64_t level = 0; level < kLevels; ++level) {
    const auto outer = list->Add(level, std::make_shared<vrt::Numbered>());
    const auto convs = outer->register_module("basic_module", std::make_shared<vrt::Numbered>());
    levels_.emplace_back();
    for (int64_t i = 0; i < 5; ++i) {  // activations have the numbers between
      levels_.back().push_back(convs->Add(2 * i, std::make_shared<vrt::Conv>(kWidths[i], kWidths[i + 1], 7)));
    }
  }
}

std::vector<Tensor> SpyNet::Forward(const Tensor& from, const Tensor& to) const {
  const NoAutocast no_autocast(from.device().type());
  const int64_t height = from.size(1), width = from.size(2);
  const int64_t full_height = (height + kMultiple - 1) / kMultiple * kMultiple;
  const int64_t full_width = (width + kMultiple - 1) / kMultiple * kMultiple;
  const at::ScalarType type = from.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  // Both sides at once, smallest level first. The constants have float32's values, as upstream's buffers.
  const int64_t count = from.size(0);
  const Tensor frames = ChannelsFirst(at::cat({from, to}).to(type));
  const at::TensorOptions options = frames.options();
  const Tensor mean = OnDevice(kMean, options.dtype(at::kFloat)).to(type).view({1, 3, 1, 1});
  const Tensor deviation = OnDevice(kDeviation, options.dtype(at::kFloat)).to(type).view({1, 3, 1, 1});
  std::vector<Tensor> levels{(ResizeBilinear(frames, full_height, full_width, /*align_corners=*/false) - mean) /
                             deviation};
  while (levels.size() < kLevels) levels.insert(levels.begin(), at::avg_pool2d(levels.front(), {2, 2}));
  std::vector<Tensor> flows;
  Tensor flow;  // [n, 2, h, w]
  for (size_t level = 0; level < kLevels; ++level) {
    const Tensor both = ChannelsLast(levels[level]);
    const Tensor first = both.narrow(0, 0, count), second = both.narrow(0, count, count).contiguous();
    const int64_t h = both.size(1), w = both.size(2);
    const Tensor up =
        flow.defined() ? ResizeBilinear(flow, h, w, /*align_corners=*/true) * 2 : at::zeros({count, 2, h, w}, options);
    const Tensor along = ChannelsLast(up).contiguous();
    Tensor x = at::cat({first, FlowWarp(second, along, Outside::kBorder), along}, 3);
    for (size_t i = 0; i < 5; ++i) {
      x = levels_[level][i]->Forward(x);
      if (i < 4) x = at::relu(x);
    }
    flow = ChannelsFirst(x) + up;
    const int64_t scale = int64_t{1} << (kLevels - 1 - static_cast<int64_t>(level));
    if (static_cast<int64_t>(level) < kLevels - kReturned) continue;
    const int64_t out_height = height / scale, out_width = width / scale;
    const int64_t own_height = full_height / scale, own_width = full_width / scale;
    const double along_x = static_cast<double>(out_width) / static_cast<double>(own_width);
    const double along_y = static_cast<double>(out_height) / static_cast<double>(own_height);
    Tensor out = ChannelsLast(ResizeBilinear(flow, out_height, out_width, /*align_corners=*/false));
    if (along_x != 1 || along_y != 1) out = out * OnDevice({along_x, along_y}, out.options());
    flows.insert(flows.begin(), out.contiguous());
  }
  return flows;
}

Status SpyNet::Load(const NamedTensors& weights) {
  NamedTensors own;
  for (const auto& [name, tensor] : weights) {
    std::string bare = name;
    for (const std::string_view prefix : {"params.", "module.", "spynet."}) {
      if (bare.starts_with(prefix)) bare.erase(0, prefix.size());
    }
    if (bare != "mean" && bare != "std") own.emplace_back(bare, tensor);
  }
  return LoadWeights(*this, own,
                     {.advise =
                          [](const NamedTensors&) {
                            return "give SpyNet's own file, with basic_module.0.basic_module.0.weight and so on";
                          }})
      .Context("SpyNet");
}

}  // namespace lockstep::models
