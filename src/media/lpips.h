// LPIPS v0.1 on AlexNet (Zhang et al., 2018): a distance of two pictures in the features of a network, near 0 for
// pictures that look alike. The weights are the user's files, nothing is downloaded. Loaded once, then const; calls
// from one thread at a time, no gradient, no collective.
//
//   Result<Lpips> lpips = Lpips::Load({"alexnet-owt-7be5be79.pth", "alex.pth"});
//   at::Tensor distance = (*lpips)(output, target);  // one number per clip
#pragma once

#include <torch/types.h>

#include <array>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/weights.h"

namespace lockstep::media {

class Lpips {
 public:
  // The files together must hold AlexNet's five convolutions, named as torchvision ("features.0.weight") or lpips
  // ("net.slice1.0.weight") does, and the five calibration weights ("lin0.model.1.weight"). What else they hold is
  // passed over.
  static Result<Lpips> Load(const std::vector<std::string>& files);
  // `source` names the file in errors.
  static Result<Lpips> FromTensors(const models::NamedTensors& weights, const std::string& source);

  void To(at::Device device);

  // Clips NTCHW with values in [0, 1] (clamped and rounded to 8 bits first, as for PSNR) -> one float64 per clip, [N],
  // on the CPU: the mean over its frames. Throws c10::Error on unequal shapes and on frames below 31 x 31.
  at::Tensor operator()(const at::Tensor& a, const at::Tensor& b) const;

 private:
  static constexpr int kLayers = 5;
  std::array<at::Tensor, kLayers> weight_, bias_, lin_;
};

}  // namespace lockstep::media
