#include "engine/planned.h"

#include <map>
#include <set>

namespace lockstep::engine {

plan::Workload WorkloadOf(const std::string& recipe, const torch::nn::Module& model, const std::vector<Unit>& units,
                          const PlanFacts& facts) {
  plan::Workload workload{.name = recipe, .drawn_in_parts = facts.drawn_in_parts, .sample = facts.sample};
  workload.notes = facts.notes;
  std::map<std::string, int> unit_of;
  for (const Unit& unit : units) {
    for (const std::string& name : unit.parameters) unit_of.emplace(name, static_cast<int>(workload.units.size()));
    workload.units.push_back(unit.name);
  }
  for (const auto& item : model.named_parameters(/*recurse=*/true)) {
    const auto found = unit_of.find(item.key());
    workload.parameters.push_back({item.key(), item.value().numel(), found == unit_of.end() ? -1 : found->second,
                                   item.value().requires_grad(), static_cast<int>(item.value().element_size())});
  }
  return workload;
}

plan::Setting SettingOf(const TrainConfig& t, int world, const std::optional<GpuFacts>& gpu) {
  plan::Setting s;
  s.stage = t.zero.stage;
  s.offload = !t.offload.optimizer   ? plan::Offload::kNone
              : t.offload.parameters ? plan::Offload::kParameters
                                     : plan::Offload::kOptimizer;
  s.offload_share = t.offload.share;
  s.recompute = t.recompute;
  s.ranks = world;
  s.batch = t.batch;
  s.micro_batch = t.micro_batch;
  s.parameter_bytes = static_cast<int>(c10::elementSize(t.parameters));
  const Precision precision = t.precision == Precision::kAuto ? AutoPrecision(gpu) : t.precision;
  s.compute_bytes = static_cast<int>(c10::elementSize(ComputeType(precision)));
  if (s.parameter_bytes < s.compute_bytes) s.compute_bytes = s.parameter_bytes;  // the model computes with bf16 ones
  s.travel_bytes = static_cast<int>(c10::elementSize(t.offload.gradients));
  s.optimizer_slots = t.optimizer.kind != OptimizerConfig::Kind::kSgd ? 2 : t.optimizer.momentum != 0 ? 1 : 0;
  s.ema = t.ema.decay > 0;
  s.exchange_once = t.zero.exchange_once;
  s.reproducible = t.reproducible;
  s.shards = t.shards;
  s.bucket = t.bucket;
  s.first_bucket = t.first_bucket;
  s.prefetch = t.zero.prefetch;
  s.reuse_distance = t.zero.reuse_distance;
  s.live = t.zero.live;
  s.persistent = t.zero.persistent;
  s.gpu = gpu.has_value();
  if (gpu) s.compute_capability = 10 * gpu->major + gpu->minor;
  return s;
}

plan::Machine MachineOf(const std::optional<GpuFacts>& gpu, int local_ranks, uint64_t host_bytes) {
  plan::Machine machine{plan::Gpus().front(), plan::Clusters().front()};
  if (gpu) {
    if (const plan::Gpu* known = plan::GpuNamed(gpu->name)) machine.gpu = *known;
    machine.gpu.memory = static_cast<int64_t>(gpu->memory);
  }
  machine.links.gpus_per_node = std::max(1, local_ranks);
  machine.host_memory = static_cast<int64_t>(host_bytes);
  return machine;
}

plan::MemoryBytes OwnedBytes(const torch::nn::Module& model, Learner& learner) {
  using plan::Component;
  const FlatParameters& flat = learner.flat();
  plan::MemoryBytes out;
  std::set<const void*> seen;
  const auto add = [&](Component component, const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.numel() == 0 || !seen.insert(tensor.storage().data()).second) return;
    const bool on_host = tensor.is_cpu() && !flat.device().is_cpu();
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    (on_host ? out.OnHost(component) : out[component]) += bytes;
  };
  for (const at::Tensor& tensor : flat.Working()) add(Component::kParameters, tensor);
  add(Component::kMaster, flat.owned().values);
  add(Component::kGradients, flat.gradients());
  add(Component::kGradients, flat.owned().gradients);
  for (const Optimizer::Slot& slot : learner.optimizer().slots()) add(Component::kOptimizer, slot.own);
  add(Component::kEma, learner.ema().values());
  for (const FrozenGroup& group : flat.frozen().groups()) add(Component::kFrozen, group.shard);
  // Frozen parameters that every rank holds whole; those of units are nowhere between passes.
  for (const at::Tensor& parameter : model.parameters()) {
    if (!parameter.requires_grad()) add(Component::kFrozen, parameter);
  }
  for (const at::Tensor& tensor : learner.OwnMemoryOfUpdates()) add(Component::kBuckets, tensor);
  const ParallelStrategy::Held held = learner.strategy().held();
  out[Component::kBuckets] += static_cast<int64_t>(held.buckets);
  out[Component::kGathered] += static_cast<int64_t>(held.gathered);
  return out;
}

}  // namespace lockstep::engine
