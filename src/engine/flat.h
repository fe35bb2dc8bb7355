// The memory of a model in training. All trained parameters lie in one flat buffer, their gradients in another
// (layout.h says where); the module's tensors become views of them, so that communication, clipping, the optimizer,
// EMA and checkpoints walk over contiguous memory. Autograd accumulates gradients straight into their views.
//
// What this rank updates is its own part: float32 values and gradients, contiguous, with the optimizer's state beside
// them. With whole float32 parameters on every rank the own part is the buffers themselves; with shares, or parameters
// in bf16, the own values are a master copy. Used by the training thread; creating it needs no other rank.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/layout.h"

namespace lockstep::engine {

struct FlatParameter {
  std::string name;
  at::Tensor tensor;   // the module's own, a view of the flat buffer
  int64_t offset = 0;  // in elements
  int64_t numel = 0;
};

// This rank's part of the parameters: what its optimizer walks over.
struct OwnedParameters {
  std::vector<FlatRange> ranges;  // of the flat buffer
  std::vector<Segment> segments;
  at::Tensor values, gradients;  // float32; may be the flat buffers themselves
  int64_t numel() const { return values.numel(); }
};

class FlatParameters {
 public:
  using Allocate = std::function<at::Tensor(int64_t numel)>;
  struct Options {
    Layout::Options layout;  // its shares: the number of ranks that share the optimizer's state
    Stage stage = Stage::kReplicated;
    int share = 0;                           // of this rank
    at::ScalarType parameters = at::kFloat;  // what the model computes with, and its gradients
  };

  // Every parameter of `module` that requires a gradient now. All must be float32 on one device. `gradients` allocates
  // the gradient buffer (shared memory where peers reduce in place).
  static Result<FlatParameters> Create(const torch::nn::Module& module, const Allocate& gradients,
                                       const Options& options);
  static Result<FlatParameters> Create(const torch::nn::Module& module, const Allocate& gradients) {
    return Create(module, gradients, Options());
  }

  const Layout& layout() const { return layout_; }
  const std::vector<FlatParameter>& parameters() const { return parameters_; }
  const at::Tensor& values() const { return values_; }
  const at::Tensor& gradients() const { return gradients_; }
  const OwnedParameters& owned() const { return owned_; }
  // The segments of the own part of any share.
  std::vector<Segment> SegmentsOfShare(int share) const {
    return SegmentsOf(layout_, layout_.Kept(stage_, Buffer::kOptimizer, share));
  }
  int64_t numel() const { return layout_.numel(); }  // with padding
  int64_t count() const { return layout_.count(); }  // without
  at::Device device() const { return values_.device(); }

  // Gradients become zero and every parameter's .grad is its view again, whatever happened to it meanwhile.
  void ResetGradients();
  // A parameter's part of any buffer with this layout.
  static at::Tensor View(const at::Tensor& flat, const FlatParameter& parameter);
  // The own part follows the flat buffers: its gradients before an update, its values after they were replaced. Nothing
  // to do where they are the same memory.
  void ReadOwnedGradients();
  void ReadOwnedValues();
  // The flat values follow the own part, after an update. Parts of other ranks are left as they are.
  void WriteOwnedValues();

 private:
  Layout layout_;
  Stage stage_ = Stage::kReplicated;
  std::vector<FlatParameter> parameters_;
  at::Tensor values_, gradients_;
  OwnedParameters owned_;
};

}  // namespace lockstep::engine
