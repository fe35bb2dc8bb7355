#include "engine/memory_need.h"

#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"

namespace lockstep::engine {
namespace {

uint64_t StateSlots(const OptimizerConfig& optimizer) {
  if (optimizer.kind != OptimizerConfig::Kind::kSgd) return 2;
  return optimizer.momentum != 0 ? 1 : 0;
}

bool Fits(const MemoryNeed& need, const MemoryThere& there) {
  const auto ranks = static_cast<uint64_t>(there.ranks);
  const bool on_gpu = !there.device.empty();
  const uint64_t host = ranks * (need.host + (on_gpu ? 0 : need.device));
  return (there.host_bytes == 0 || host <= there.host_bytes) && (!on_gpu || need.device <= there.device_bytes);
}

// The first of these that fits.
std::string Remedy(TrainConfig train, const ModelSize& model, int world, bool one_pass, const MemoryThere& there) {
  const auto fits = [&] { return Fits(NeedOf(train, model, world, one_pass), there); };
  const int first = train.zero.stage + 1;
  for (int stage = first; stage <= 3 && world > 1; ++stage) {
    train.zero.stage = stage;
    if (fits()) return fmt::format("shard it between ranks: train.zero.stage={}", stage);
  }
  if (!there.device.empty() && !train.offload.optimizer) {
    train.offload.optimizer = true;
    if (fits()) {
      return fmt::format("keep the optimizer's state in host memory: {}train.offload.optimizer=true",
                         first <= 3 && world > 1 ? "train.zero.stage=3 and " : "");
    }
  }
  return world > 1 ? "use more ranks on more nodes, or a smaller model"
                   : "use more ranks with train.zero.stage, or a smaller model";
}

}  // namespace

ModelSize SizeOf(const torch::nn::Module& model) {
  ModelSize size;
  for (const at::Tensor& parameter : model.parameters()) {
    const auto count = static_cast<uint64_t>(parameter.numel());
    if (parameter.requires_grad()) {
      size.trained += count;
    } else {
      size.frozen += count;
      size.frozen_bytes += count * parameter.element_size();
    }
  }
  return size;
}

MemoryNeed NeedOf(const TrainConfig& train, const ModelSize& model, int world, bool one_pass) {
  const int stage = world > 1 || train.offload.parameters ? train.zero.stage : 0;
  const uint64_t all = model.trained;
  const auto ranks = static_cast<uint64_t>(world);
  const uint64_t own = stage > 0 ? (all + ranks - 1) / ranks : all;
  const uint64_t type = c10::elementSize(train.parameters);
  const bool offload = train.offload.optimizer;
  const bool whole_gradients = stage < 2 || train.zero.exchange_once || train.reproducible;
  const bool narrow = offload && one_pass && stage == 0 && world == 1 && !train.reproducible;

  MemoryNeed need;
  const uint64_t parameters = type * (stage == 3 ? own : all) + model.frozen_bytes / (stage == 3 ? ranks : 1);
  const bool master_is_parameters = train.parameters == at::kFloat && (!offload || train.offload.parameters);
  const uint64_t state =
      own * 4 * (StateSlots(train.optimizer) + (train.ema.decay > 0 ? 1 : 0)) + (master_is_parameters ? 0 : own * 4);
  need.device = whole_gradients ? all * (narrow ? type : 4) : own * 4;
  if (offload && stage > 0) need.device += stage == 3 ? 0 : own * type;  // what goes up lies beside the whole
  if (offload && stage > 0 && whole_gradients) need.device += own * 4;
  (train.offload.parameters ? need.host : need.device) += parameters;
  (offload ? need.host : need.device) += state;
  // What is updated on the device lies on both.
  const bool divides = offload && !train.offload.parameters && train.ema.decay == 0 &&
                       train.optimizer.kind != OptimizerConfig::Kind::kSgd;
  if (divides) need.device += static_cast<uint64_t>((1 - train.offload.share) * static_cast<double>(state));
  return need;
}

Status CheckMemory(const TrainConfig& train, const ModelSize& model, int world, bool one_pass,
                   const MemoryThere& there) {
  const MemoryNeed need = NeedOf(train, model, world, one_pass);
  if (Fits(need, there)) return Status::Ok();
  const std::string what =
      fmt::format("train.zero.stage {}{}: ", train.zero.stage, train.offload.optimizer ? " with train.offload" : "");
  const std::string remedy = Remedy(train, model, world, one_pass, there);
  if (!there.device.empty() && need.device > there.device_bytes) {
    return Status(Code::kEnvironment,
                  fmt::format("{}parameters, gradients and optimizer's state of a rank need {}, {} has {}", what,
                              FormatSize(need.device), there.device, FormatSize(there.device_bytes)),
                  remedy);
  }
  const uint64_t host = (need.host + (there.device.empty() ? need.device : 0)) * static_cast<uint64_t>(there.ranks);
  return Status(Code::kEnvironment,
                fmt::format("{}the state of {} needs {} of host memory, {} are available", what,
                            Count(there.ranks, "rank"), FormatSize(host), FormatSize(there.host_bytes)),
                remedy);
}

}  // namespace lockstep::engine
