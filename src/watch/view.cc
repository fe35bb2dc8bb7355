#include "watch/view.h"

#include <algorithm>
#include <map>
#include <type_traits>
#include <utility>

#include "record/json_number.h"

namespace lockstep::watch {
namespace {

using nlohmann::json;

template <typename T>
json OrNull(const std::optional<T>& value) {
  if (!value) return nullptr;
  if constexpr (std::is_floating_point_v<T>) {
    return record::NumberToJson(*value);
  } else {
    return *value;
  }
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

// What is said of a GPU and of a rank, as rows of a table: an object of each, or a list of each field.
template <typename View>
struct Field {
  const char* name;
  json (*of)(const View& view, double now);
};

constexpr Field<GpuView> kGpuFields[] = {
    {"index", [](const GpuView& gpu, double) -> json { return gpu.index; }},
    {"uuid", [](const GpuView& gpu, double) -> json { return gpu.uuid; }},
    {"name", [](const GpuView& gpu, double) -> json { return gpu.name; }},
    {"utilisation", [](const GpuView& gpu, double) { return OrNull(gpu.utilisation); }},
    {"memory_used", [](const GpuView& gpu, double) { return OrNull(gpu.memory_used); }},
    {"memory_total", [](const GpuView& gpu, double) { return OrNull(gpu.memory_total); }},
    {"temperature", [](const GpuView& gpu, double) { return OrNull(gpu.temperature); }},
    {"power", [](const GpuView& gpu, double) { return OrNull(gpu.power); }},
    {"power_limit", [](const GpuView& gpu, double) { return OrNull(gpu.power_limit); }},
    {"clock", [](const GpuView& gpu, double) { return OrNull(gpu.clock); }},
    {"clock_max", [](const GpuView& gpu, double) { return OrNull(gpu.clock_max); }},
    {"memory_clock", [](const GpuView& gpu, double) { return OrNull(gpu.memory_clock); }},
    {"throttle", [](const GpuView& gpu, double) -> json { return gpu.throttle; }},
    {"ecc_corrected", [](const GpuView& gpu, double) { return OrNull(gpu.ecc_corrected); }},
    {"ecc_uncorrected", [](const GpuView& gpu, double) { return OrNull(gpu.ecc_uncorrected); }},
    {"xid", [](const GpuView& gpu, double) { return OrNull(gpu.xid); }},
    {"error", [](const GpuView& gpu, double) -> json { return gpu.error; }},
};

constexpr Field<RankView> kRankFields[] = {
    {"rank", [](const RankView& rank, double) -> json { return rank.rank; }},
    {"attempt", [](const RankView& rank, double) -> json { return rank.attempt; }},
    {"node", [](const RankView& rank, double) { return FromZero(rank.node); }},
    {"gpu", [](const RankView& rank, double) { return FromZero(rank.gpu); }},
    {"pid", [](const RankView& rank, double) { return rank.pid > 0 ? json(rank.pid) : json(); }},
    {"step", [](const RankView& rank, double) { return OrNull(rank.step); }},
    {"epoch", [](const RankView& rank, double) { return EpochJson(rank.epoch); }},
    {"epochs_done", [](const RankView& rank, double) { return OrNull(rank.epochs_done); }},
    {"seconds_per_step", [](const RankView& rank, double) { return OrNull(rank.seconds_per_step); }},
    {"steps_per_second", [](const RankView& rank, double) { return OrNull(PerSecond(rank.seconds_per_step)); }},
    {"data_seconds", [](const RankView& rank, double) { return OrNull(rank.data_seconds); }},
    {"collective_seconds", [](const RankView& rank, double) { return OrNull(rank.collective_seconds); }},
    {"wait_peer", [](const RankView& rank, double) { return FromZero(rank.wait_peer); }},
    {"loss", [](const RankView& rank, double) { return OrNull(rank.loss); }},
    {"memory_host", [](const RankView& rank, double) { return OrNull(rank.memory_host); }},
    {"memory_device", [](const RankView& rank, double) { return OrNull(rank.memory_device); }},
    {"cpu", [](const RankView& rank, double) { return OrNull(rank.cpu); }},
    {"rss", [](const RankView& rank, double) { return OrNull(rank.rss); }},
    {"last_seen", [](const RankView& rank, double) { return OrNullIfZero(rank.last_seen); }},
    {"age", [](const RankView& rank,
               double now) { return rank.last_seen > 0 ? json(std::max(0.0, now - rank.last_seen)) : json(); }},
};

template <typename View, size_t N>
json Object(const Field<View> (&fields)[N], const View& view, double now) {
  json out = json::object();
  for (const Field<View>& field : fields) out[field.name] = field.of(view, now);
  return out;
}

// A list of one value where all are the same.
json Column(json::array_t values) {
  const bool same = std::all_of(values.begin(), values.end(), [&](const json& value) { return value == values[0]; });
  if (same && values.size() > 1) values.resize(1);
  return values;
}

template <typename View, size_t N>
json Columns(const Field<View> (&fields)[N], const std::vector<View>& views, double now) {
  json out = {{"n", views.size()}};
  for (const Field<View>& field : fields) {
    json::array_t values;
    values.reserve(views.size());
    for (const View& view : views) values.push_back(field.of(view, now));
    out[field.name] = Column(std::move(values));
  }
  return out;
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

json NodeJson(const NodeView& node, double now, json gpus) {
  json links = json::array();
  for (const LinkView& link : node.links) links.push_back(LinkJson(link));
  return {{"node", node.node},
          {"host", node.host},
          {"age", node.t > 0 ? json(std::max(0.0, now - node.t)) : json()},
          {"cpu", OrNull(node.cpu)},
          {"cores", OrNull(node.cores)},
          {"load", OrNull(node.load)},
          {"memory_used", OrNull(node.memory_used)},
          {"memory_total", OrNull(node.memory_total)},
          {"gpus", std::move(gpus)},
          {"links", std::move(links)}};
}

json RankJson(const RankView& rank, double now) {
  json out = Object(kRankFields, rank, now), stages = json::object();
  for (const auto& [stage, seconds] : rank.stages) stages[stage] = OrNull(std::optional<double>(seconds));
  out["stages"] = std::move(stages);
  return out;
}

json StageColumns(const std::vector<RankView>& ranks) {
  std::map<std::string, json::array_t> columns;
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (const auto& [stage, seconds] : ranks[i].stages) {
      json::array_t& values = columns[stage];
      if (values.empty()) values.resize(ranks.size());
      values[i] = OrNull(std::optional<double>(seconds));
    }
  }
  json out = json::object();
  for (auto& [stage, values] : columns) out[stage] = Column(std::move(values));
  return out;
}

}  // namespace

std::optional<double> RankView::DataWait() const { return PartOf(data_seconds, seconds_per_step); }

std::optional<double> RankView::CollectiveWait() const { return PartOf(collective_seconds, seconds_per_step); }

bool RankView::Silent(double now) const {
  const double step = seconds_per_step.value_or(0), line = step * static_cast<double>(steps_per_line);
  return last_seen > 0 && now - last_seen > std::max({30.0, 5 * step, 2 * line});
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
  json out = Shared(), rank_list = json::array(), node_list = json::array(), points = json::array();
  for (const RankView& rank : ranks) rank_list.push_back(RankJson(rank, now));
  for (const NodeView& node : nodes) {
    json gpus = json::array();
    for (const GpuView& gpu : node.gpus) gpus.push_back(Object(kGpuFields, gpu, now));
    node_list.push_back(NodeJson(node, now, std::move(gpus)));
  }
  for (const SeriesPoint& point : curve.points()) points.push_back({point.step, point.mean(), point.low, point.high});
  out["ranks"] = std::move(rank_list);
  out["nodes"] = std::move(node_list);
  out["loss_curve"] = std::move(points);
  return out;
}

json RunView::ToColumns(double now) const {
  json out = Shared(), node_list = json::array();
  for (const NodeView& node : nodes) {
    node_list.push_back(NodeJson(node, now, Columns(kGpuFields, node.gpus, now)));
  }
  out["ranks"] = Columns(kRankFields, ranks, now);
  out["ranks"]["stages"] = StageColumns(ranks);
  out["nodes"] = std::move(node_list);
  return out;
}

json RunView::Shared() const {
  json event_list = json::array(), finding_list = json::array();
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
          {"events", std::move(event_list)},
          {"findings", std::move(finding_list)}};
}

}  // namespace lockstep::watch
