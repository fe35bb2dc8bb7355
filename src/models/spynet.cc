#include "models/spynet.h"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include "models/flow_warp.h"

namespace lockstep::models {
namespace {

using at::Tensor;

constexpr int64_t kLevels = 6, kReturned = 4;
constexpr int64_t kWidths[] = {8, 32, 64, 32, 16, 2};
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

Tensor Resized(const Tensor& x, int64_t height, int64_t width) {
  if (x.size(2) == height && x.size(3) == width) return x;
  return at::upsample_bilinear2d(x, {height, width}, /*align_corners=*/false);
}

Tensor ChannelsLast(const Tensor& x) { return x.permute({0, 2, 3, 1}); }
Tensor ChannelsFirst(const Tensor& x) { return x.permute({0, 3, 1, 2}); }

}  // namespace

Tensor SpyNetMean() { return at::tensor({0.485F, 0.456F, 0.406F}).view({1, 3, 1, 1}); }
Tensor SpyNetDeviation() { return at::tensor({0.229F, 0.224F, 0.225F}).view({1, 3, 1, 1}); }

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
  const auto pyramid = [&](const Tensor& frames) {  // smallest first
    const Tensor resized = Resized(ChannelsFirst(frames.to(type)), full_height, full_width);
    const auto options = resized.options();
    std::vector<Tensor> levels{(resized - SpyNetMean().to(options)) / SpyNetDeviation().to(options)};
    while (levels.size() < kLevels) levels.insert(levels.begin(), at::avg_pool2d(levels.front(), {2, 2}));
    return levels;
  };
  const std::vector<Tensor> first = pyramid(from), second = pyramid(to);
  std::vector<Tensor> flows;
  Tensor flow;  // [n, 2, h, w]
  for (size_t level = 0; level < kLevels; ++level) {
    const int64_t h = first[level].size(2), w = first[level].size(3);
    const Tensor up = flow.defined() ? at::upsample_bilinear2d(flow, {h, w}, /*align_corners=*/true) * 2
                                     : at::zeros({from.size(0), 2, h, w}, first[level].options());
    const Tensor warped =
        FlowWarp(ChannelsLast(second[level]).contiguous(), ChannelsLast(up).contiguous(), Outside::kBorder);
    Tensor x = at::cat({ChannelsLast(first[level]), warped, ChannelsLast(up)}, 3);
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
    Tensor out = ChannelsLast(Resized(flow, out_height, out_width));
    if (along_x != 1 || along_y != 1) out = out * at::tensor({along_x, along_y}).to(out.options());
    flows.insert(flows.begin(), out.contiguous());
  }
  return flows;
}

Status SpyNet::Load(const NamedTensors& weights) {
  NamedTensors own;
  for (const auto& [name, tensor] : weights) {
    const std::string bare = name.starts_with("params.") ? name.substr(7) : name;
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
