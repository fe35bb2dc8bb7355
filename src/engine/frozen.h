// Frozen parameters under ZeRO-3: those of a unit of the model are kept as one shard per rank, in their own type, and
// become views of buffers that are filled while the unit is needed (gathered.h). What belongs to no unit, or is small,
// stays whole on every rank. Used by the training thread; creating it needs no other rank.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

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

class FrozenShards {
 public:
  FrozenShards() = default;
  // Takes every parameter of a unit that requires no gradient now and has at least `persistent` elements; from now on
  // it is nowhere until it is placed. `share` of `shares` is this rank's. `on_host`: shards lie in host memory.
  FrozenShards(const torch::nn::Module& module, const std::vector<Unit>& units, int64_t persistent, int shares,
               int share, bool on_host = false);

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
  std::vector<FrozenParameter> parameters_;
  std::vector<FrozenGroup> groups_;
  int share_ = 0;
  int64_t fingerprint_ = 0;
};

// The same for equal bits in the same order; other bits give another number with near certainty. Flat, any type.
int64_t Fingerprint(const at::Tensor& values);

}  // namespace lockstep::engine
