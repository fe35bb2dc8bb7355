#include "engine/phase.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/digits.h"
#include "base/text.h"

namespace lockstep::engine {
namespace {

const std::vector<std::string> kSections = {"checkpoint", "data", "recipe", "train"};

Status Wrong(const ConfigLocation& where, const std::string& what, const std::string& hint = "") {
  return Status(Code::kUsage, fmt::format("{}: phases: {}", where.ToString(), what), hint);
}

Status ReadKey(const ConfigEntry& entry, PhaseSpec* phase) {
  const ConfigNode& value = entry.value;
  if (entry.key == "steps") {
    phase->steps = value.kind == ConfigNode::Kind::kScalar ? ParseDigits<uint64_t>(value.text).value_or(0) : 0;
    if (phase->steps > 0) return Status::Ok();
    return Wrong(entry.where, fmt::format("steps: expected a whole number above 0, found {}", value.Describe()));
  }
  if (entry.key == "optimizer") {
    phase->keeps_optimizer = value.text == "keep";
    if (value.text == "keep" || value.text == "fresh") return Status::Ok();
    return Wrong(entry.where, fmt::format("optimizer: expected keep or fresh, found {}", value.Describe()));
  }
  if (std::find(kSections.begin(), kSections.end(), entry.key) == kSections.end()) {
    std::vector<std::string> known = kSections;
    known.insert(known.end(), {"optimizer", "steps"});
    return Wrong(entry.where, fmt::format("unknown key '{}'{}", entry.key, DidYouMean(entry.key, known)),
                 "a phase has steps, optimizer, and what it changes in " + Join(kSections, ", "));
  }
  if (value.kind != ConfigNode::Kind::kMap) {
    return Wrong(entry.where, fmt::format("{}: expected a section, found {}", entry.key, value.Describe()));
  }
  if (entry.key == "train" && value.Find("steps") != nullptr) {
    return Wrong(entry.where, "train.steps: a phase says them as `steps`");
  }
  phase->over.entries.push_back(entry);
  return Status::Ok();
}

// The first of the phases that `index` shares its optimizer with.
size_t FirstOfChain(const std::vector<PhaseSpec>& phases, size_t index) {
  while (index > 0 && phases[index].keeps_optimizer) --index;
  return index;
}

}  // namespace

Result<std::vector<PhaseSpec>> ReadPhases(const ConfigNode& section) {
  std::vector<PhaseSpec> phases;
  if (section.kind == ConfigNode::Kind::kNull) return phases;
  if (section.kind != ConfigNode::Kind::kList) {
    return Wrong(section.where, fmt::format("expected a list, found {}", section.Describe()));
  }
  for (const ConfigNode& item : section.items) {
    if (item.kind != ConfigNode::Kind::kMap) {
      return Wrong(item.where, fmt::format("expected keys of a phase, found {}", item.Describe()));
    }
    PhaseSpec& phase = phases.emplace_back();
    phase.over.kind = ConfigNode::Kind::kMap;
    for (const ConfigEntry& entry : item.entries) LOCKSTEP_RETURN_IF_ERROR(ReadKey(entry, &phase));
    if (phase.steps == 0) return Wrong(item.where, fmt::format("phase {} has no steps", phases.size()));
  }
  return phases;
}

uint64_t TotalSteps(const std::vector<PhaseSpec>& phases) {
  uint64_t steps = 0;
  for (const PhaseSpec& phase : phases) steps += phase.steps;
  return steps;
}

void ShortenTo(uint64_t steps, std::vector<PhaseSpec>* phases) {
  const uint64_t count = phases->size();
  for (uint64_t i = 0; i < count; ++i) {
    (*phases)[i].steps = std::max<uint64_t>(1, steps * (i + 1) / count - steps * i / count);
  }
}

RunPhase PlacePhase(const std::vector<PhaseSpec>& phases, size_t index) {
  RunPhase phase;
  const size_t first = FirstOfChain(phases, index);
  for (size_t i = 0; i < index; ++i) {
    phase.begin += phases[i].steps;
    if (i < first) phase.origin += phases[i].steps;
  }
  phase.total = TotalSteps(phases);
  phase.index = static_cast<int>(index);
  phase.count = static_cast<int>(phases.size());
  phase.keeps_optimizer = index > 0 && phases[index].keeps_optimizer;
  return phase;
}

uint64_t ScheduleSteps(const std::vector<PhaseSpec>& phases, size_t index) {
  uint64_t steps = 0;
  const size_t first = FirstOfChain(phases, index);
  for (size_t i = first; i < phases.size() && (i == first || phases[i].keeps_optimizer); ++i) steps += phases[i].steps;
  return steps;
}

}  // namespace lockstep::engine
