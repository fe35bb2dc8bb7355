#include "watch/web/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/clock.h"
#include "base/config_tree.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "record/json_number.h"
#include "record/reader.h"
#include "watch/web/site.h"

namespace lockstep::watch {
namespace {

using nlohmann::json;

constexpr double kYear10000 = 253402300800;  // seconds since 1970: a later one is no time
constexpr size_t kMostConfig = 256u << 10, kMostPictureBytes = 2u << 20, kMostMetrics = 60, kCurvePoints = 600;

void Flatten(const ConfigNode& node, const std::string& prefix, std::map<std::string, std::string>* out) {
  if (node.kind == ConfigNode::Kind::kScalar) (*out)[prefix] = node.text;
  if (node.kind == ConfigNode::Kind::kNull && !prefix.empty()) (*out)[prefix] = "null";
  for (const ConfigEntry& entry : node.entries) {
    Flatten(entry.value, prefix.empty() ? entry.key : prefix + "." + entry.key, out);
  }
  for (size_t i = 0; i < node.items.size(); ++i) Flatten(node.items[i], fmt::format("{}[{}]", prefix, i), out);
}

// Those that people look at first, then by name.
int PlaceOf(std::string_view name) {
  static constexpr std::string_view kFirst[] = {
      "loss",      "val/loss",  "val/psnr",           "val/ssim",          "val/perplexity", "lr",
      "grad_norm", "time/step", "samples_per_second", "tokens_per_second", "data/stall"};
  const auto* found = std::find(std::begin(kFirst), std::end(kFirst), name);
  if (found != std::end(kFirst)) return static_cast<int>(found - kFirst);
  return name.starts_with("val/") ? 50 : name.starts_with("rank/") ? 200 : 100;
}

MetricSummary Summarised(const std::string& name, Curve curve) {
  MetricSummary out{.name = name, .low = HUGE_VAL, .high = -HUGE_VAL};
  double sum = 0;
  uint64_t finite = 0;
  for (const CurvePoint& point : curve.points) {
    out.values += point.values;
    out.not_finite += point.not_finite;
    out.last = point.mean;
    if (std::isnan(point.mean)) continue;
    if (point.low < out.low) {
      out.low = point.low;
      out.low_step = point.step;
    }
    if (point.high > out.high) {
      out.high = point.high;
      out.high_step = point.step;
    }
    sum += point.mean * (point.values - point.not_finite);
    finite += point.values - point.not_finite;
  }
  if (finite == 0) out.low = out.high = NAN;
  out.mean = finite > 0 ? sum / static_cast<double>(finite) : NAN;
  out.curve = std::move(curve);
  return out;
}

std::vector<RestartReport> ReadRestarts(const std::vector<json>& events) {
  std::vector<RestartReport> out;
  json diagnosis;
  for (const json& event : events) {
    const std::string type = GetString(event, "type");
    if (type == "diagnosis" && event.contains("diagnosis")) diagnosis = event["diagnosis"];
    if (type != "restart") continue;
    // The event names the attempt that ended.
    const int64_t ended = GetInt(event, "attempt", -1);
    RestartReport one{.t = GetNumber(event, "t"), .attempt = ended < 0 ? -1 : static_cast<int>(ended + 1)};
    one.why = GetString(event, "why");
    if (diagnosis.is_object()) {
      one.cause = GetString(diagnosis, "cause");
      one.remedy = GetString(diagnosis, "remedy");
    }
    diagnosis = json();
    out.push_back(std::move(one));
  }
  return out;
}

std::string Text(const json& value) { return value.is_string() ? value.get<std::string>() : ToJsonLine(value); }

std::vector<std::pair<std::string, std::string>> EnvironmentRows(const RunReport& report,
                                                                 const std::vector<json>& events) {
  std::vector<std::pair<std::string, std::string>> rows;
  static constexpr std::pair<const char*, const char*> kFields[] = {
      {"program", "program"},  {"workdir", "working directory"},
      {"user", "user"},        {"host", "host of node 0"},
      {"version", "Lockstep"}, {"commit", "commit"},
      {"code", "code"},        {"config_digest", "configuration"},
      {"data_digest", "data"}};
  for (const auto& [key, name] : kFields) {
    if (!report.identity.is_object() || !report.identity.contains(key) || report.identity[key].is_null()) continue;
    const json& value = report.identity[key];
    std::vector<std::string> words;
    if (value.is_array()) {
      for (const json& word : value) words.push_back(Text(word));
    }
    rows.emplace_back(name, value.is_array() ? ShellQuote(words) : Text(value));
  }
  std::map<std::string, int> gpus;
  std::vector<std::string> hosts;
  for (const NodeView& node : report.view.nodes) {
    hosts.push_back(node.host.empty() ? std::to_string(node.node) : node.host);
    for (const GpuView& gpu : node.gpus) ++gpus[gpu.name];
  }
  if (!hosts.empty()) rows.emplace_back("nodes", Join(hosts, ", "));
  for (const auto& [name, count] : gpus) rows.emplace_back("GPUs", fmt::format("{} x {}", count, name));
  for (const json& event : events) {
    if (GetString(event, "type") != "comm_ready" || GetString(event, "nccl").empty()) continue;
    rows.emplace_back("NCCL", GetString(event, "nccl"));
    break;
  }
  return rows;
}

json MetricJson(const MetricSummary& metric) {
  const auto number = record::NumberToJson;
  return {{"last", number(metric.last)},   {"least", number(metric.low)},      {"greatest", number(metric.high)},
          {"mean", number(metric.mean)},   {"values", metric.values},          {"not_finite", metric.not_finite},
          {"least_step", metric.low_step}, {"greatest_step", metric.high_step}};
}

json GoodputJson(const Goodput& goodput) {
  json parts = json::object();
  for (const Goodput::Part& part : goodput.Parts()) parts[part.name] = part.seconds;
  const std::optional<double> ratio = goodput.ratio();
  return {{"ratio", ratio ? json(*ratio) : json()},
          {"wall", goodput.wall},
          {"seconds", parts},
          {"steps", goodput.steps},
          {"repeated_steps", goodput.repeated_steps}};
}

}  // namespace

const MetricSummary* RunReport::Find(std::string_view name) const {
  const auto found =
      std::find_if(metrics.begin(), metrics.end(), [&](const MetricSummary& m) { return m.name == name; });
  return found == metrics.end() ? nullptr : &*found;
}

Result<RunReport> MakeReport(std::unique_ptr<Watch> watch) {
  RunReport report;
  report.made = UnixSeconds();
  do {
    watch->Poll(UnixSeconds());
  } while (watch->view().read < 1 && !watch->view().log);
  report.view = watch->view();
  const std::string& path = report.view.path;
  if (report.view.log) {
    return Status(Code::kUsage, fmt::format("'{}' is a log file; a report is of a run", Printable(path)),
                  "give a run (`lockstep runs` lists them)");
  }
  report.identity = record::ReadRunJson(path).value_or(json::object());
  report.end = record::ReadReport(path).value_or(json());
  const std::vector<json> events = record::ReadEvents(path).lines;
  for (const char* name : {"/train.yaml", "/config.yaml"}) {
    Result<std::string> text = ReadFile(path + name, kMostConfig);
    if (!text.ok()) continue;
    report.config = *text;
    if (Result<ConfigTree> tree = ConfigTree::Load(path + name); tree.ok()) Flatten(tree->root(), "", &report.settings);
    break;
  }
  report.restarts = ReadRestarts(events);
  report.environment = EnvironmentRows(report, events);

  const int rank = report.view.ranks.empty() ? 0 : report.view.ranks.front().rank;
  const bool over = report.view.ended && report.end.is_object();
  report.goodput = MeasureGoodput(fmt::format("{}/metrics/rank-{}.jsonl", path, rank), events,
                                  over ? GetNumber(report.end, "ended") : 0);
  Result<Pyramid> pyramid = Pyramid::Open(path, rank);
  if (!pyramid.ok()) return pyramid.status();
  while (pyramid->Advance(Millis(1000))) {
  }
  if (Status saved = pyramid->Save(); !saved.ok()) return saved;
  std::vector<std::string> names = pyramid->names();
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::make_pair(PlaceOf(a), std::string_view(a)) < std::make_pair(PlaceOf(b), std::string_view(b));
  });
  if (names.size() > kMostMetrics) names.resize(kMostMetrics);
  for (const std::string& name : names) {
    std::optional<Curve> curve = pyramid->Query(name, {.points = kCurvePoints});
    if (curve && !curve->points.empty()) report.metrics.push_back(Summarised(name, std::move(*curve)));
  }
  // Of a program that writes no metric lines: what its progress lines say.
  if (!report.view.curve.points().empty() && report.Find("loss") == nullptr && report.Find("rank/loss") == nullptr) {
    report.metrics.insert(report.metrics.begin(), Summarised("loss", CurveOf(report.view)));
    // The curve of a log has finite values only.
    if (report.view.loss && !std::isfinite(*report.view.loss)) report.metrics.front().last = *report.view.loss;
  }
  std::vector<std::string> pictures = PictureNames(path);
  std::erase(pictures, "loss.png");
  if (!pictures.empty()) {
    Result<std::string> bytes = ReadFile(path + "/pictures/" + pictures.back(), kMostPictureBytes);
    if (bytes.ok() && pictures.back().ends_with(".png")) {
      report.picture = *bytes;
      report.picture_name = pictures.back();
    }
  }
  return report;
}

std::vector<Difference> SettingsThatDiffer(const RunReport& here, const RunReport& there) {
  std::set<std::string> keys;
  for (const auto& [key, value] : here.settings) keys.insert(key);
  for (const auto& [key, value] : there.settings) keys.insert(key);
  std::vector<Difference> out;
  for (const std::string& key : keys) {
    const auto a = here.settings.find(key), b = there.settings.find(key);
    Difference one{key, a == here.settings.end() ? "" : a->second, b == there.settings.end() ? "" : b->second};
    if (one.here != one.there) out.push_back(std::move(one));
  }
  return out;
}

std::string ShortNumber(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  return fmt::format("{:.4g}", value);
}

std::string StepsText(const Goodput& goodput, const AttemptTimes& attempt) {
  if (attempt.first_step) return fmt::format("{} to {}", *attempt.first_step, *attempt.last_step);
  return goodput.ratio() ? "none" : "unknown";
}

std::string Seconds(double seconds) {
  return FormatDuration(std::chrono::milliseconds(static_cast<int64_t>(std::max(0.0, seconds) * 1000)));
}

std::vector<std::pair<std::string, std::string>> KeyFigures(const RunReport& report) {
  const RunView& view = report.view;
  std::vector<std::pair<std::string, std::string>> rows;
  rows.emplace_back("state", view.state + (view.reason.empty() ? "" : ": " + view.reason));
  if (report.end.is_object()) {
    const std::string cause = report.end.contains("diagnosis") ? GetString(report.end["diagnosis"], "cause") : "";
    const std::string remedy = GetString(report.end, "do");
    if (!cause.empty()) rows.emplace_back("cause", cause);
    if (!remedy.empty()) rows.emplace_back("to do", remedy);
  }
  if (view.step) {
    rows.emplace_back("steps",
                      view.total ? fmt::format("{} of {}", *view.step, *view.total) : fmt::format("{}", *view.step));
  }
  if (view.started > 0 && view.started < kYear10000) {
    const std::time_t started = static_cast<std::time_t>(view.started);
    rows.emplace_back("started", fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(started)));
  }
  if (view.duration > 0) rows.emplace_back("duration", Seconds(view.duration));
  if (view.world > 0)
    rows.emplace_back("ranks", fmt::format("{}{}", view.world,
                                           view.nnodes > 0 ? fmt::format(" on {}", Count(view.nnodes, "node")) : ""));
  const Goodput& goodput = report.goodput;
  if (goodput.ratio()) {
    rows.emplace_back("goodput", fmt::format("{:.1f} %", 100 * *goodput.ratio()));
    rows.emplace_back("time per step", Seconds(goodput.training / static_cast<double>(goodput.steps)));
  } else if (view.seconds_per_step) {
    rows.emplace_back("time per step", Seconds(*view.seconds_per_step));
  }
  for (const char* name : {"samples_per_second", "tokens_per_second"}) {
    if (const MetricSummary* metric = report.Find(name)) {
      rows.emplace_back(name == std::string("samples_per_second") ? "samples per second" : "tokens per second",
                        fmt::format("{} in training", ShortNumber(metric->mean)));
    }
  }
  if (const MetricSummary* loss = report.Find("loss")) {
    rows.emplace_back("loss",
                      fmt::format("{} at the end, {} at least", ShortNumber(loss->last), ShortNumber(loss->low)));
  }
  rows.emplace_back("restarts", fmt::format("{}", report.restarts.size()));
  return rows;
}

std::vector<Difference> FiguresBeside(const RunReport& here, const RunReport& there) {
  std::vector<Difference> out;
  for (const auto& [name, value] : KeyFigures(here)) out.push_back({name, value, ""});
  for (const auto& [name, value] : KeyFigures(there)) {
    const auto same =
        std::find_if(out.begin(), out.end(), [&, &key = name](const auto& row) { return row.key == key; });
    if (same != out.end()) {
      same->there = value;
    } else {
      out.push_back({name, "", value});
    }
  }
  return out;
}

json ReportJson(const RunReport& report, const RunReport* against) {
  json metrics = json::object(), restarts = json::array(), environment = json::object(), attempts = json::array();
  for (const MetricSummary& metric : report.metrics) metrics[metric.name] = MetricJson(metric);
  for (const RestartReport& one : report.restarts) {
    restarts.push_back(
        {{"t", one.t}, {"attempt", one.attempt}, {"why", one.why}, {"cause", one.cause}, {"remedy", one.remedy}});
  }
  for (const auto& [name, value] : report.environment) environment[name] = value;
  for (const auto& [number, times] : report.goodput.attempts) {
    attempts.push_back({{"attempt", number},
                        {"started", times.started > 0 ? json(times.started) : json()},
                        {"ended", times.ended > 0 ? json(times.ended) : json()},
                        {"first_step", times.first_step ? json(*times.first_step) : json()},
                        {"last_step", times.last_step ? json(*times.last_step) : json()}});
  }
  json run = report.view.ToJson(report.made);
  run.erase("loss_curve");
  json out = {{"name", report.view.name},
              {"made", report.made},
              {"run", run},
              {"goodput", GoodputJson(report.goodput)},
              {"attempts", attempts},
              {"restarts", restarts},
              {"metrics", metrics},
              {"environment", environment},
              {"settings", report.settings},
              {"report", report.end}};
  if (against != nullptr) {
    json differences = json::array();
    for (const Difference& one : SettingsThatDiffer(report, *against)) {
      differences.push_back({{"key", one.key}, {"here", one.here}, {"there", one.there}});
    }
    out["against"] = ReportJson(*against, nullptr);
    out["settings_that_differ"] = differences;
  }
  return out;
}

}  // namespace lockstep::watch
