// A stage of VRT: change of scale, two groups of attention blocks, and parallel warping, which brings the neighbours of
// each frame to it along the optical flow (flow-guided deformable convolution) and fuses them.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "models/vrt_layers.h"

namespace lockstep::models::vrt {

// Optical flows of clips of n frames, at one scale: flows[k] leads k + 1 frames ahead (back), [b, n - k - 1, h, w, 2].
struct Flows {
  std::vector<at::Tensor> backward;  // entry t: from frame t to frame t + k + 1, which is warped back to t
  std::vector<at::Tensor> forward;   // entry t: from frame t + k + 1 to frame t, which is warped forward
};

// The flows over `hops` frames (1 to 3) from those between neighbours, by following one after the other.
Flows FollowFlows(const at::Tensor& backward, const at::Tensor& forward, int64_t hops);

enum class Reshape { kNone, kDown, kUp };

// DCNv2 whose offsets are the flow and a bounded rest.
struct FlowGuidedConv : torch::nn::Module {
  FlowGuidedConv(int64_t width, int64_t hops, int64_t groups, double most);
  // sources and flows: one for each hop, [m, h, w, c] and [m, h, w, 2].
  at::Tensor Forward(const std::vector<at::Tensor>& sources, const at::Tensor& current,
                     const std::vector<at::Tensor>& flows) const;
  at::Tensor weight, bias;
  std::vector<std::shared_ptr<Conv>> offsets;
  double reach;
};

struct Stage : torch::nn::Module {
  struct Options {
    int64_t in, width, depth, heads;
    Reshape reshape;
    double reach;              // how many pixels offsets may differ from the flow
    std::vector<double> drop;  // of the stage's blocks
    int64_t index;             // from 0
  };
  Stage(Builder& builder, const Options& options);
  at::Tensor Forward(const at::Tensor& input, const Flows& flows, const Pass& pass) const;

  std::shared_ptr<Norm> norm;
  std::shared_ptr<Linear> project;  // undefined without a change of scale
  std::shared_ptr<Tmsag> residual_group1, residual_group2;
  std::shared_ptr<Linear> linear1, linear2;
  std::shared_ptr<FlowGuidedConv> pa_deform;  // undefined without neighbours
  std::shared_ptr<Geglu> pa_fuse;

 private:
  at::Tensor ChangeScale(const at::Tensor& x) const;
  at::Tensor FuseNeighbours(const at::Tensor& x, const Flows& flows) const;
  Reshape reshape_;
};

}  // namespace lockstep::models::vrt
