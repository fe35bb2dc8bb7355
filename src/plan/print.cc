#include "plan/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"

namespace lockstep::plan {
namespace {

using nlohmann::json;

// In the order of the table; context and frozen parameters are shown where there are any.
struct Column {
  const char* title;
  Component component;
};
constexpr Column kColumns[] = {
    {"param.", Component::kParameters}, {"grad.", Component::kGradients}, {"master", Component::kMaster},
    {"optim.", Component::kOptimizer},  {"EMA", Component::kEma},         {"frozen", Component::kFrozen},
    {"gathered", Component::kGathered}, {"buckets", Component::kBuckets}, {"activ.", Component::kActivations},
    {"temp.", Component::kTemporary},   {"context", Component::kContext}};

std::string Number(int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string Seconds(double s) {
  if (!std::isfinite(s)) return "-";
  if (s < 0.9995) return fmt::format("{:.3g} ms", s * 1e3);
  return s < 100    ? fmt::format("{:.3g} s", s)
         : s < 7200 ? fmt::format("{:.0f} min", s / 60)
                    : fmt::format("{:.3g} h", s / 3600);
}

const char* OffloadName(Offload offload) {
  constexpr const char* kNames[] = {"none", "optimizer", "parameters"};
  return kNames[static_cast<int>(offload)];
}

// GiB, or MiB for small models.
struct Unit {
  double bytes;
  const char* name;
};
Unit UnitFor(const std::vector<Line>& lines) {
  int64_t most = 0;
  for (const Line& line : lines) most = std::max(most, line.memory.DeviceTotal());
  return most < int64_t{4} << 30 ? Unit{1 << 20, "MiB"} : Unit{1 << 30, "GiB"};
}

std::string Cell(int64_t bytes, const Unit& unit) {
  if (bytes == 0) return "-";
  const double value = static_cast<double>(bytes) / unit.bytes;
  return value < 10 ? fmt::format("{:.2f}", value) : fmt::format("{:.1f}", value);
}

std::string Table(const Plan& plan) {
  const Unit unit = UnitFor(plan.lines);
  std::vector<Column> columns;
  for (const Column& column : kColumns) {
    const bool any = std::any_of(plan.lines.begin(), plan.lines.end(),
                                 [&](const Line& line) { return line.memory[column.component] > 0; });
    if (any) columns.push_back(column);
  }
  std::string text = fmt::format("  {:<6}{:<11}{:<10}{:>9}", "stage", "offload", "recompute", unit.name);
  for (const Column& column : columns) text += fmt::format("{:>10}", column.title);
  text += fmt::format("{:>10}{:>10}{:>10}  {}\n", "host", "step", "exposed", "fits");
  for (size_t i = 0; i < plan.lines.size(); ++i) {
    const Line& line = plan.lines[i];
    text += fmt::format("{} {:<6}{:<11}{:<10}{:>9}", plan.advice.best == i ? ">" : " ", line.setting.stage,
                        OffloadName(line.setting.offload), line.setting.recompute ? "yes" : "no",
                        Cell(line.memory.DeviceTotal(), unit));
    for (const Column& column : columns) text += fmt::format("{:>10}", Cell(line.memory[column.component], unit));
    const std::string fits = line.fits() ? "yes" : !line.fits_device ? "no" : "no: host memory";
    const bool start = line.memory.start >= line.memory.AllocatorPeak();
    text += fmt::format("{:>10}{:>10}{:>10}  {}{}\n", Cell(line.memory.HostTotal(), unit), Seconds(line.time.Total()),
                        Seconds(line.time.exposed), fits, start ? " (highest before the first step)" : "");
  }
  return text;
}

std::string ScaleTable(const Plan& plan) {
  std::string text =
      fmt::format("\n{}, as the number of GPUs grows ({}; {:.3g} failures per node-hour, {} to save, {} to restart)\n",
                  plan.scale.front().line.Name(), plan.machine.links.name, plan.reliability.failures_per_node_hour,
                  Seconds(plan.reliability.save), Seconds(plan.reliability.restart));
  text += fmt::format("  {:>6}{:>7}{:>9}{:>10}{:>10}{:>10}{:>10}{:>11}{:>11}{:>12}{:>13}{:>10}  {}\n", "GPUs", "nodes",
                      "batch", "step", "exposed", "ring", "tree", "efficiency", "device", "fails every", "save every",
                      "training", "fits");
  for (const ScalePoint& p : plan.scale) {
    text += fmt::format("  {:>6}{:>7}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10.1f}%{:>11}{:>12}{:>13}{:>9.1f}%  {}\n", p.gpus,
                        p.nodes, p.line.setting.batch, Seconds(p.line.time.Total()), Seconds(p.line.time.exposed),
                        Seconds(p.ring), Seconds(p.tree), 100 * p.efficiency, SizeText(p.line.memory.DeviceTotal()),
                        Seconds(p.goodput.mean_time), Seconds(p.goodput.daly), 100 * p.goodput.training,
                        p.line.fits() ? "yes" : "no");
  }
  return text;
}

json BytesJson(const std::array<int64_t, kComponents>& bytes) {
  json out = json::object();
  for (size_t i = 0; i < kComponents; ++i) out[NameOf(static_cast<Component>(i))] = bytes[i];
  return out;
}

json LineJson(const Line& line) {
  const StepTime& t = line.time;
  return {{"stage", line.setting.stage},
          {"offload", OffloadName(line.setting.offload)},
          {"recompute", line.setting.recompute},
          {"keys", line.Keys()},
          {"ranks", line.setting.ranks},
          {"batch", line.setting.batch},
          {"samples_per_pass", line.setting.pass_samples()},
          {"passes", line.setting.passes()},
          {"device", BytesJson(line.memory.device)},
          {"host", BytesJson(line.memory.host)},
          {"device_bytes", line.memory.DeviceTotal()},
          {"allocator_peak_bytes", line.memory.AllocatorPeak()},
          {"before_first_step_bytes", line.memory.start},
          {"host_bytes", line.memory.HostTotal()},
          {"peak_moment", line.memory.moment},
          {"fits", line.fits()},
          {"fits_device", line.fits_device},
          {"fits_host", line.fits_host},
          {"seconds",
           {{"step", t.Total()},
            {"forward", t.forward},
            {"backward", t.backward},
            {"update", t.update},
            {"host_update", t.host_update},
            {"host_update_exposed", t.host_exposed},
            {"communication", t.communication},
            {"communication_exposed", t.exposed},
            {"algorithm", t.tree ? "tree" : "ring"}}}};
}

int64_t LargestUnit(const Workload& workload) {
  std::vector<int64_t> sizes(workload.units.size() + 1, 0);  // the last: of no unit
  for (const Parameter& p : workload.parameters)
    sizes[p.unit < 0 ? workload.units.size() : static_cast<size_t>(p.unit)] += p.numel;
  return *std::max_element(sizes.begin(), sizes.end());
}

// Infinity is no JSON.
json Finite(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

}  // namespace

std::string ToText(const Plan& plan) {
  const Workload& w = plan.workload;
  const Setting& s = plan.base;
  std::string text = fmt::format("{}: {} parameters trained", w.name, Number(w.trained()));
  if (w.frozen() > 0) text += fmt::format(", {} frozen", Number(w.frozen()));
  text += fmt::format("; {} samples a step on {}: {} in {} of at most {}\n", s.batch,
                      Count(s.ranks, s.gpu ? "GPU" : "rank"), s.share(), Count(s.passes(), "pass", "passes"),
                      s.pass_samples());
  if (s.gpu) {
    const Gpu& g = plan.machine.gpu;
    text += fmt::format("{}: {}, matrix products {:.0f} TFLOP/s, passes over memory {:.2f} TB/s ({})\n", g.name,
                        SizeText(g.memory), g.matmul / 1e12, g.bandwidth / 1e12, g.source);
  }
  if (s.ranks > 1) {
    const Links& l = plan.machine.links;
    text += fmt::format("{}: {} a node, {:.0f} GB/s inside, {:.3g} GB/s of each between nodes ({})\n", l.name,
                        Count(l.gpus_per_node, s.gpu ? "GPU" : "rank"), l.inside / 1e9, l.between / 1e9, l.source);
  }
  text += "\n" + Table(plan) + "\n";
  if (plan.advice.best) {
    const Line& best = plan.lines[*plan.advice.best];
    text += fmt::format("recommended: {}: {}\n  {}\n", best.Name(), plan.advice.why, best.Keys());
  } else {
    text += fmt::format("recommended: none: {}\n", plan.advice.why);
  }
  if (!plan.gains.empty())
    text += fmt::format("\n{:<48}{:>10}{:>10}{:>8}\n", "what it brings here", "before", "after", "factor");
  for (const Gain& gain : plan.gains) {
    text += fmt::format("{:<48}{:>10}{:>10}{:>7.2f}x  {}\n", gain.what, Seconds(gain.before), Seconds(gain.after),
                        gain.Factor(), gain.note);
  }
  if (!plan.scale.empty()) text += ScaleTable(plan);
  for (const std::string& note : plan.notes) text += "\nnote: " + note;
  return text + (plan.notes.empty() ? "" : "\n");
}

json ToJson(const Plan& plan) {
  const Gpu& g = plan.machine.gpu;
  const Links& l = plan.machine.links;
  json out = {{"workload",
               {{"name", plan.workload.name},
                {"parameters", plan.workload.trained()},
                {"frozen", plan.workload.frozen()},
                {"units", plan.workload.units.size()},
                {"largest_unit", LargestUnit(plan.workload)}}},
              {"machine",
               {{"gpu", g.name},
                {"memory", g.memory},
                {"matmul_flops", g.matmul},
                {"convolution_flops", g.convolution},
                {"memory_bandwidth", g.bandwidth},
                {"host_link", g.host_link},
                {"host_bandwidth", plan.machine.host_bandwidth},
                {"host_memory", plan.machine.host_memory},
                {"source", g.source},
                {"links", l.name},
                {"gpus_per_node", l.gpus_per_node},
                {"inside_bandwidth", l.inside},
                {"between_bandwidth", l.between},
                {"links_source", l.source}}},
              {"configured", LineJson(plan.configured)},
              {"lines", json::array()},
              {"gains", json::array()},
              {"notes", plan.notes}};
  for (const Line& line : plan.lines) out["lines"].push_back(LineJson(line));
  out["recommended"] = {{"line", plan.advice.best ? json(*plan.advice.best) : json(nullptr)}, {"why", plan.advice.why}};
  for (const Gain& gain : plan.gains) {
    out["gains"].push_back({{"what", gain.what},
                            {"before", gain.before},
                            {"after", gain.after},
                            {"factor", gain.Factor()},
                            {"note", gain.note}});
  }
  for (const ScalePoint& p : plan.scale) {
    out["scale"].push_back({{"gpus", p.gpus},
                            {"nodes", p.nodes},
                            {"line", LineJson(p.line)},
                            {"ring_seconds", p.ring},
                            {"tree_seconds", p.tree},
                            {"efficiency", p.efficiency},
                            {"mean_time_between_failures", Finite(p.goodput.mean_time)},
                            {"checkpoint_interval_young", Finite(p.goodput.young)},
                            {"checkpoint_interval_daly", Finite(p.goodput.daly)},
                            {"training_share", p.goodput.training}});
  }
  return out;
}

}  // namespace lockstep::plan
