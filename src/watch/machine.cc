#include "watch/machine.h"

#include <unistd.h>

#include <string>

namespace lockstep::watch {
namespace {

template <typename T>
std::optional<double> AsDouble(const std::optional<T>& value) {
  return value ? std::optional<double>(static_cast<double>(*value)) : std::nullopt;
}

GpuView GpuOfReading(const hardware::GpuReading& gpu) {
  return {.node = 0,
          .index = gpu.index,
          .uuid = gpu.uuid,
          .name = gpu.name,
          .utilisation = AsDouble(gpu.utilisation),
          .memory_used = AsDouble(gpu.memory_used),
          .memory_total = AsDouble(gpu.memory_total),
          .temperature = AsDouble(gpu.temperature),
          .power = AsDouble(gpu.power_watts),
          .power_limit = AsDouble(gpu.power_limit_watts),
          .clock = AsDouble(gpu.sm_clock),
          .clock_max = AsDouble(gpu.sm_clock_max),
          .memory_clock = AsDouble(gpu.memory_clock),
          .throttle = gpu.throttle,
          .ecc_corrected = AsDouble(gpu.ecc_corrected),
          .ecc_uncorrected = AsDouble(gpu.ecc_uncorrected),
          .xid = gpu.xid,
          .error = gpu.error};
}

}  // namespace

void LocalMachine::Read(double now, std::vector<NodeView>* nodes) {
  if (!opened_) {
    std::string why;
    gpus_ = hardware::GpuSampler::Open("", {}, &why);
    if (gpus_) machine_ = std::make_unique<hardware::MachineSampler>();
  }
  opened_ = true;
  nodes->clear();
  if (!gpus_) return;
  NodeView node;
  node.t = now;
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) == 0) node.host = host;
  for (const hardware::GpuReading& gpu : gpus_->Read()) node.gpus.push_back(GpuOfReading(gpu));
  if (node.gpus.empty()) return;
  const hardware::MachineUse use = machine_->Read();
  node.cores = machine_->cores();
  node.load = use.load;
  node.memory_used = AsDouble(use.memory_used);
  node.memory_total = AsDouble(use.memory_total);
  if (use.busy_seconds) {
    // A clock that was set back or a first look: no time to divide by.
    if (last_ > 0 && now > last_) node.cpu = 100 * (*use.busy_seconds - last_busy_) / (now - last_);
    last_ = now;
    last_busy_ = *use.busy_seconds;
  }
  nodes->push_back(std::move(node));
}

}  // namespace lockstep::watch
