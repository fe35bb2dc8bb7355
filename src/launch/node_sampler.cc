#include "launch/node_sampler.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep::launch {
namespace {

constexpr size_t kMetricBytes = 16 << 10;  // of one rank's new metric lines that are read for one sample

template <typename T>
std::optional<double> AsNumber(const std::optional<T>& value) {
  return value ? std::optional<double>(static_cast<double>(*value)) : std::nullopt;
}

record::GpuSample ToSample(const hardware::GpuReading& gpu) {
  record::GpuSample sample;
  sample.gpu = gpu.index;
  sample.uuid = gpu.uuid;
  sample.name = gpu.name;
  sample.util = AsNumber(gpu.utilisation);
  sample.memory_util = AsNumber(gpu.memory_utilisation);
  sample.memory_used = AsNumber(gpu.memory_used);
  sample.memory_total = AsNumber(gpu.memory_total);
  sample.temperature = AsNumber(gpu.temperature);
  sample.power = AsNumber(gpu.power_watts);
  sample.power_limit = AsNumber(gpu.power_limit_watts);
  sample.sm_clock = AsNumber(gpu.sm_clock);
  sample.sm_clock_max = AsNumber(gpu.sm_clock_max);
  sample.memory_clock = AsNumber(gpu.memory_clock);
  sample.throttle = gpu.throttle;
  sample.ecc_corrected = AsNumber(gpu.ecc_corrected);
  sample.ecc_uncorrected = AsNumber(gpu.ecc_uncorrected);
  sample.xid = gpu.xid;
  sample.error = gpu.error;
  return sample;
}

void AddSeconds(std::string_view stage, double value, record::RankSample* rank) {
  for (auto& [name, sum] : rank->seconds) {
    if (name == stage) {
      sum += value;
      return;
    }
  }
  rank->seconds.emplace_back(stage, value);
}

// Its own value, else the one reduced over ranks.
std::optional<double> OwnScalar(const record::MetricLine& line, const std::string& name) {
  const std::optional<double> own = line.Find("rank/" + name);
  return own ? own : line.Find(name);
}

}  // namespace

struct NodeSampler::Followed {
  Rank rank;
  record::MetricFollower metrics;
  std::optional<double> cpu_seconds;
  std::optional<uint64_t> step;
  std::optional<double> step_t, loss;
  bool any_metric = false;
  // Of the log, where there are no metric lines.
  std::optional<uint64_t> log_step;
  TimePoint log_at{};

  explicit Followed(const Rank& r) : rank(r), metrics(r.metrics) {
    metrics.SkipToLast(0);
    metrics.MostAtOnce(kMetricBytes);
  }
};

NodeSampler::NodeSampler(NodeSamplerOptions options) : options_(std::move(options)), launcher_(getpid()) {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  host_ = name;
}

NodeSampler::~NodeSampler() = default;

void NodeSampler::AddRank(const Rank& rank) { ranks_[rank.rank] = std::make_unique<Followed>(rank); }

void NodeSampler::RemoveRank(int rank) { ranks_.erase(rank); }

void NodeSampler::SampleGpus(record::NodeSample* sample) {
  if (!options_.gpus) return;
  if (!std::exchange(gpus_tried_, true)) {
    std::vector<std::string> pci = options_.gpu_pci;
    std::erase(pci, "");
    std::string why;
    gpus_ =
        hardware::GpuSampler::Open("", pci.size() == options_.gpu_pci.size() ? pci : std::vector<std::string>(), &why);
  }
  if (!gpus_) return;
  gpu_of_pid_.clear();
  for (const hardware::GpuReading& gpu : gpus_->Read()) {
    sample->gpus.push_back(ToSample(gpu));
    gpu_of_pci_[gpu.pci] = gpu.index;
    for (const hardware::GpuProcess& process : gpu.processes) gpu_of_pid_.emplace(process.pid, gpu.index);
  }
}

void NodeSampler::SampleLinks(double seconds, record::NodeSample* sample) {
  if (!std::exchange(links_known_, true)) {
    if (!options_.towards.empty()) links_.Add(hardware::InterfaceTowards(options_.towards));
    for (const std::string& name : options_.links) links_.Add(name);
  }
  for (const hardware::LinkReading& link : links_.Read()) {
    record::LinkSample one;
    one.name = link.name;
    one.kind = link.infiniband ? "infiniband" : "ethernet";
    one.speed = link.gbit;
    one.off = link.off;
    one.bytes_in = AsNumber(link.in);
    one.bytes_out = AsNumber(link.out);
    one.errors = AsNumber(link.errors);
    if (link.in && link.out) {
      const auto [before, first] = link_bytes_.try_emplace(link.name, *link.in, *link.out);
      auto& [in, out] = before->second;
      if (!first && seconds > 0 && *link.in >= in && *link.out >= out) {
        one.in = static_cast<double>(*link.in - in) / seconds;
        one.out = static_cast<double>(*link.out - out) / seconds;
      }
      in = *link.in;
      out = *link.out;
    }
    sample->links.push_back(std::move(one));
  }
}

void NodeSampler::SampleMachine(double seconds, record::NodeSample* sample) {
  const hardware::MachineUse use = machine_.Read();
  if (use.busy_seconds && busy_ && seconds > 0) {
    sample->cpu_percent = std::max(0.0, (*use.busy_seconds - *busy_) / seconds * 100);
  }
  busy_ = use.busy_seconds;
  sample->cpu_cores = machine_.cores();
  sample->cpu_load = use.load;
  sample->memory_used = AsNumber(use.memory_used);
  sample->memory_total = AsNumber(use.memory_total);
  SampleGpus(sample);
  SampleLinks(seconds, sample);
}

record::RankSample NodeSampler::SampleRank(double seconds, Followed* of) const {
  record::RankSample rank;
  rank.rank = of->rank.rank;
  rank.pid = of->rank.pid;
  if (const auto use = hardware::UseOfProcess(of->rank.pid)) {
    rank.rss = static_cast<double>(use->rss);
    if (of->cpu_seconds && seconds > 0) {
      rank.cpu = std::max(0.0, (use->cpu_seconds - *of->cpu_seconds) / seconds * 100);
    }
    of->cpu_seconds = use->cpu_seconds;
    for (const pid_t pid : use->pids) {
      if (const auto at = gpu_of_pid_.find(pid); at != gpu_of_pid_.end() && !rank.gpu) rank.gpu = at->second;
    }
  }
  // Its process is on none yet, or cannot be seen from this pid namespace.
  if (!rank.gpu && !options_.gpu_pci.empty()) {
    const auto slot = static_cast<size_t>(of->rank.local_rank) % options_.gpu_pci.size();
    const auto at = gpu_of_pci_.find(options_.gpu_pci[slot]);
    if (at != gpu_of_pci_.end()) rank.gpu = at->second;
  }
  double longest = 0;
  std::map<int, double> waits;
  of->metrics.Read([&](const record::MetricLine& line) {
    if (line.attempt != options_.attempt && line.attempt != 0) return;
    of->any_metric = true;
    if (line.step) {
      of->step = line.step;
      of->step_t = line.t;
    }
    if (const auto loss = OwnScalar(line, "loss")) of->loss = loss;
    const auto step = OwnScalar(line, "time/step");
    if (!step) return;
    ++rank.steps;
    AddSeconds("step", *step, &rank);
    for (const std::string_view stage : record::kStageNames) {
      if (const auto value = line.Find(fmt::format("rank/time/{}", stage))) AddSeconds(stage, *value, &rank);
    }
    const auto peer = line.Find("rank/wait/peer"), wait = line.Find("rank/wait/seconds");
    if (!peer || !wait || !(*peer >= 0) || !(*peer < 1e9)) return;
    double& sum = waits[static_cast<int>(*peer)];
    sum += *wait;
    if (sum <= longest) return;
    longest = sum;
    rank.wait_peer = static_cast<int>(*peer);
  });
  if (rank.wait_peer) rank.wait_seconds = longest;
  if (!of->any_metric && progress_) {
    const record::ProgressState progress = progress_(of->rank.rank);
    const std::optional<uint64_t> step = progress.StepOfRun();
    if (step && progress.any() && step != of->log_step) {
      if (of->log_step && *step > *of->log_step) {
        rank.steps = static_cast<int>(std::min<uint64_t>(*step - *of->log_step, 1u << 20));
        AddSeconds("step", std::chrono::duration<double>(progress.last - of->log_at).count(), &rank);
      }
      of->log_step = of->step = step;
      of->log_at = progress.last;
      of->step_t = UnixSeconds() - SecondsSince(progress.last);
    }
  }
  rank.step = of->step;
  rank.step_t = of->step_t;
  rank.loss = of->loss;
  return rank;
}

record::NodeSample NodeSampler::Sample() {
  const TimePoint now = Now();
  const double seconds = last_ == TimePoint{} ? 0 : std::chrono::duration<double>(now - last_).count();
  last_ = now;
  record::NodeSample sample;
  sample.t = UnixSeconds();
  sample.attempt = options_.attempt;
  sample.node = options_.node;
  sample.host = host_;
  sample.launcher = launcher_;
  sample.n = count_++;
  if (options_.machine) SampleMachine(seconds, &sample);
  for (auto& [number, rank] : ranks_) sample.ranks.push_back(SampleRank(seconds, rank.get()));
  return sample;
}

}  // namespace lockstep::launch
