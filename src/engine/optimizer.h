// AdamW, Adam and SGD over this rank's own part of the parameters: one fused pass that unscales, clips, updates moments
// and parameters. Numerics are those of torch.optim (same formulas, float32 state). Learning rate and weight decay come
// per parameter group; a parameter that is inactive in a step (frozen, or used by no rank) keeps its moments and step
// count. The state has the size of the own part; step counts are of all parameters, the same on every rank.
//
// Owned by the learner, used by the training thread; every rank calls Step with the same arguments.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/device_kernels.h"
#include "engine/flat.h"
#include "engine/square_sum.h"

namespace lockstep::engine {

struct OptimizerConfig {
  enum class Kind { kAdamW, kAdam, kSgd };
  Kind kind = Kind::kAdamW;
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.01;
  double momentum = 0;
  bool nesterov = false;
};

// What a group of parameters has of its own.
struct GroupSettings {
  double lr_scale = 1;
  double weight_decay = 0;
};

class Optimizer {
 public:
  // `groups[g]` are the settings of group g, `group_of[i]` the group of parameter i of the layout.
  Optimizer(const OptimizerConfig& config, const OwnedParameters& own, std::vector<GroupSettings> groups,
            std::vector<int> group_of);

  // On the CPU. `active[i]` is false for a parameter that this step does not update. `gradient_factor` multiplies every
  // gradient.
  void Step(double lr_factor, double gradient_factor, const std::vector<bool>& active);

  // The same for a part of the own part, with the gradients given and the updated values also written into `out` (from
  // its beginning; float32, or bf16 with Adam). EndChunks after the last of a step.
  void StepChunk(const FlatRange& range, double lr_factor, double gradient_factor, const std::vector<bool>& active,
                 const at::Tensor& gradients, const at::Tensor& out);
  void EndChunks(const std::vector<bool>& active);
  // A part of the own part that lies on a GPU, values and state (as slots() has it), each beginning with `range`: Adam
  // with the bits of StepChunk, queued there. Only where device::Usable.
  struct OnDevice {
    FlatRange range;
    at::Tensor values, m, v;
  };
  void StepOnDevice(const OnDevice& part, double lr_factor, double gradient_factor, const std::vector<bool>& active,
                    const at::Tensor& gradients);

  // On a GPU a step is queued without waiting and can be captured in a CUDA graph. It has no effect if found_inf is 1.
  // The device keeps its own step counts. `Activate` copies the active parameters and the host's counts to the device,
  // so all earlier steps must be settled; `Settle` updates the host's counts, step by step.
  void Activate(const std::vector<bool>& active);
  bool IsActive(const std::vector<bool>& active) const { return active_ == active; }
  // Scalars on the device: the schedule's factor and that of the gradients (float64); 1 where the gradient is not
  // finite (float32).
  void QueueStep(const at::Tensor& lr_factor, const at::Tensor& factor, const at::Tensor& found_inf);
  void Settle(bool updated);

  // The state by name ("exp_avg", "exp_avg_sq", "momentum_buffer"), laid out as the own part is.
  struct Slot {
    std::string name;
    at::Tensor own;
  };
  const std::vector<Slot>& slots() const { return slots_; }
  std::vector<int64_t>& steps() { return steps_; }  // per parameter
  const std::vector<int64_t>& steps() const { return steps_; }
  const OptimizerConfig& config() const { return config_; }

 private:
  // Neighbouring parameters with equal settings are one run of the own part.
  struct Run {
    int64_t begin = 0, end = 0;
    int64_t shift = 0;  // from there to the flat buffer
    int group = 0;
    int64_t step = 0;  // this will be their step number
  };
  std::vector<Run> Runs(const std::vector<bool>& active) const;
  device::AdamRates RatesOf(int group) const;
  // What a pass reads and writes beside the own values. Both begin at element `base` of the own part, or gradients lie
  // at their places in the flat buffer.
  struct Through {
    const at::Tensor& gradients;
    int64_t base = 0;
    bool in_place = false;
    at::Tensor out;  // bf16; may be undefined
    int64_t Gradient(const Run& run) const { return run.begin + (in_place ? run.shift : -base); }
  };
  // On the calling thread: all runs as far as they lie in a range of the own part.
  void StepRange(const std::vector<Run>& runs, const FlatRange& range, double lr_factor, double gradient_factor,
                 const Through& through);
  void StepSgd(const Run& run, double lr, double gradient_factor, const Through& through);
  void StepAdam(const Run& run, double lr, double gradient_factor, const Through& through);
  float* ValuesOf(const Run& run) {
    return own_.values.mutable_data_ptr<float>() + run.begin + (own_.values_in_place ? run.shift : 0);
  }

  OptimizerConfig config_;
  OwnedParameters own_;
  std::vector<GroupSettings> groups_;
  std::vector<int> group_of_;
  std::vector<Slot> slots_;
  std::vector<int64_t> steps_;

  // What one call of a multi-tensor kernel takes: the runs of one group.
  struct DeviceGroup {
    std::vector<at::Tensor> p, g, m, v, steps;
  };
  std::vector<bool> active_;
  std::vector<DeviceGroup> device_groups_;
};

// The squares of a flat buffer that begins at a multiple of 16 elements, and their Euclidean norm, which is infinite or
// not a number when any element is. On the CPU.
SquareSum GradientSquares(const at::Tensor& flat);
SquareSum GradientSquares(const OwnedParameters& own);
double GradientNorm(const at::Tensor& flat);

}  // namespace lockstep::engine
