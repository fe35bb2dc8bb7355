// A case of tests/golden/vrt_golden.py: the model with its drawn weights, the clip and what is expected. Header only.
#pragma once

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "golden/golden.h"
#include "models/normal.h"
#include "models/vrt.h"

namespace lockstep::models {

// Uniform in (0, 1), as draw.py's probability.
inline at::Tensor Probabilities(uint64_t seed, const std::string& name, at::IntArrayRef shape) {
  at::Tensor out = at::empty(shape);
  DrawUniform(seed, name, 0, 0.5, out.view({-1}));
  return out + 0.5;
}

struct VrtCase {
  explicit VrtCase(const std::string& name) : row(golden::Json("vrt")["cases"][name]), seed(row["seed"]) {
    at::set_num_threads(1);
    config = *VrtFromJson(row["config"]);
    model = std::make_shared<Vrt>(config, seed);
    for (const auto& [key, tensor] : golden::Tensors("vrt")) {
      if (key.starts_with(name + ".")) expected[key.substr(name.size() + 1)] = tensor;
    }
    const std::vector<int64_t> shape = row["clip"];
    const at::Tensor smooth =
        Probabilities(seed, "clip." + name, {shape[0], shape[1], config.InputChannels(), shape[2] / 4, shape[3] / 4});
    clips = smooth.repeat_interleave(4, 3).repeat_interleave(4, 4);
    if (model->Draws() > 0) draws = Probabilities(seed, "draws." + name, {shape[0], model->Draws()});
    Stir(*model, seed);
  }

  // What begins at zero, and flows of more than a fraction of a pixel.
  static void Stir(Vrt& model, uint64_t seed) {
    const torch::NoGradGuard no_grad;
    for (const auto& item : model.named_parameters()) {
      const std::string& name = item.key();
      const bool offset = name.find(".conv_offset.6.") != std::string::npos;
      const bool flow = name.starts_with("spynet.") && name.ends_with(".8.bias");
      if (!offset && !flow) continue;
      DrawUniform(seed, "stir." + name, 0, flow ? 0.1 : name.ends_with("bias") ? 0.3 : 0.05, item.value().view({-1}));
    }
  }

  at::Tensor Loss(const at::Tensor& out) const {
    const at::Tensor target =
        0.5 + 0.25 * at::sin(at::arange(out.numel(), at::kDouble)).to(out.scalar_type()).view(out.sizes());
    return ((out - target).square() + 1e-6).sqrt().mean();
  }

  std::map<std::string, at::Tensor> Sorted() const {
    std::map<std::string, at::Tensor> sorted;
    for (const auto& item : model->named_parameters()) sorted[item.key()] = item.value();
    return sorted;
  }

  nlohmann::json row;
  uint64_t seed;
  VrtConfig config;
  std::shared_ptr<Vrt> model;
  std::map<std::string, at::Tensor> expected;
  at::Tensor clips, draws;
};

}  // namespace lockstep::models
