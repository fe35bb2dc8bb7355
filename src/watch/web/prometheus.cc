#include "watch/web/prometheus.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <map>
#include <optional>

#include "base/text.h"

namespace lockstep::watch {
namespace {

using Labels = std::vector<std::pair<const char*, std::string>>;

struct Family {
  const char* name;
  const char* type;
  const char* help;
};

// In the order in which they are printed.
constexpr Family kFamilies[] = {
    {"lockstep_run_info", "gauge", "1, with the state of the run as label"},
    {"lockstep_run_up", "gauge", "1 while the run goes on, 0 when it has ended"},
    {"lockstep_run_start_time_seconds", "gauge", "Start of the run, seconds since 1970"},
    {"lockstep_run_duration_seconds", "gauge", "Time since the start, or from start to end"},
    {"lockstep_run_attempt", "gauge", "Number of the attempt, from 0; each restart is one more"},
    {"lockstep_run_world_size", "gauge", "Number of ranks"},
    {"lockstep_run_step", "gauge", "Optimizer step of the leading rank"},
    {"lockstep_run_target_steps", "gauge", "Steps of the whole run"},
    {"lockstep_run_eta_seconds", "gauge", "Remaining steps times seconds per step"},
    {"lockstep_run_step_seconds", "gauge", "Seconds per step of the leading rank, smoothed"},
    {"lockstep_run_samples_per_second", "gauge", "Samples per second of all ranks"},
    {"lockstep_run_tokens_per_second", "gauge", "Tokens per second of all ranks"},
    {"lockstep_run_loss", "gauge", "Last loss, reduced over ranks"},
    {"lockstep_run_learning_rate", "gauge", "Last learning rate"},
    {"lockstep_run_gradient_norm", "gauge", "Last norm of the gradient"},
    {"lockstep_run_data_wait_ratio", "gauge", "Part of a step in which the worst rank waits for data"},
    {"lockstep_run_collective_wait_ratio", "gauge",
     "Part of a step in which ranks wait in collectives, mean over ranks"},
    {"lockstep_run_findings", "gauge", "Findings now, by kind: straggler, stall, nan and others"},
    {"lockstep_run_bad_lines", "gauge", "Metric lines that did not parse"},
    {"lockstep_rank_step", "gauge", "Optimizer step of the rank"},
    {"lockstep_rank_step_seconds", "gauge", "Seconds per step of the rank, smoothed"},
    {"lockstep_rank_stage_seconds", "gauge", "Seconds of a step in a stage: data, forward, backward and others"},
    {"lockstep_rank_loss", "gauge", "Last loss of the rank"},
    {"lockstep_rank_cpu_ratio", "gauge", "Processor time of the rank, 1 is one core"},
    {"lockstep_rank_resident_memory_bytes", "gauge", "Resident memory of the rank's process, as its node measures it"},
    {"lockstep_rank_host_memory_bytes", "gauge", "Peak host memory, as the rank says"},
    {"lockstep_rank_device_memory_bytes", "gauge", "Peak device memory, as the rank says"},
    {"lockstep_rank_last_seen_timestamp_seconds", "gauge", "Time of the rank's last line, seconds since 1970"},
    {"lockstep_node_cpu_ratio", "gauge", "Processor time of all processes of the node, 1 is one core"},
    {"lockstep_node_cpu_cores", "gauge", "Cores that may be used"},
    {"lockstep_node_load1", "gauge", "Load average of one minute"},
    {"lockstep_node_memory_used_bytes", "gauge", "Memory in use"},
    {"lockstep_node_memory_size_bytes", "gauge", "Memory of the node"},
    {"lockstep_link_receive_bytes_per_second", "gauge", "Bytes received by a port or interface that the job uses"},
    {"lockstep_link_send_bytes_per_second", "gauge", "Bytes sent by a port or interface that the job uses"},
    {"lockstep_link_speed_bytes_per_second", "gauge", "Speed of the link"},
    {"lockstep_link_errors", "gauge", "Errors since the first sample"},
    {"lockstep_gpu_throttled", "gauge", "1 for each reason that slows the clocks of the GPU"},
    {"lockstep_gpu_power_limit_watts", "gauge", "Enforced power limit"},
    {"lockstep_gpu_max_sm_clock_hertz", "gauge", "Highest clock of the SMs"},
    {"DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %)."},
    {"DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB)."},
    {"DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB)."},
    {"DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C)."},
    {"DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."},
    {"DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz)."},
    {"DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz)."},
    {"DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered."},
    {"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "gauge", "Corrected ECC errors since the driver was loaded."},
    {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "gauge", "Uncorrected ECC errors since the driver was loaded."},
};

std::string LabelValue(std::string_view text) {
  std::string out;
  for (char c : IsUtf8(text) ? std::string(text) : Printable(text, text.size() * 4)) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '"')
      out += "\\\"";
    else if (c == '\n')
      out += "\\n";
    else
      out.push_back(c);
  }
  return out;
}

std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// Samples by family: all of one must stand together.
class Samples {
 public:
  void Add(const char* family, const Labels& labels, double value) {
    std::string& text = text_[family];
    text += family;
    const char* mark = "{";
    for (const auto& [name, label] : labels) {
      fmt::format_to(std::back_inserter(text), "{}{}=\"{}\"", mark, name, LabelValue(label));
      mark = ",";
    }
    fmt::format_to(std::back_inserter(text), "{}{}\n", labels.empty() ? " " : "} ", NumberText(value));
  }
  template <typename T>
  void Add(const char* family, const Labels& labels, const std::optional<T>& value, double factor = 1) {
    if (value) Add(family, labels, static_cast<double>(*value) * factor);
  }
  std::string Text() const {
    std::string out;
    for (const Family& family : kFamilies) {
      const auto found = text_.find(family.name);
      if (found == text_.end()) continue;
      fmt::format_to(std::back_inserter(out), "# HELP {} {}\n# TYPE {} {}\n{}", family.name, family.help, family.name,
                     family.type, found->second);
    }
    return out;
  }

 private:
  std::map<std::string_view, std::string> text_;
};

void AddRanks(const RunView& view, Samples* out) {
  for (const RankView& rank : view.ranks) {
    Labels labels = {{"run", view.name}, {"rank", std::to_string(rank.rank)}};
    if (rank.node >= 0) labels.emplace_back("node", std::to_string(rank.node));
    out->Add("lockstep_rank_step", labels, rank.step);
    out->Add("lockstep_rank_step_seconds", labels, rank.seconds_per_step);
    out->Add("lockstep_rank_loss", labels, rank.loss);
    out->Add("lockstep_rank_cpu_ratio", labels, rank.cpu, 0.01);
    out->Add("lockstep_rank_resident_memory_bytes", labels, rank.rss);
    out->Add("lockstep_rank_host_memory_bytes", labels, rank.memory_host);
    out->Add("lockstep_rank_device_memory_bytes", labels, rank.memory_device);
    if (rank.last_seen > 0) out->Add("lockstep_rank_last_seen_timestamp_seconds", labels, rank.last_seen);
    for (const auto& [stage, seconds] : rank.stages) {
      Labels staged = labels;
      staged.emplace_back("stage", stage);
      out->Add("lockstep_rank_stage_seconds", staged, seconds);
    }
  }
}

void AddGpu(const RunView& view, const NodeView& node, const GpuView& gpu, Samples* out) {
  Labels labels = {{"gpu", std::to_string(gpu.index)},
                   {"UUID", gpu.uuid},
                   {"device", fmt::format("nvidia{}", gpu.index)},
                   {"model", gpu.name},
                   {"Hostname", node.host},
                   {"run", view.name}};
  out->Add("DCGM_FI_DEV_GPU_UTIL", labels, gpu.utilisation);
  constexpr double kMiBs = 1.0 / (1 << 20);
  out->Add("DCGM_FI_DEV_FB_USED", labels, gpu.memory_used, kMiBs);
  if (gpu.memory_used && gpu.memory_total) {
    out->Add("DCGM_FI_DEV_FB_FREE", labels, (*gpu.memory_total - *gpu.memory_used) * kMiBs);
  }
  out->Add("DCGM_FI_DEV_GPU_TEMP", labels, gpu.temperature);
  out->Add("DCGM_FI_DEV_POWER_USAGE", labels, gpu.power);
  out->Add("DCGM_FI_DEV_SM_CLOCK", labels, gpu.clock);
  out->Add("DCGM_FI_DEV_MEM_CLOCK", labels, gpu.memory_clock);
  out->Add("DCGM_FI_DEV_XID_ERRORS", labels, gpu.xid);
  out->Add("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", labels, gpu.ecc_corrected);
  out->Add("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", labels, gpu.ecc_uncorrected);
  out->Add("lockstep_gpu_power_limit_watts", labels, gpu.power_limit);
  out->Add("lockstep_gpu_max_sm_clock_hertz", labels, gpu.clock_max, 1e6);
  for (const std::string& reason : gpu.throttle) {
    Labels slowed = labels;
    slowed.emplace_back("reason", reason);
    out->Add("lockstep_gpu_throttled", slowed, 1.0);
  }
}

void AddNodes(const RunView& view, Samples* out) {
  for (const NodeView& node : view.nodes) {
    const Labels labels = {{"run", view.name}, {"node", std::to_string(node.node)}, {"host", node.host}};
    out->Add("lockstep_node_cpu_ratio", labels, node.cpu, 0.01);
    out->Add("lockstep_node_cpu_cores", labels, node.cores);
    out->Add("lockstep_node_load1", labels, node.load);
    out->Add("lockstep_node_memory_used_bytes", labels, node.memory_used);
    out->Add("lockstep_node_memory_size_bytes", labels, node.memory_total);
    for (const GpuView& gpu : node.gpus) AddGpu(view, node, gpu, out);
    for (const LinkView& link : node.links) {
      Labels linked = labels;
      linked.emplace_back("link", link.name);
      linked.emplace_back("kind", link.kind);
      out->Add("lockstep_link_receive_bytes_per_second", linked, link.receive);
      out->Add("lockstep_link_send_bytes_per_second", linked, link.send);
      out->Add("lockstep_link_speed_bytes_per_second", linked, link.speed, 1.25e8);
      out->Add("lockstep_link_errors", linked, link.errors);
    }
  }
}

void AddRun(const RunView& view, double now, Samples* out) {
  const Labels labels = {{"run", view.name}};
  Labels info = labels;
  info.emplace_back("state", view.state);
  info.emplace_back("kind", view.log ? "log" : "run");
  out->Add("lockstep_run_info", info, 1.0);
  out->Add("lockstep_run_up", labels, view.ended ? 0.0 : 1.0);
  if (view.started > 0) out->Add("lockstep_run_start_time_seconds", labels, view.started);
  if (view.started > 0) {
    out->Add("lockstep_run_duration_seconds", labels, view.ended ? view.duration : std::max(0.0, now - view.started));
  }
  out->Add("lockstep_run_attempt", labels, static_cast<double>(view.attempt));
  if (view.world > 0) out->Add("lockstep_run_world_size", labels, static_cast<double>(view.world));
  out->Add("lockstep_run_step", labels, view.step);
  out->Add("lockstep_run_target_steps", labels, view.total);
  out->Add("lockstep_run_eta_seconds", labels, view.eta);
  out->Add("lockstep_run_step_seconds", labels, view.seconds_per_step);
  out->Add("lockstep_run_samples_per_second", labels, view.samples_per_second);
  out->Add("lockstep_run_tokens_per_second", labels, view.tokens_per_second);
  out->Add("lockstep_run_loss", labels, view.loss);
  out->Add("lockstep_run_learning_rate", labels, view.learning_rate);
  out->Add("lockstep_run_gradient_norm", labels, view.gradient_norm);
  out->Add("lockstep_run_data_wait_ratio", labels, view.data_wait);
  out->Add("lockstep_run_collective_wait_ratio", labels, view.collective_wait);
  std::map<std::string, int> findings;
  for (const FindingView& finding : view.findings) ++findings[finding.kind];
  for (const auto& [kind, count] : findings) {
    Labels found = labels;
    found.emplace_back("kind", kind);
    out->Add("lockstep_run_findings", found, static_cast<double>(count));
  }
  out->Add("lockstep_run_bad_lines", labels, static_cast<double>(view.bad_lines));
}

}  // namespace

std::string PrometheusText(const std::vector<const RunView*>& runs, double now) {
  Samples samples;
  for (const RunView* view : runs) {
    AddRun(*view, now, &samples);
    AddRanks(*view, &samples);
    AddNodes(*view, &samples);
  }
  return samples.Text();
}

}  // namespace lockstep::watch
