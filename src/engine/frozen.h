// Frozen parameters under ZeRO-3: those of a unit of the model are kept as one shard per rank, in their own type, and
// become views of buffers that are filled while the unit is needed (gathered.h). What belongs to no unit, or is small,
// stays whole on every rank. Used by the training thread; creating it needs no other rank.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/layout.h"
#include "engine/units.h"

namespace lockstep::engine {

struct FrozenParameter {
  std::string name;
  at::Tensor tensor;           // the module's own
  std::vector<int64_t> shape;  // of the tensor, also while it is not there
  size_t group = 0;
  int64_t offset = 0, numel = 0;  // in the group's buffer
};

// Frozen parameters of one unit and one type: gathered together.
struct FrozenGroup {
  size_t unit = 0;
  at::Tensor shard;    // this rank's part of the buffer; every rank has as much
  at::Tensor nowhere;  // without elements, on the model's device
};

// Gives elements of a parameter that has no memory yet (float32, on the CPU).
using DrawParameter = std::function<Status(const std::string& name, int64_t begin, const at::Tensor& out)>;

class FrozenShards {
 public:
  FrozenShards() = default;
  struct Options {
    int64_t persistent = 0;
    int shares = 1, share = 0;  // this rank's is `share`
    bool on_host = false;       // shards lie in host memory
    DrawParameter draw;         // none: the module's tensors hold their values
  };
  // Takes every parameter of a unit that requires no gradient now and has at least `persistent` elements; from now on
  // it is nowhere until it is placed.
  static Result<FrozenShards> Take(const torch::nn::Module& module, const std::vector<Unit>& units,
                                   const Options& options);
  // Whether such a parameter is taken.
  static bool Takes(const at::Tensor& parameter, int64_t persistent) {
    return !parameter.requires_grad() && parameter.numel() >= std::max<int64_t>(persistent, 1);
  }

  const std::vector<FrozenParameter>& parameters() const { return parameters_; }
  const std::vector<FrozenGroup>& groups() const { return groups_; }
  // A number that is the same on ranks that began with the same values.
  int64_t fingerprint() const { return fingerprint_; }
  // What the rank with this share keeps of a parameter, as a range of the flattened parameter; and of this rank the
  // memory itself.
  FlatRange RangeOf(const FrozenParameter& parameter, int share) const;
  at::Tensor OwnPart(const FrozenParameter& parameter) const;
  // The parameters of a group become views of its buffer; undefined: they are nowhere.
  void Place(size_t group, const at::Tensor& buffer);

 private:
  Status Fill(const FrozenParameter& parameter, const DrawParameter& draw);

  std::vector<FrozenParameter> parameters_;
  std::vector<FrozenGroup> groups_;
  int share_ = 0;
  int64_t fingerprint_ = 0;
};

// The same for equal bits in the same order; other bits give another number with near certainty. Flat, any type.
int64_t Fingerprint(const at::Tensor& values);

}  // namespace lockstep::engine
