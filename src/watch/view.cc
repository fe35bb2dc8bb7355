#include "watch/view.h"

#include <algorithm>
#include <cmath>

namespace lockstep::watch {
namespace {

using nlohmann::json;

template <typename T>
json OrNull(const std::optional<T>& value) {
  if (!value) return nullptr;
  if constexpr (std::is_floating_point_v<T>) {
    // As in metric lines: JSON has no such numbers.
    if (std::isnan(*value)) return "nan";
    if (std::isinf(*value)) return *value > 0 ? "inf" : "-inf";
  }
  return *value;
}

template <typename T>
json FromZero(T value) {
  return value >= 0 ? json(value) : json();
}

json OrNullIfZero(double value) { return value > 0 ? json(value) : json(); }

json EpochJson(const std::optional<EpochView>& epoch) {
  if (!epoch) return nullptr;
  return {{"number", epoch->number}, {"of", OrNull(epoch->of)}, {"step", epoch->step}, {"total", epoch->total}};
}

std::optional<double> PerSecond(const std::optional<double>& seconds) {
  if (!seconds || !(*seconds > 0)) return std::nullopt;
  return 1 / *seconds;
}

std::optional<double> PartOf(const std::optional<double>& part, const std::optional<double>& whole) {
  if (!part || !whole || !(*whole > 0) || !(*part >= 0)) return std::nullopt;
  return std::min(1.0, *part / *whole);
}

json GpuJson(const GpuView& gpu) {
  return {{"index", gpu.index},
          {"uuid", gpu.uuid},
          {"name", gpu.name},
          {"utilisation", OrNull(gpu.utilisation)},
          {"memory_used", OrNull(gpu.memory_used)},
          {"memory_total", OrNull(gpu.memory_total)},
          {"temperature", OrNull(gpu.temperature)},
          {"power", OrNull(gpu.power)},
          {"power_limit", OrNull(gpu.power_limit)},
          {"clock", OrNull(gpu.clock)},
          {"clock_max", OrNull(gpu.clock_max)},
          {"memory_clock", OrNull(gpu.memory_clock)},
          {"throttle", gpu.throttle},
          {"ecc_corrected", OrNull(gpu.ecc_corrected)},
          {"ecc_uncorrected", OrNull(gpu.ecc_uncorrected)},
          {"xid", OrNull(gpu.xid)},
          {"error", gpu.error}};
}

json LinkJson(const LinkView& link) {
  return {{"name", link.name},
          {"kind", link.kind},
          {"receive", OrNull(link.receive)},
          {"send", OrNull(link.send)},
          {"speed", OrNull(link.speed)},
          {"errors", OrNull(link.errors)},
          {"off", link.off}};
}

json NodeJson(const NodeView& node, double now) {
  json gpus = json::array(), links = json::array();
  for (const GpuView& gpu : node.gpus) gpus.push_back(GpuJson(gpu));
  for (const LinkView& link : node.links) links.push_back(LinkJson(link));
  return {{"node", node.node},
          {"host", node.host},
          {"age", node.t > 0 ? json(std::max(0.0, now - node.t)) : json()},
          {"cpu", OrNull(node.cpu)},
          {"cores", OrNull(node.cores)},
          {"load", OrNull(node.load)},
          {"memory_used", OrNull(node.memory_used)},
          {"memory_total", OrNull(node.memory_total)},
          {"gpus", gpus},
          {"links", links}};
}

json RankJson(const RankView& rank, double now) {
  json stages = json::object();
  for (const auto& [stage, seconds] : rank.stages) stages[stage] = OrNull(std::optional<double>(seconds));
  return {{"rank", rank.rank},
          {"attempt", rank.attempt},
          {"node", FromZero(rank.node)},
          {"gpu", FromZero(rank.gpu)},
          {"pid", rank.pid > 0 ? json(rank.pid) : json()},
          {"step", OrNull(rank.step)},
          {"epoch", EpochJson(rank.epoch)},
          {"epochs_done", OrNull(rank.epochs_done)},
          {"seconds_per_step", OrNull(rank.seconds_per_step)},
          {"steps_per_second", OrNull(PerSecond(rank.seconds_per_step))},
          {"data_seconds", OrNull(rank.data_seconds)},
          {"collective_seconds", OrNull(rank.collective_seconds)},
          {"stages", stages},
          {"wait_peer", FromZero(rank.wait_peer)},
          {"loss", OrNull(rank.loss)},
          {"memory_host", OrNull(rank.memory_host)},
          {"memory_device", OrNull(rank.memory_device)},
          {"cpu", OrNull(rank.cpu)},
          {"rss", OrNull(rank.rss)},
          {"last_seen", OrNullIfZero(rank.last_seen)},
          {"age", rank.last_seen > 0 ? json(std::max(0.0, now - rank.last_seen)) : json()}};
}

}  // namespace

std::optional<double> RankView::DataWait() const { return PartOf(data_seconds, seconds_per_step); }

std::optional<double> RankView::CollectiveWait() const { return PartOf(collective_seconds, seconds_per_step); }

bool RankView::Silent(double now) const {
  return last_seen > 0 && now - last_seen > std::max(30.0, 5 * seconds_per_step.value_or(0));
}

const NodeView* RunView::Node(int node) const {
  const auto at = std::lower_bound(nodes.begin(), nodes.end(), node,
                                   [](const NodeView& one, int wanted) { return one.node < wanted; });
  return at == nodes.end() || at->node != node ? nullptr : &*at;
}

const GpuView* RunView::GpuOf(const RankView& rank) const {
  const NodeView* node = rank.gpu >= 0 ? Node(rank.node) : nullptr;
  if (node == nullptr) return nullptr;
  // Nearly always in its place.
  const auto place = static_cast<size_t>(rank.gpu);
  if (place < node->gpus.size() && node->gpus[place].index == rank.gpu) return &node->gpus[place];
  const auto at =
      std::find_if(node->gpus.begin(), node->gpus.end(), [&](const GpuView& gpu) { return gpu.index == rank.gpu; });
  return at == node->gpus.end() ? nullptr : &*at;
}

json RunView::ToJson(double now) const {
  json rank_list = json::array(), node_list = json::array(), event_list = json::array(), finding_list = json::array();
  for (const RankView& rank : ranks) rank_list.push_back(RankJson(rank, now));
  for (const NodeView& node : nodes) node_list.push_back(NodeJson(node, now));
  for (const EventView& event : events) {
    event_list.push_back({{"t", event.t},
                          {"type", event.type},
                          {"attempt", FromZero(event.attempt)},
                          {"node", FromZero(event.node)},
                          {"rank", FromZero(event.rank)},
                          {"text", event.text}});
  }
  for (const FindingView& finding : findings) {
    finding_list.push_back({{"kind", finding.kind},
                            {"text", finding.text},
                            {"evidence", finding.evidence},
                            {"stage", finding.stage},
                            {"node", FromZero(finding.node)},
                            {"rank", FromZero(finding.rank)},
                            {"since", OrNullIfZero(finding.since)}});
  }
  json points = json::array();
  for (const SeriesPoint& point : curve.points()) points.push_back({point.step, point.mean(), point.low, point.high});
  return {{"name", name},
          {"path", path},
          {"kind", log ? "log" : "run"},
          {"state", state},
          {"ended", ended},
          {"reason", reason},
          {"exit_code", OrNull(exit_code)},
          {"attempt", attempt},
          {"world_size", world > 0 ? json(world) : json()},
          {"nnodes", nnodes > 0 ? json(nnodes) : json()},
          {"started", OrNullIfZero(started)},
          {"duration", duration},
          {"step", OrNull(step)},
          {"total", OrNull(total)},
          {"epoch", EpochJson(epoch)},
          {"epochs_done", OrNull(epochs_done)},
          {"seconds_per_step", OrNull(seconds_per_step)},
          {"steps_per_second", OrNull(PerSecond(seconds_per_step))},
          {"samples_per_second", OrNull(samples_per_second)},
          {"tokens_per_second", OrNull(tokens_per_second)},
          {"eta", OrNull(eta)},
          {"loss", OrNull(loss)},
          {"learning_rate", OrNull(learning_rate)},
          {"gradient_norm", OrNull(gradient_norm)},
          {"data_wait", OrNull(data_wait)},
          {"collective_wait", OrNull(collective_wait)},
          {"memory_host", OrNull(memory_host)},
          {"memory_device", OrNull(memory_device)},
          {"bad_lines", bad_lines},
          {"ranks", rank_list},
          {"nodes", node_list},
          {"events", event_list},
          {"findings", finding_list},
          {"loss_curve", points}};
}

}  // namespace lockstep::watch
