#include <algorithm>
#include <cmath>
#include <numeric>

#include "watch/findings.h"

namespace lockstep::watch {
namespace {

constexpr size_t kMostSteps = 512;  // of a rank
constexpr size_t kMostLosses = 256;
constexpr size_t kMostPoints = 240;  // of memory; then every second one goes
constexpr size_t kRecent = 16;       // samples of a GPU or a link
constexpr size_t kMostGaps = 8;
constexpr int kMostExpanded = 256;  // steps that one sample may stand for

template <typename T>
void Push(std::deque<T>* list, T value, size_t most) {
  list->push_back(std::move(value));
  while (list->size() > most) list->pop_front();
}

// The same; what falls out lends its memory.
template <typename T>
void PushCopy(std::deque<T>* list, const T& value, size_t most) {
  if (list->size() < most) {
    list->push_back(value);
    return;
  }
  T oldest = std::move(list->front());
  list->pop_front();
  oldest = value;
  list->push_back(std::move(oldest));
}

}  // namespace

nlohmann::json Finding::ToJson() const {
  const auto number = [](const std::optional<int>& value) { return value ? nlohmann::json(*value) : nlohmann::json(); };
  return {{"rule", rule},         {"text", text},         {"evidence", evidence}, {"stage", stage},
          {"rank", number(rank)}, {"node", number(node)}, {"gpu", number(gpu)}};
}

// Null for what an earlier attempt left; a later one begins anew.
Window::Rank* Window::Of(int rank, int attempt) {
  if (attempt > attempt_) {
    attempt_ = attempt;
    ranks_.clear();
    losses_.clear();
    rank_on_.clear();
  }
  // Programs of others may not say it.
  if (attempt < attempt_ && attempt != 0) return nullptr;
  return &ranks_[rank];
}

void Window::Heard(Rank* rank, double t) {
  if (rank->last_t > 0 && t > rank->last_t) Push(&rank->gaps, t - rank->last_t, kMostGaps);
  rank->last_t = t;  // it may go back when a clock is set
}

void Window::AddStep(Rank* rank, Step step, int count) {
  if (!rank->steps.empty() && step.step <= rank->steps.back().step) {
    // Seen already, or a restart of its own: the later one counts.
    if (step.step == rank->steps.back().step) return;
    rank->steps.clear();
    rank->first_step = step.step;
  }
  if (rank->steps.empty() && rank->last_t == 0) rank->first_step = step.step;
  Heard(rank, step.t);
  // What a sample sums is taken as so many equal steps.
  const int shown = std::clamp(count, 1, kMostExpanded);
  for (int i = shown - 1; i >= 0; --i) {
    if (step.step < static_cast<uint64_t>(i)) continue;
    Step one = step;
    one.step = step.step - static_cast<uint64_t>(i);
    one.t = step.t - step.seconds * i;
    if (!rank->steps.empty() && one.step <= rank->steps.back().step) continue;
    Push(&rank->steps, one, kMostSteps);
  }
}

void Window::AddLoss(uint64_t step, double loss) {
  if (!losses_.empty() && step < losses_.back().first) losses_.clear();  // rolled back
  if (!losses_.empty() && step == losses_.back().first) return;
  Push(&losses_, std::pair(step, loss), kMostLosses);
}

void Window::AddMemory(Rank* rank, double t, double bytes) {
  if (!rank->memory.empty() && t < rank->memory.back().t + rank->memory_every) return;
  rank->memory.push_back({t, bytes});
  if (rank->memory.size() < kMostPoints) return;
  for (size_t i = 0; 2 * i < rank->memory.size(); ++i) rank->memory[i] = rank->memory[2 * i];
  rank->memory.resize((rank->memory.size() + 1) / 2);
  rank->memory_every = std::max(2 * rank->memory_every, 1.0);
}

void Window::Add(const record::MetricLine& line) {
  record::ScannedLine scanned;
  scanned.Assign(line);
  Add(scanned, LineValues(scanned));
}

void Window::Add(const record::ScannedLine& line, const LineValues& values) {
  Rank* rank = Of(line.rank, line.attempt);
  if (rank == nullptr) return;
  if (!rank->from_metrics) rank->steps.clear();
  rank->from_metrics = true;
  Heard(rank, line.t);
  if (const auto bytes = values.own[LineValues::kHost]) AddMemory(rank, line.t, *bytes);
  if (!line.step) return;
  if (const auto loss = values.Of(LineValues::kLoss)) AddLoss(*line.step, *loss);
  const std::optional<double> seconds = values.Of(LineValues::kStep);
  if (!seconds || !(*seconds >= 0) || !std::isfinite(*seconds)) return;
  Step step;
  step.step = *line.step;
  step.t = line.t;
  step.seconds = *seconds;
  for (size_t k = 0; k < kStages; ++k) {
    const std::optional<double> value = values.own[k];
    if (value && std::isfinite(*value)) step.stages[k] = *value;
  }
  if (const auto peer = values.own[LineValues::kWaitPeer]; peer && *peer >= 0 && *peer < 1e9) {
    step.wait_peer = static_cast<int>(*peer);
    step.wait_seconds = values.own[LineValues::kWaitSeconds].value_or(0);
  }
  AddStep(rank, step, 1);
}

void Window::Add(const record::NodeSample& sample) {
  if (sample.attempt < attempt_) return;
  Node& node = nodes_[sample.node];
  node.t = sample.t;
  if (sample.cpu_percent || sample.memory_total) {
    node.host = sample.host;
    if (sample.cpu_percent) node.cpu_percent = sample.cpu_percent;
    if (sample.cpu_cores) node.cpu_cores = sample.cpu_cores;
    if (sample.memory_total) node.memory_total = sample.memory_total;
  }
  for (const record::GpuSample& gpu : sample.gpus) PushCopy(&gpus_[{sample.node, gpu.gpu}].recent, gpu, kRecent);
  for (const record::LinkSample& link : sample.links) {
    Push(&links_[{sample.node, link.name}].recent, std::pair(sample.t, link), kRecent);
  }
  for (const record::RankSample& one : sample.ranks) {
    Rank* rank = Of(one.rank, sample.attempt);
    if (rank == nullptr) continue;
    rank->node = sample.node;
    if (one.gpu) rank_on_[{sample.node, *one.gpu}] = one.rank;
    if (one.rss) AddMemory(rank, sample.t, *one.rss);
    if (rank->from_metrics) continue;
    if (one.step && one.loss) AddLoss(*one.step, *one.loss);
    const std::optional<double> seconds = one.Seconds("step");
    if (!one.step || !seconds || one.steps < 1 || !std::isfinite(*seconds)) continue;
    Step step;
    step.step = *one.step;
    step.t = one.step_t.value_or(sample.t);
    step.seconds = *seconds / one.steps;
    for (size_t k = 0; k < kStages; ++k) {
      const auto value = one.Seconds(record::kStageNames[k]);
      if (value && std::isfinite(*value)) step.stages[k] = *value / one.steps;
    }
    step.wait_peer = one.wait_peer.value_or(-1);
    step.wait_seconds = one.wait_seconds.value_or(0) / one.steps;
    AddStep(rank, step, one.steps);
  }
}

void Window::AddProgress(int rank, double t, std::optional<uint64_t> step, std::optional<double> seconds_per_step,
                         std::optional<double> loss) {
  Rank* of = Of(rank, attempt_);
  if (of == nullptr || of->from_metrics || !step) return;
  if (loss) AddLoss(*step, *loss);
  Step done;
  done.step = *step;
  done.t = t;
  if (seconds_per_step) {
    done.seconds = *seconds_per_step;
  } else if (!of->steps.empty() && *step > of->steps.back().step && t > of->steps.back().t) {
    done.seconds = (t - of->steps.back().t) / static_cast<double>(*step - of->steps.back().step);
  }
  AddStep(of, done, 1);
}

void Window::Ended(int rank) {
  if (const auto it = ranks_.find(rank); it != ranks_.end()) it->second.ended = true;
}

double Window::NowOf(const Rank& rank, double now) const {
  const auto it = nodes_.find(rank.node);
  return it == nodes_.end() || it->second.t == 0 ? now : it->second.t;
}

std::optional<int> Window::RankOn(int node, int gpu) const {
  const auto it = rank_on_.find({node, gpu});
  return it == rank_on_.end() ? std::nullopt : std::optional<int>(it->second);
}

}  // namespace lockstep::watch
