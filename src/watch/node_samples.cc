#include "watch/node_samples.h"

#include <algorithm>

namespace lockstep::watch {

GpuView GpuOfSample(int node, const record::GpuSample& gpu) {
  return {.node = node,
          .index = gpu.gpu,
          .uuid = gpu.uuid,
          .name = gpu.name,
          .utilisation = gpu.util,
          .memory_used = gpu.memory_used,
          .memory_total = gpu.memory_total,
          .temperature = gpu.temperature,
          .power = gpu.power,
          .power_limit = gpu.power_limit,
          .clock = gpu.sm_clock,
          .clock_max = gpu.sm_clock_max,
          .memory_clock = gpu.memory_clock,
          .throttle = gpu.throttle,
          .ecc_corrected = gpu.ecc_corrected,
          .ecc_uncorrected = gpu.ecc_uncorrected,
          .xid = gpu.xid,
          .error = gpu.error};
}

void NodeSamples::Take(const record::NodeSample& sample) {
  NodeView& node = nodes_[sample.node];
  node.node = sample.node;
  node.t = sample.t;
  if (!sample.host.empty()) node.host = sample.host;
  // Of several launchers of one node, one has these.
  if (sample.cpu_percent) node.cpu = sample.cpu_percent;
  if (sample.cpu_cores) node.cores = sample.cpu_cores;
  if (sample.cpu_load) node.load = sample.cpu_load;
  if (sample.memory_used) node.memory_used = sample.memory_used;
  if (sample.memory_total) node.memory_total = sample.memory_total;
  if (!sample.gpus.empty()) {
    node.gpus.clear();
    for (const record::GpuSample& gpu : sample.gpus) node.gpus.push_back(GpuOfSample(sample.node, gpu));
  }
  if (sample.links.empty()) return;
  node.links.clear();
  for (const record::LinkSample& link : sample.links) {
    std::optional<double> errors = link.errors;
    if (errors) {
      // A counter that fell was reset: it counts from there.
      double& first = first_errors_.try_emplace({sample.node, link.name}, *errors).first->second;
      first = std::min(first, *errors);
      *errors -= first;
    }
    node.links.push_back({.name = link.name,
                          .kind = link.kind,
                          .receive = link.in,
                          .send = link.out,
                          .speed = link.speed,
                          .errors = errors,
                          .off = link.off});
  }
}

void NodeSamples::CopyTo(std::vector<NodeView>* list) const {
  list->resize(nodes_.size());
  auto into = list->begin();
  for (const auto& [number, node] : nodes_) *into++ = node;
}

void NodeSamples::Apply(const record::NodeSample& sample, const record::RankSample& from, bool steps, RankView* rank) {
  rank->rank = from.rank;
  rank->node = sample.node;
  if (from.gpu) rank->gpu = *from.gpu;
  if (from.pid > 0) rank->pid = from.pid;
  if (from.cpu) rank->cpu = from.cpu;
  if (from.rss) rank->rss = from.rss;
  if (from.wait_peer) rank->wait_peer = *from.wait_peer;
  if (from.steps > 0) {
    rank->stages.clear();
    for (const auto& [stage, seconds] : from.seconds) {
      if (stage != "step") rank->stages.emplace_back(stage, seconds / from.steps);
    }
    if (const auto data = from.Seconds("data")) rank->data_seconds = *data / from.steps;
    if (const auto collective = from.Seconds("collective")) rank->collective_seconds = *collective / from.steps;
  }
  if (!steps) return;
  rank->attempt = sample.attempt;
  if (from.step && rank->step && *from.step > *rank->step) rank->steps_per_line = *from.step - *rank->step;
  if (from.step) rank->step = from.step;
  if (from.step_t) rank->last_seen = *from.step_t;
  if (from.loss) rank->loss = from.loss;
  const auto seconds = from.Seconds("step");
  if (seconds && *seconds > 0 && from.steps > 0) rank->seconds_per_step = *seconds / from.steps;
}

}  // namespace lockstep::watch
