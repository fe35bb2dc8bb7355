// Lines of a training log against arbitrary text, as `lockstep watch` and the launcher read them: what a line says of
// progress, loss and speed, and what many lines mean together. The corpus holds lines of every framework that is known.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "record/metric_csv.h"
#include "record/progress.h"
#include "record/progress_tracker.h"
#include "watch/log_progress.h"

using namespace lockstep;

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

bool Duration(const std::optional<double>& seconds) { return !seconds || (std::isfinite(*seconds) && *seconds >= 0); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 16384) return 0;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  record::ProgressTracker tracker;
  record::MetricCsv csv;
  std::chrono::steady_clock::time_point now{};
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\r\n"), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    if (const std::optional<int> rank = watch::CutRankPrefix(&line)) Require(*rank >= 0);
    const std::optional<record::ProgressMark> mark = record::ParseProgress(line);
    if (mark) {
      Require(mark->grammar != record::ProgressGrammar::kNone && record::ProgressGrammarName(mark->grammar) != nullptr);
      Require(Duration(mark->seconds_per_step) && Duration(mark->elapsed));
      Require(mark->label.size() <= line.size());
    }
    (void)record::ParseEpochHeading(line);
    (void)record::ParseEpochCount(line);
    (void)csv.Take(line);
    (void)record::ParseLoss(line);
    const record::ProgressValues values = record::ParseValues(line);
    for (const auto& rate : {values.samples_per_second, values.tokens_per_second}) Require(Duration(rate));
    now += std::chrono::milliseconds(700);
    const uint64_t before = tracker.state().marks;
    const bool progress = tracker.Feed(line, now);
    const record::ProgressState& state = tracker.state();
    Require(state.marks >= before && (!progress || state.any()) && state.last <= now);
    Require(Duration(state.seconds_per_step) && Duration(state.measured));
    (void)state.StepOfRun();
    (void)state.TotalOfRun();
  }
  return 0;
}
