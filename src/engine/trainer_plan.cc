// The trainer's plan: memory by component before anything large is allocated, what it says about it, and what it says
// when memory runs out all the same.
#include <fmt/format.h>

#include <cstdlib>

#include "base/files.h"
#include "base/log.h"
#include "engine/planned.h"
#include "engine/report.h"
#include "engine/trainer.h"
#include "plan/exceeded.h"

namespace lockstep::engine {

struct Trainer::Plan {
  plan::Workload workload;
  plan::Machine machine;
  plan::Line line;
};

void Trainer::MakePlan() {
  const comm::RankIdentity& identity = ranks_->tensors().identity();
  const std::optional<GpuFacts> gpu = DescribeGpu(device_);
  planned_ = std::make_shared<Plan>();
  planned_->workload = WorkloadOf(recipe_->name(), recipe_->model(), recipe_->Units(), recipe_->Plan());
  planned_->machine = MachineOf(gpu, identity.local_size, AvailableHostMemory());
  planned_->line = plan::LineOf(planned_->workload, SettingOf(InForce(), identity.size, gpu), planned_->machine);
}

void Trainer::SayPlan() {
  report_->Say("plan        " + plan::OneLine(planned_->line, planned_->machine));
  const std::string why = plan::WhyNot(planned_->workload, planned_->line, planned_->machine);
  if (!why.empty()) LogWarn("this may run out of memory: {}", why);
}

uint64_t Trainer::AvailableHostMemory() {
  const Result<std::string> memory = ReadFile("/proc/meminfo");
  const size_t at = memory.ok() ? memory->find("MemAvailable:") : std::string::npos;
  return at == std::string::npos ? 0 : std::strtoull(memory->c_str() + at + 13, nullptr, 10) * 1024;
}

// After the first step, when all of it is there.
const std::vector<std::pair<std::string, double>>& Trainer::OwnedMetrics() {
  if (!owned_metrics_.empty()) return owned_metrics_;
  const plan::MemoryBytes owned = OwnedBytes(recipe_->model(), *learner_);
  for (size_t i = 0; i < plan::kComponents; ++i) {
    const char* name = plan::NameOf(static_cast<plan::Component>(i));
    if (owned.device[i] > 0) owned_metrics_.emplace_back(fmt::format("memory/owned/{}", name), owned.device[i]);
    if (owned.host[i] > 0) owned_metrics_.emplace_back(fmt::format("memory/owned_host/{}", name), owned.host[i]);
  }
  return owned_metrics_;
}

Status Trainer::OutOfMemory(const std::string& what) {
  const std::optional<DevicePeak> peak = DevicePeakBytes(device_);
  const plan::Explanation why = plan::ExplainOutOfMemory(
      planned_->workload, planned_->line, planned_->machine, OwnedBytes(recipe_->model(), *learner_),
      peak ? std::optional(static_cast<int64_t>(peak->used)) : std::nullopt);
  return Status(Code::kRankFailed, fmt::format("{}; {}", what, why.what),
                (why.remedy.empty() ? "lower train.micro_batch, set train.recompute: true" : why.remedy) +
                    ", or train.on_oom: skip");
}

}  // namespace lockstep::engine
