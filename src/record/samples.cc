#include "record/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/json.h"
#include "record/json_number.h"

namespace lockstep::record {
namespace {

using nlohmann::json;

bool Any(const std::vector<std::string>& list, std::initializer_list<std::string_view> names) {
  return std::any_of(list.begin(), list.end(),
                     [&](const std::string& one) { return std::find(names.begin(), names.end(), one) != names.end(); });
}

// Writes the members of one object.
class Members {
 public:
  explicit Members(std::string* out) : out_(out) { out_->append(1, '{'); }
  void Close() { out_->append(1, '}'); }

  std::string* Key(std::string_view key) {
    if (!first_) out_->append(", ");
    first_ = false;
    out_->append(1, '"').append(key).append("\": ");
    return out_;
  }
  void Number(std::string_view key, std::optional<double> value) {
    if (value) AppendNumber(*value, Key(key));
  }
  template <typename T>
  void Integer(std::string_view key, T value) {
    fmt::format_to(std::back_inserter(*Key(key)), "{}", value);
  }
  void Time(std::string_view key, std::optional<double> value) {
    if (value) fmt::format_to(std::back_inserter(*Key(key)), "{:.3f}", std::isfinite(*value) ? *value : 0.0);
  }
  void Text(std::string_view key, const std::string& value) {
    if (!value.empty()) Key(key)->append(ToJsonLine(json(value)));
  }

 private:
  std::string* out_;
  bool first_ = true;
};

void Append(const GpuSample& gpu, std::string* out) {
  Members of(out);
  of.Integer("gpu", gpu.gpu);
  of.Text("uuid", gpu.uuid);
  of.Text("name", gpu.name);
  of.Number("util", gpu.util);
  of.Number("memory_util", gpu.memory_util);
  of.Number("memory_used", gpu.memory_used);
  of.Number("memory_total", gpu.memory_total);
  of.Number("temperature", gpu.temperature);
  of.Number("power", gpu.power);
  of.Number("power_limit", gpu.power_limit);
  of.Number("sm_clock", gpu.sm_clock);
  of.Number("sm_clock_max", gpu.sm_clock_max);
  of.Number("memory_clock", gpu.memory_clock);
  if (!gpu.throttle.empty()) of.Key("throttle")->append(ToJsonLine(json(gpu.throttle)));
  of.Number("ecc_corrected", gpu.ecc_corrected);
  of.Number("ecc_uncorrected", gpu.ecc_uncorrected);
  if (gpu.xid) of.Integer("xid", *gpu.xid);
  of.Text("error", gpu.error);
  of.Close();
}

void Append(const RankSample& rank, std::string* out) {
  Members of(out);
  of.Integer("rank", rank.rank);
  if (rank.pid > 0) of.Integer("pid", rank.pid);
  of.Number("cpu", rank.cpu);
  of.Number("rss", rank.rss);
  if (rank.gpu) of.Integer("gpu", *rank.gpu);
  if (rank.step) of.Integer("step", *rank.step);
  of.Time("step_t", rank.step_t);
  of.Number("loss", rank.loss);
  if (rank.steps > 0) of.Integer("steps", rank.steps);
  if (!rank.seconds.empty()) {
    Members seconds(of.Key("seconds"));
    for (const auto& [stage, value] : rank.seconds) {
      AppendNumber(std::round(value * 1e6) / 1e6, seconds.Key(stage));
    }
    seconds.Close();
  }
  if (rank.wait_peer) of.Integer("wait_peer", *rank.wait_peer);
  of.Number("wait_seconds", rank.wait_seconds);
  of.Close();
}

void Append(const LinkSample& link, std::string* out) {
  Members of(out);
  of.Text("name", link.name);
  of.Text("kind", link.kind);
  of.Number("speed", link.speed);
  of.Number("in", link.in);
  of.Number("out", link.out);
  of.Number("bytes_in", link.bytes_in);
  of.Number("bytes_out", link.bytes_out);
  of.Number("errors", link.errors);
  of.Text("off", link.off);
  of.Close();
}

// Elements as long as they fit below `end` bytes.
template <typename T>
void AppendList(std::string_view key, const std::vector<T>& list, size_t end, Members* of) {
  if (list.empty()) return;
  std::string* out = of->Key(key);
  out->append(1, '[');
  for (size_t i = 0; i < list.size(); ++i) {
    const size_t before = out->size();
    if (i > 0) out->append(", ");
    Append(list[i], out);
    if (out->size() > end) {
      out->resize(before);
      break;
    }
  }
  out->append(1, ']');
}

std::optional<double> Number(const json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() ? std::nullopt : ReadNumber(*it);
}

std::optional<int> Small(const json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_integer()) return std::nullopt;
  const auto value = GetInt(object, key, -1);
  if (value < 0 || value > std::numeric_limits<int>::max()) return std::nullopt;
  return static_cast<int>(value);
}

std::optional<GpuSample> ReadGpu(const json& object) {
  const std::optional<int> index = Small(object, "gpu");
  if (!index) return std::nullopt;
  GpuSample gpu;
  gpu.gpu = *index;
  gpu.uuid = GetString(object, "uuid");
  gpu.name = GetString(object, "name");
  gpu.util = Number(object, "util");
  gpu.memory_util = Number(object, "memory_util");
  gpu.memory_used = Number(object, "memory_used");
  gpu.memory_total = Number(object, "memory_total");
  gpu.temperature = Number(object, "temperature");
  gpu.power = Number(object, "power");
  gpu.power_limit = Number(object, "power_limit");
  gpu.sm_clock = Number(object, "sm_clock");
  gpu.sm_clock_max = Number(object, "sm_clock_max");
  gpu.memory_clock = Number(object, "memory_clock");
  if (const auto list = object.find("throttle"); list != object.end() && list->is_array()) {
    for (const json& reason : *list) {
      if (reason.is_string()) gpu.throttle.push_back(reason.get<std::string>());
    }
  }
  gpu.ecc_corrected = Number(object, "ecc_corrected");
  gpu.ecc_uncorrected = Number(object, "ecc_uncorrected");
  gpu.xid = Small(object, "xid");
  gpu.error = GetString(object, "error");
  return gpu;
}

std::optional<RankSample> ReadRank(const json& object) {
  const std::optional<int> number = Small(object, "rank");
  if (!number) return std::nullopt;
  RankSample rank;
  rank.rank = *number;
  rank.pid = std::max<int64_t>(0, GetInt(object, "pid"));
  rank.cpu = Number(object, "cpu");
  rank.rss = Number(object, "rss");
  rank.gpu = Small(object, "gpu");
  if (const int64_t step = GetInt(object, "step", -1); step >= 0) rank.step = static_cast<uint64_t>(step);
  rank.step_t = Number(object, "step_t");
  rank.loss = Number(object, "loss");
  rank.steps = Small(object, "steps").value_or(0);
  if (const auto seconds = object.find("seconds"); seconds != object.end() && seconds->is_object()) {
    for (auto it = seconds->begin(); it != seconds->end(); ++it) {
      if (const std::optional<double> value = ReadNumber(it.value())) rank.seconds.emplace_back(it.key(), *value);
    }
  }
  rank.wait_peer = Small(object, "wait_peer");
  rank.wait_seconds = Number(object, "wait_seconds");
  return rank;
}

std::optional<LinkSample> ReadLink(const json& object) {
  LinkSample link;
  link.name = GetString(object, "name");
  if (link.name.empty()) return std::nullopt;
  link.kind = GetString(object, "kind");
  link.speed = Number(object, "speed");
  link.in = Number(object, "in");
  link.out = Number(object, "out");
  link.bytes_in = Number(object, "bytes_in");
  link.bytes_out = Number(object, "bytes_out");
  link.errors = Number(object, "errors");
  link.off = GetString(object, "off");
  return link;
}

template <typename T, typename F>
void ReadList(const json& object, const char* key, const F& read, std::vector<T>* out) {
  const auto list = object.find(key);
  if (list == object.end() || !list->is_array()) return;
  out->reserve(std::min(list->size(), kMostSampleParts));
  for (const json& one : *list) {
    if (!one.is_object() || out->size() >= kMostSampleParts) continue;
    if (std::optional<T> part = read(one)) out->push_back(std::move(*part));
  }
}

}  // namespace

bool GpuSample::ThrottledByHeat() const { return Any(throttle, {"sw thermal slowdown", "hw thermal slowdown"}); }

bool GpuSample::ThrottledByPower() const { return Any(throttle, {"sw power cap", "hw power brake slowdown"}); }

std::optional<double> RankSample::Seconds(std::string_view stage) const {
  for (const auto& [name, value] : seconds) {
    if (name == stage) return value;
  }
  return std::nullopt;
}

void AppendSampleLine(const NodeSample& sample, std::string* out) {
  const size_t end = out->size() + kLongestSampleLine - 64;
  Members of(out);
  of.Time("t", sample.t);
  of.Integer("attempt", sample.attempt);
  of.Integer("node", sample.node);
  of.Text("host", sample.host);
  of.Integer("launcher", sample.launcher);
  of.Integer("n", sample.n);
  of.Integer("dropped", sample.dropped);
  if (sample.cpu_percent || sample.cpu_cores || sample.cpu_load) {
    Members cpu(of.Key("cpu"));
    cpu.Number("percent", sample.cpu_percent);
    cpu.Number("cores", sample.cpu_cores);
    cpu.Number("load", sample.cpu_load);
    cpu.Close();
  }
  if (sample.memory_used || sample.memory_total) {
    Members memory(of.Key("memory"));
    memory.Number("used", sample.memory_used);
    memory.Number("total", sample.memory_total);
    memory.Close();
  }
  AppendList("ranks", sample.ranks, end, &of);
  AppendList("gpus", sample.gpus, end, &of);
  AppendList("links", sample.links, end, &of);
  of.Close();
  out->append(1, '\n');
}

std::optional<NodeSample> ParseSampleLine(std::string_view text) {
  NodeSample sample;
  if (ScanSampleLine(text, &sample)) return sample;
  return ReadSample(json::parse(text, nullptr, /*allow_exceptions=*/false));
}

std::optional<NodeSample> ReadSample(const json& object) {
  if (!object.is_object()) return std::nullopt;
  const std::optional<double> t = Number(object, "t");
  const std::optional<int> node = Small(object, "node");
  if (!t || !std::isfinite(*t) || !node) return std::nullopt;
  NodeSample sample;
  sample.t = *t;
  sample.node = *node;
  sample.attempt = Small(object, "attempt").value_or(0);
  sample.host = GetString(object, "host");
  sample.launcher = GetInt(object, "launcher");
  sample.n = static_cast<uint64_t>(std::max<int64_t>(0, GetInt(object, "n")));
  sample.dropped = static_cast<uint64_t>(std::max<int64_t>(0, GetInt(object, "dropped")));
  if (const auto cpu = object.find("cpu"); cpu != object.end() && cpu->is_object()) {
    sample.cpu_percent = Number(*cpu, "percent");
    sample.cpu_cores = Number(*cpu, "cores");
    sample.cpu_load = Number(*cpu, "load");
  }
  if (const auto memory = object.find("memory"); memory != object.end() && memory->is_object()) {
    sample.memory_used = Number(*memory, "used");
    sample.memory_total = Number(*memory, "total");
  }
  ReadList(object, "ranks", ReadRank, &sample.ranks);
  ReadList(object, "gpus", ReadGpu, &sample.gpus);
  ReadList(object, "links", ReadLink, &sample.links);
  return sample;
}

}  // namespace lockstep::record
