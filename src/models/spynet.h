// SpyNet, optical flow by a pyramid of six small networks, as VRT and BasicSR have it. Runs in float32, also under
// autocast. Owned by the model that uses it; no collectives.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "base/status.h"
#include "models/vrt_layers.h"
#include "models/weights.h"

namespace lockstep::models {

class SpyNet : public torch::nn::Module {
 public:
  SpyNet();
  // Frames [n, h, w, 3], RGB in [0, 1] -> flows from each of `from` to the frame of `to` at scales 1, 1/2, 1/4 and 1/8:
  // [n, h / 2^i, w / 2^i, 2], x first.
  std::vector<at::Tensor> Forward(const at::Tensor& from, const at::Tensor& to) const;
  // Its own file ("spynet_sintel_final-3d2a1287.pth"): {"params": ...} or bare, also below "module." or "spynet."; mean
  // and std may be missing.
  Status Load(const NamedTensors& weights);

 private:
  std::vector<std::vector<std::shared_ptr<vrt::Conv>>> levels_;
};

// ImageNet's, what upstream keeps as buffers `mean` and `std`, [1, 3, 1, 1].
at::Tensor SpyNetMean();
at::Tensor SpyNetDeviation();

}  // namespace lockstep::models
