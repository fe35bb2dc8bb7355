#include "hang/movement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/units.h"

namespace lockstep::hang {
namespace {

// A thread that waits for good sleeps once; one that polls with a time-out wakes up once a second or less.
constexpr double kWakesPerSecond = 2;
constexpr double kUsualTimes = 3;  // so many usual steps may a step take before its silence counts

uint64_t Fold(uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash * 0x100000001b3;
}

std::string Time(double seconds) {
  return FormatDuration(std::chrono::milliseconds(static_cast<int64_t>(std::round(seconds * 10) * 100)));
}

}  // namespace

StackPrint PrintOf(const ProcessStacks& process) {
  StackPrint print{.rank = process.rank, .pid = process.pid, .gone = process.gone};
  const ThreadStack* main = process.main();
  if (main == nullptr) return print;
  print.switches = main->switches;
  const std::vector<StackFrame>& frames = main->python.empty() ? main->native : main->python;
  if (frames.empty()) return print;
  print.frames = 0xcbf29ce484222325;
  for (const StackFrame& frame : frames) {
    print.frames = Fold(Fold(Fold(print.frames, frame.function), frame.file), std::to_string(frame.line));
  }
  return print;
}

nlohmann::json ToJson(const StackPrint& print) {
  return {{"rank", print.rank},
          {"pid", print.pid},
          {"gone", print.gone},
          {"frames", fmt::format("{:016x}", print.frames)},
          {"switches", print.switches}};
}

StackPrint PrintFromJson(const nlohmann::json& json) {
  StackPrint print;
  if (!json.is_object()) return print;
  print.rank = static_cast<int>(GetInt(json, "rank", -1));
  print.pid = GetInt(json, "pid");
  print.gone = json.value("gone", nlohmann::json()) == true;
  print.frames = std::strtoull(GetString(json, "frames").c_str(), nullptr, 16);
  print.switches = GetInt(json, "switches", -1);
  return print;
}

bool Moved(const StackPrint& before, const StackPrint& after, double seconds) {
  if (before.pid != after.pid) return true;
  if (before.frames != 0 && after.frames != 0 && before.frames != after.frames) return true;
  if (before.switches < 0 || after.switches < 0) return false;
  return static_cast<double>(after.switches - before.switches) > kWakesPerSecond * std::max(seconds, 0.1);
}

bool AllMoved(const std::vector<StackPrint>& before, const std::vector<StackPrint>& after, double seconds) {
  bool any = false;
  for (const StackPrint& now : after) {
    if (now.gone) continue;
    const auto then =
        std::find_if(before.begin(), before.end(), [&](const StackPrint& print) { return print.rank == now.rank; });
    if (then == before.end() || then->gone) continue;
    any = true;
    if (!Moved(*then, now, seconds)) return false;
  }
  return any;
}

void Consider(const Movement& movement, HangVerdict* verdict) {
  const bool held = std::any_of(verdict->places.begin(), verdict->places.end(), [](const RankPosition& place) {
    return place.where == Where::kStopped || place.where == Where::kDisk;
  });
  if (held) return;
  const auto clear = [&](std::string summary, double confidence) {
    verdict->summary = std::move(summary);
    verdict->advice.clear();
    verdict->odd.clear();
    verdict->confidence = confidence;
    verdict->healthy = true;
  };
  // The rank that came farthest: others may say their steps less often.
  std::optional<std::pair<uint64_t, uint64_t>> advance;
  for (const auto& [rank, step] : movement.after) {
    const auto then = movement.before.find(rank);
    if (then == movement.before.end() || step <= then->second) continue;
    if (!advance || step > advance->second) advance = {then->second, step};
  }
  if (advance) {
    return clear(
        fmt::format("healthy: steps advance ({} -> {}) in {}", advance->first, advance->second, Time(movement.seconds)),
        0.95);
  }
  if (movement.quiet && movement.usual && *movement.quiet < kUsualTimes * *movement.usual) {
    return clear(fmt::format("no hang to be seen: the last step was {} ago, and up to {} lay between steps so far",
                             Time(*movement.quiet), Time(*movement.usual)),
                 0.6);
  }
  if (movement.after.empty() && movement.stacks_moved) {
    return clear(fmt::format("no hang to be seen: every rank moved within {}; its steps are not recognised, so whether "
                             "they advance is not known. Before: {}",
                             Time(movement.seconds), verdict->summary),
                 0.5);
  }
}

}  // namespace lockstep::hang
