#include "plan/exceeded.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"

namespace lockstep::plan {
namespace {

std::string Milliseconds(double seconds) {
  return seconds < 10 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

// Largest first.
std::string Parts(const std::array<int64_t, kComponents>& bytes) {
  int64_t total = 0;
  std::vector<std::pair<int64_t, size_t>> parts;
  for (size_t i = 0; i < kComponents; ++i) {
    total += bytes[i];
    parts.emplace_back(-bytes[i], i);
  }
  std::sort(parts.begin(), parts.end());
  std::vector<std::string> texts;
  for (const auto& [negative, i] : parts) {
    if (-negative * 100 < total || negative == 0) break;
    texts.push_back(fmt::format("{} {}", NameOf(static_cast<Component>(i)), SizeText(-negative)));
  }
  return Join(texts, ", ");
}

// A key is named where it changes.
std::string Change(const Setting& from, const Line& to) {
  std::vector<std::string> keys;
  const Setting& s = to.setting;
  if (s.stage != from.stage) keys.push_back(fmt::format("train.zero.stage={}", s.stage));
  if ((s.offload == Offload::kNone) != (from.offload == Offload::kNone)) {
    keys.push_back(fmt::format("train.offload.optimizer={}", s.offload != Offload::kNone));
  }
  if ((s.offload == Offload::kParameters) != (from.offload == Offload::kParameters)) {
    keys.push_back(fmt::format("train.offload.parameters={}", s.offload == Offload::kParameters));
  }
  if (s.recompute != from.recompute) keys.push_back(fmt::format("train.recompute={}", s.recompute));
  return Join(keys, " ");
}

std::string Remedy(const Workload& workload, const Setting& wanted, const Machine& machine) {
  const std::vector<Line> lines = LinesOf(workload, wanted, machine);
  // What ran out is not offered again, whatever the plan says of it.
  std::vector<Line> others;
  for (const Line& line : lines) {
    if (!Change(wanted, line).empty()) others.push_back(line);
  }
  const auto nearest = NearestThatFits(others, wanted);
  if (nearest) {
    const Line& line = others[*nearest];
    return fmt::format("the nearest choice that fits: {} ({} on the device)", Change(wanted, line),
                       SizeText(line.memory.DeviceTotal()));
  }
  if (wanted.pass_samples() > 1) {
    Setting half = wanted;
    half.micro_batch = static_cast<uint64_t>(wanted.pass_samples() / 2);
    return fmt::format("no stage, offload or recomputing fits: halve the micro-batch, train.micro_batch={}",
                       half.micro_batch);
  }
  return "";
}

}  // namespace

std::string OneLine(const Line& line, const Machine& machine) {
  const MemoryBytes& m = line.memory;
  if (!line.setting.gpu) {
    return fmt::format("{} of host memory for each rank ({})", SizeText(m.DeviceTotal()), Parts(m.device));
  }
  std::string text =
      fmt::format("{} of {} on the GPU ({})", SizeText(m.DeviceTotal()), SizeText(machine.gpu.memory), Parts(m.device));
  if (m.start >= m.AllocatorPeak()) text += fmt::format(", {} of it only before the first step", SizeText(m.start));
  if (m.HostTotal() > 0) text += fmt::format("; {} of host memory", SizeText(m.HostTotal()));
  return text + fmt::format("; about {} a step", Milliseconds(line.time.Total()));
}

std::string WhyNot(const Workload& workload, const Line& line, const Machine& machine) {
  if (line.fits()) return "";
  const bool device = !line.fits_device;
  const int64_t need = device ? line.memory.DeviceTotal()
                              : (line.setting.gpu ? line.memory.HostTotal() : line.memory.DeviceTotal()) *
                                    std::min(line.setting.ranks, machine.links.gpus_per_node);
  std::string text =
      fmt::format("the plan needs {} of {} memory, which has {}", SizeText(need), device ? "the GPU's" : "the host's",
                  SizeText(device ? machine.gpu.memory : machine.host_memory));
  const std::string remedy = Remedy(workload, line.setting, machine);
  return text + (remedy.empty() ? "" : "; " + remedy);
}

Explanation ExplainOutOfMemory(const Workload& workload, const Line& planned, const Machine& machine,
                               const MemoryBytes& owned, std::optional<int64_t> peak) {
  Explanation out;
  out.remedy = Remedy(workload, planned.setting, machine);
  const MemoryBytes& plan = planned.memory;
  // What the engine owns is known exactly; the rest of the peak is a pass.
  Component most = Component::kParameters;
  int64_t excess = 0;
  const auto compare = [&](Component c, int64_t found) {
    const int64_t more = found - plan[c];
    if (more <= excess) return;
    excess = more;
    most = c;
  };
  for (size_t i = 0; i < static_cast<size_t>(Component::kActivations); ++i) {
    compare(static_cast<Component>(i), owned.device[i]);
  }
  if (peak) {
    int64_t known = plan[Component::kTemporary];
    for (size_t i = 0; i < static_cast<size_t>(Component::kActivations); ++i)
      known += std::max(owned.device[i], plan.device[i]);
    compare(Component::kActivations, *peak - known);
  }
  if (!planned.fits_device) {
    out.what =
        fmt::format("the plan needed {} of the GPU's {}", SizeText(plan.DeviceTotal()), SizeText(machine.gpu.memory));
  } else if (excess > 0) {
    out.what = fmt::format("{} exceeded the plan of {} by {}", NameOf(most), SizeText(plan[most]), SizeText(excess));
  } else {
    out.what = fmt::format("nothing exceeded the plan ({}): other processes or fragmentation took the rest",
                           Parts(plan.device));
  }
  return out;
}

}  // namespace lockstep::plan
