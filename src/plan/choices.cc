#include "plan/choices.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace lockstep::plan {
namespace {

// Of a device, left to fragmentation and to what is not counted.
constexpr double kUsable = 0.95;

int Complexity(const Setting& s) {
  return (s.effective_stage() > 0 ? s.stage : 0) + 4 * static_cast<int>(s.offload) + (s.recompute ? 2 : 0);
}

std::string Price(int64_t more) {
  return fmt::format("for {} {} on each rank", SizeText(std::abs(more)), more < 0 ? "less" : "more");
}

}  // namespace

std::string Line::Name() const {
  std::string name = fmt::format("stage {}", setting.stage);
  if (setting.offload == Offload::kOptimizer) name += ", optimizer offloaded";
  if (setting.offload == Offload::kParameters) name += ", optimizer and parameters offloaded";
  if (setting.recompute) name += ", recomputing";
  return name;
}

std::string Line::Keys() const {
  std::string keys = fmt::format("train.zero.stage={}", setting.stage);
  if (setting.offload != Offload::kNone) keys += " train.offload.optimizer=true";
  if (setting.offload == Offload::kParameters) keys += " train.offload.parameters=true";
  return keys + (setting.recompute ? " train.recompute=true" : " train.recompute=false");
}

Line LineOf(const Workload& workload, const Setting& setting, const Machine& machine) {
  Line line{setting, MemoryOf(workload, setting), StepTimeOf(workload, setting, machine)};
  const int64_t device = machine.gpu.memory;
  const int64_t on_node = std::min(setting.ranks, machine.links.gpus_per_node);
  if (setting.gpu) {
    line.fits_device =
        device <= 0 || static_cast<double>(line.memory.DeviceTotal()) <= kUsable * static_cast<double>(device);
    line.fits_host = machine.host_memory <= 0 || on_node * line.memory.HostTotal() <= machine.host_memory;
  } else {
    line.fits_host = machine.host_memory <= 0 || on_node * line.memory.DeviceTotal() <= machine.host_memory;
  }
  return line;
}

std::vector<Line> LinesOf(const Workload& workload, const Setting& base, const Machine& machine) {
  std::vector<Line> lines;
  for (int stage = 0; stage <= 3; ++stage) {
    for (const Offload offload : {Offload::kNone, Offload::kOptimizer, Offload::kParameters}) {
      if (offload == Offload::kParameters && stage != 3) continue;
      if (offload != Offload::kNone && !base.gpu) continue;
      if (base.ranks == 1 && stage > 0 && offload != Offload::kParameters) continue;
      if (stage == 3 && workload.units.empty()) continue;
      for (const bool recompute : {false, true}) {
        if (recompute && workload.units.empty()) continue;
        Setting one = base;
        one.stage = stage;
        one.offload = offload;
        one.recompute = recompute;
        lines.push_back(LineOf(workload, one, machine));
      }
    }
  }
  return lines;
}

Advice Recommend(const std::vector<Line>& lines, const Machine& machine) {
  Advice advice;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].fits()) continue;
    if (!advice.best) {
      advice.best = i;
      continue;
    }
    const Line &best = lines[*advice.best], &one = lines[i];
    const double faster = best.time.Total() / one.time.Total();
    // Less than 5 % is not worth a setting more, and below what the estimate can tell apart.
    const bool simpler = Complexity(one.setting) < Complexity(best.setting);
    if (faster > 1.05 || (faster > 0.95 && simpler)) advice.best = i;
  }
  if (!advice.best) {
    const auto least = std::min_element(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
      return a.memory.DeviceTotal() < b.memory.DeviceTotal();
    });
    if (least == lines.end()) return advice;
    advice.why = fmt::format(
        "nothing fits {}: the least is {} with {} on the device and {} on the host; use more GPUs, a smaller "
        "micro-batch, or bf16 parameters",
        SizeText(machine.gpu.memory), least->Name(), SizeText(least->memory.DeviceTotal()),
        SizeText(least->memory.HostTotal()));
    return advice;
  }
  const Line& best = lines[*advice.best];
  size_t fitting = 0, faster = 0;
  for (const Line& line : lines) {
    fitting += line.fits() ? 1 : 0;
    faster += !line.fits() && line.time.Total() < best.time.Total() ? 1 : 0;
  }
  advice.why = fmt::format("the fastest of {} of {} choices that fit", fitting, lines.size());
  if (faster > 0) advice.why += fmt::format("; {} faster {} not fit", faster, faster == 1 ? "one does" : "ones do");
  if (machine.gpu.memory > 0 && best.setting.gpu) {
    advice.why +=
        fmt::format("; it takes {:.0f} % of the device's memory",
                    100 * static_cast<double>(best.memory.DeviceTotal()) / static_cast<double>(machine.gpu.memory));
  }
  return advice;
}

std::optional<size_t> NearestThatFits(const std::vector<Line>& lines, const Setting& wanted) {
  std::optional<size_t> nearest;
  std::pair<int, double> least;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].fits()) continue;
    const Setting& s = lines[i].setting;
    const int changes = (s.stage != wanted.stage) + (s.offload != wanted.offload) + (s.recompute != wanted.recompute);
    const std::pair<int, double> rank = {changes, lines[i].time.Total()};
    if (nearest && rank >= least) continue;
    nearest = i;
    least = rank;
  }
  return nearest;
}

std::vector<Gain> GainsOf(const Workload& workload, const Setting& base, const Machine& machine, const Around& around) {
  std::vector<Gain> gains;
  const auto seconds = [&](const Setting& s) { return StepTimeOf(workload, s, machine).Total(); };
  const double now = seconds(base);
  const double data = around.data_seconds, encoder = around.encoder_seconds, cache = around.cache_seconds;
  const double before = std::max(now + encoder, data);
  if (data > 0) {
    gains.push_back({"a loader that is fast enough", before, now + encoder,
                     data <= now + encoder ? "the step already hides it" : "batches wait for decoding"});
  }
  if (encoder > 0) {
    const double after = std::max({now, cache, data});
    gains.push_back({"cached features instead of a frozen encoder", before, after,
                     after == now    ? "the rest of the step is what remains"
                     : after == data ? "then batches wait for decoding"
                                     : "then the step waits for the cache"});
  }
  if (data > 0 && encoder > 0) gains.push_back({"both of them", before, std::max(now, cache), ""});
  const auto row = [&](const char* what, Setting before, Setting after, const std::string& note) {
    gains.push_back({what, seconds(before), seconds(after), note});
  };
  if (base.ranks > 1 && !workload.units.empty()) {
    Setting three = base, two = base;
    three.stage = 3, two.stage = 2;
    three.offload = two.offload = Offload::kNone;
    const int64_t more = MemoryOf(workload, two).DeviceTotal() - MemoryOf(workload, three).DeviceTotal();
    row("ZeRO-2 instead of ZeRO-3", three, two, Price(more));
  }
  if (base.gpu) {
    Setting off = base, on = base;
    off.offload = Offload::kNone, on.offload = Offload::kOptimizer;
    const int64_t more = MemoryOf(workload, off).DeviceTotal() - MemoryOf(workload, on).DeviceTotal();
    row("the optimizer on the GPU instead of offloaded", on, off, Price(more));
  }
  if (!workload.units.empty()) {
    Setting off = base, on = base;
    off.recompute = false, on.recompute = true;
    const int64_t more = MemoryOf(workload, off).DeviceTotal() - MemoryOf(workload, on).DeviceTotal();
    row("without recomputing", on, off, Price(more));
  }
  // The same global batch on twice the GPUs; not where a rank would have no sample.
  if (base.batch >= 2 * static_cast<uint64_t>(base.ranks)) {
    Setting twice = base;
    twice.ranks *= 2;
    row("twice as many GPUs, the same batch", base, twice, fmt::format("{} samples of a step on each", twice.share()));
  }
  return gains;
}

}  // namespace lockstep::plan
