#include "models/vrt_stage.h"

#include <fmt/format.h>
#include <torch/types.h>

#include "models/decoder_ops.h"
#include "models/deformable.h"
#include "models/flow_warp.h"
#include "models/vrt_fused.h"
#include "models/vrt_neighbours.h"

namespace lockstep::models::vrt {
namespace {

using at::Tensor;

constexpr double kOffsetSlope = 0.1;  // of the activations before offsets

Tensor WarpFlow(const Tensor& flow, const Tensor& along) {
  return FlowWarp(flow.flatten(0, 1), along.flatten(0, 1)).view(along.sizes());
}

}  // namespace

Flows FollowFlows(const Tensor& backward, const Tensor& forward, int64_t hops) {
  Flows flows{{backward}, {forward}};
  const int64_t pairs = backward.size(1);
  for (int64_t k = 1; k < hops; ++k) {
    const int64_t count = pairs - k;
    const Tensor &back = flows.backward.back(), &ahead = flows.forward.back();
    // Over k frames, then over one more.
    const Tensor near_back = back.narrow(1, 0, count), near_ahead = ahead.narrow(1, 1, count);
    flows.backward.push_back(near_back + WarpFlow(backward.narrow(1, k, count), near_back));
    flows.forward.push_back(near_ahead + WarpFlow(forward.narrow(1, 0, count), near_ahead));
  }
  return flows;
}

FlowGuidedConv::FlowGuidedConv(int64_t width, int64_t hops, int64_t groups, double most) : reach(most) {
  weight = register_parameter("weight", at::zeros({width, width, 3, 3}));
  bias = register_parameter("bias", at::zeros({width}));
  const auto list = register_module("conv_offset", std::make_shared<Numbered>());
  const int64_t widths[] = {(1 + hops) * width + 2 * hops, width, width, width, 27 * groups};
  for (int64_t i = 0; i < 4; ++i) {  // activations have the numbers between
    offsets.push_back(list->Add(2 * i, std::make_shared<Conv>(widths[i], widths[i + 1])));
  }
}

Tensor FlowGuidedConv::Forward(const std::vector<Tensor>& sources, const Tensor& current,
                               const std::vector<Tensor>& flows) const {
  // On a GPU all of it is in one type, and the first convolution gets whole eights of channels (vrt_layers.h).
  const bool narrow = current.is_cuda() && at::isReducedFloatingType(decoder::ComputeType(current));
  const at::ScalarType type = narrow ? decoder::ComputeType(current) : current.scalar_type();
  std::vector<Tensor> frames, seen;
  for (const Tensor& source : sources) frames.push_back(source.to(type));
  for (size_t k = 0; k < frames.size(); ++k) seen.push_back(FlowWarp(frames[k], flows[k]));
  seen.push_back(current.to(type));
  for (const Tensor& flow : flows) seen.push_back(flow.to(type));
  const int64_t more = (8 - offsets[0]->weight.size(1) % 8) % 8;
  if (narrow && more > 0) {
    seen.push_back(at::zeros({current.size(0), current.size(1), current.size(2), more}, seen[0].options()));
  }
  Tensor x = at::cat(seen, 3);
  for (size_t i = 0; i < offsets.size(); ++i) {
    x = offsets[i]->Forward(x);
    if (i + 1 < offsets.size()) x = at::leaky_relu(x, kOffsetSlope);
  }
  return FlowGuidedDeformable({frames.size() == 1 ? frames[0] : at::cat(frames, 3), x, flows, reach, weight, bias});
}

Stage::Stage(Builder& builder, const Options& o) : reshape_(o.reshape) {
  const VrtConfig& config = builder.config;
  const std::string name = fmt::format("stage{}", o.index + 1);
  const auto list = register_module("reshape", std::make_shared<Numbered>());
  const int64_t seen = o.reshape == Reshape::kNone ? o.width : o.reshape == Reshape::kDown ? 4 * o.in : o.in / 4;
  norm = list->Add(1, std::make_shared<Norm>(seen));
  if (o.reshape != Reshape::kNone) project = list->Add(2, MakeLinear(seen, o.width));
  const auto mutual = static_cast<int64_t>(static_cast<double>(o.depth) * config.mul_attn_ratio);
  const Size3 pairs{2, config.window_size[1], config.window_size[2]};
  Tmsag::Options group{o.width,
                       mutual,
                       o.heads,
                       pairs,
                       /*mutual=*/true,
                       o.drop,
                       config.RecomputesAttention(o.index),
                       config.RecomputesMlp(o.index),
                       name + ".residual_group1"};
  residual_group1 = register_module("residual_group1", std::make_shared<Tmsag>(builder, group));
  linear1 = register_module("linear1", MakeLinear(o.width, o.width));
  group.depth = o.depth - mutual;
  group.window = config.window_size;
  group.mutual = false;
  group.recompute_attention = true;
  group.name = name + ".residual_group2";
  residual_group2 = register_module("residual_group2", std::make_shared<Tmsag>(builder, group));
  linear2 = register_module("linear2", MakeLinear(o.width, o.width));
  if (config.pa_frames == 0) return;
  pa_deform = register_module(
      "pa_deform", std::make_shared<FlowGuidedConv>(o.width, config.pa_frames / 2, config.deformable_groups, o.reach));
  pa_fuse = register_module("pa_fuse", std::make_shared<Geglu>(3 * o.width, 3 * o.width, o.width));
}

Tensor Stage::ChangeScale(const Tensor& x) const {
  if (reshape_ == Reshape::kNone) return norm->Forward(x);
  const int64_t b = x.size(0), d = x.size(1), h = x.size(2), w = x.size(3), c = x.size(4);
  const Tensor moved =
      reshape_ == Reshape::kDown
          ? x.view({b, d, h / 2, 2, w / 2, 2, c}).permute({0, 1, 2, 4, 5, 3, 6}).flatten(4)
          : x.view({b, d, h, w, 2, 2, c / 4}).permute({0, 1, 2, 5, 3, 4, 6}).reshape({b, d, 2 * h, 2 * w, c / 4});
  return project->Forward(norm->Forward(moved));
}

Tensor Stage::FuseNeighbours(const Tensor& x, const Flows& flows) const {
  const int64_t pairs = x.size(1) - 1, hops = static_cast<int64_t>(flows.backward.size());
  std::vector<Tensor> along;
  for (int64_t hop = 0; hop < hops; ++hop) {
    // Frame t is reached from t + hop + 1 (t = 0, ...) and from t - hop - 1 (t = 1, ...).
    const auto k = static_cast<size_t>(hop);
    along.push_back(
        at::cat({FramesOrZeros(flows.backward[k], 0, pairs), FramesOrZeros(flows.forward[k], -hop, pairs)}, 1)
            .flatten(0, 1));
  }
  const Neighbours near = NeighboursOf(x, hops);
  return pa_fuse->Forward(BesideNeighbours(x, pa_deform->Forward(near.sources, near.current, along)));
}

Tensor Stage::Forward(const Tensor& input, const Flows& flows, const Pass& pass) const {
  Tensor x = ChangeScale(input);
  x = AddLinear(*linear1, residual_group1->Forward(x, pass), x);
  x = AddLinear(*linear2, residual_group2->Forward(x, pass), x);
  return pa_deform ? FuseNeighbours(x, flows) : x;
}

}  // namespace lockstep::models::vrt
