// The memory of a model in training. All trained parameters lie in one flat buffer, their gradients in another
// (layout.h says where); the module's tensors become views of them, so that communication, clipping, the optimizer,
// EMA and checkpoints walk over contiguous memory. Autograd accumulates gradients straight into their views.
//
// What this rank updates is its own part: float32 values and gradients, contiguous, with the optimizer's state beside
// them. With whole float32 parameters on every rank the own part is the buffers themselves; with shares, or parameters
// in bf16, the own values are a master copy.
//
// Two buffers may be missing. With sharded parameters (ZeRO-3) only this rank's shard is kept; the parameters of a unit
// of the model are views of a buffer that is filled while it is needed (gathered.h). With sharded gradients (ZeRO-2)
// there is no gradient buffer; the strategy takes each gradient as it comes.
//
// Used by the training thread; creating it needs no other rank.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/frozen.h"
#include "engine/layout.h"
#include "engine/units.h"

namespace lockstep::engine {

struct FlatParameter {
  std::string name;
  at::Tensor tensor;           // the module's own, a view of the flat buffer
  std::vector<int64_t> shape;  // of the tensor, also while it is not there
  int64_t offset = 0;          // in elements
  int64_t numel = 0;
};

// This rank's part of the parameters: what its optimizer walks over. Elements are numbered from 0 to numel() through
// all ranges; state beside them (moments, EMA) lies so. Values and gradients lie so as well, or at their places in the
// whole buffers where those are there anyway.
struct OwnedParameters {
  std::vector<FlatRange> ranges;  // of the flat buffer
  std::vector<Segment> segments;
  at::Tensor values, gradients;  // float32; the own part, or the flat buffers
  bool values_in_place = false, gradients_in_place = false;
  bool on_host = false;  // values in host memory, gradients elsewhere
  int64_t size = 0;

  int64_t numel() const { return size; }
  at::Tensor NewState() const;  // zeros beside the values
  // A part that lies in one range: from element `begin` of the own part, which is `flat` of the buffer.
  at::Tensor Values(int64_t begin, int64_t n, int64_t flat) const {
    return values.narrow(0, values_in_place ? flat : begin, n);
  }
  at::Tensor Gradients(int64_t begin, int64_t n, int64_t flat) const {
    return gradients.narrow(0, gradients_in_place ? flat : begin, n);
  }
  // All of it, in as few parts as it lies in, each with its first element.
  std::vector<std::pair<int64_t, at::Tensor>> ValueParts() const { return Parts(values, values_in_place); }
  std::vector<std::pair<int64_t, at::Tensor>> GradientParts() const { return Parts(gradients, gradients_in_place); }

 private:
  std::vector<std::pair<int64_t, at::Tensor>> Parts(const at::Tensor& memory, bool in_place) const;
};

class FlatParameters {
 public:
  using Allocate = std::function<at::Tensor(int64_t numel)>;
  struct Options {
    Layout::Options layout;  // its shares: the number of ranks that share the optimizer's state
    Stage stage = Stage::kReplicated;
    int share = 0;                           // of this rank
    at::ScalarType parameters = at::kFloat;  // what the model computes with
    at::ScalarType gradients = at::kFloat;   // what is exchanged
    // False: a gradient leaves as soon as its bucket is complete, and no buffer holds all of them.
    bool whole_gradients = true;
    // With sharded parameters: what is gathered together. Parameters of no unit, and those with fewer elements than
    // `persistent`, stay whole on every rank.
    std::vector<Unit> units;
    int64_t persistent = 0;
    // The buffer of whole parameters (shared memory where peers write into it); none: plain memory.
    std::function<at::Tensor(int64_t numel)> values;
    // The own values and the optimizer's state lie in host memory while the model is on a device; the own gradients
    // stay there, in the type they were exchanged in.
    bool host_master = false;
    // With sharded parameters and a master in host memory: the shards lie there as well.
    bool host_parameters = false;
    // With sharded parameters: where their elements come from. None: the module's tensors hold their values.
    DrawParameter draw;
  };

  // Every parameter of `module` that requires a gradient now. All must be float32 on one device. `gradients` allocates
  // the gradient buffer (shared memory where peers reduce in place).
  static Result<FlatParameters> Create(const torch::nn::Module& module, const Allocate& gradients,
                                       const Options& options);
  static Result<FlatParameters> Create(const torch::nn::Module& module, const Allocate& gradients) {
    return Create(module, gradients, Options());
  }

  const Layout& layout() const { return layout_; }
  Stage stage() const { return options_.stage; }
  const Options& options() const { return options_; }
  const std::vector<FlatParameter>& parameters() const { return parameters_; }
  const at::Tensor& values() const { return values_; }        // undefined with sharded parameters
  const at::Tensor& gradients() const { return gradients_; }  // undefined without whole gradients
  const OwnedParameters& owned() const { return owned_; }
  // Whether autograd writes gradients into the buffer itself. Otherwise each must be taken from its parameter.
  bool gradients_are_views() const { return views_; }
  // The segments of the own part of any share.
  std::vector<Segment> SegmentsOfShare(int share) const {
    return SegmentsOf(layout_, layout_.Kept(options_.stage, Buffer::kOptimizer, share));
  }
  int64_t numel() const { return layout_.numel(); }  // with padding
  int64_t count() const { return layout_.count(); }  // without
  at::Device device() const { return device_; }
  // A number that is the same on ranks that began with the same values.
  int64_t fingerprint() const { return fingerprint_; }

  // Gradients become zero and every parameter's .grad is its view again, whatever happened to it meanwhile; without
  // views it has none.
  void ResetGradients();
  // A parameter's part of any buffer with this layout.
  static at::Tensor View(const at::Tensor& flat, const FlatParameter& parameter);
  // The own part follows the flat buffers: its gradients before an update, its values after they were replaced. Nothing
  // to do where they are the same memory.
  void ReadOwnedGradients();
  void ReadOwnedValues();
  // The flat values follow the own part, after an update. Parts of other ranks are left as they are.
  void WriteOwnedValues();

  // Whole parameters, or the shards of stage 3 (which may be the own values), or what goes up from the host.
  std::vector<at::Tensor> Working() const { return {values_, shards_, working_}; }
  // With a master on the host: what its update writes (the own part in the model's type, on its device or in host
  // memory), and that it has, so that the next WriteOwnedValues need not.
  at::Tensor OwnedWorking() const { return shards_.defined() ? shards_ : working_; }
  void OwnedValuesAreWritten() { written_ = true; }

  // With sharded parameters. A bucket's own shard, in the type that the model computes with; what is not gathered with
  // a unit belongs to group kAlways.
  static constexpr int kAlways = -1;
  at::Tensor Shard(size_t bucket) const;
  // The own part's range of a bucket.
  FlatRange OwnRange(size_t bucket) const;
  // Frozen parameters of units, which are kept in shards as well; empty where parameters are whole.
  FrozenShards& frozen() { return frozen_; }
  const FrozenShards& frozen() const { return frozen_; }
  // The parameters of a group become views of `buffer`, which holds its buckets one after the other; undefined: they
  // are nowhere.
  void Place(int group, const at::Tensor& buffer);

 private:
  Status DrawOwned();

  Options options_;
  Layout layout_;
  bool views_ = true;
  std::vector<FlatParameter> parameters_;
  at::Tensor values_, gradients_;
  at::Tensor shards_;  // own part in the model's type, where parameters are sharded
  at::Tensor nowhere_;
  at::Tensor working_;  // with a master on the host: the own part in the model's type, where it is not a buffer itself
  bool written_ = false;
  OwnedParameters owned_;
  FrozenShards frozen_;
  at::Device device_ = at::kCPU;
  int64_t fingerprint_ = 0;
};

}  // namespace lockstep::engine
