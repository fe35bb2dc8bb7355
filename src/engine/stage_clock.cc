#include "engine/stage_clock.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <thread>

#include "base/digits.h"
#include "base/text.h"
#include "record/samples.h"

namespace lockstep::engine {

static_assert(kStageCount == std::size(record::kStageNames));

StageClock::StageClock(comm::TensorCommunicator* ranks, int rank) : ranks_(ranks), waits_(ranks->waits()) {
  const char* spec = std::getenv("LOCKSTEP_TEST_DELAY");
  if (spec == nullptr) return;
  const std::vector<std::string> words = Split(spec, ':');
  if (words.size() != 4 || ParseDigits(words[0]) != rank) return;
  const auto stage = std::find(std::begin(record::kStageNames), std::end(record::kStageNames), words[1]);
  const auto step = ParseDigits<uint64_t>(words[2]);
  const auto each = ParseDigits(words[3]);
  if (stage == std::end(record::kStageNames) || !step || !each) return;
  delay_ = {static_cast<StepStage>(stage - std::begin(record::kStageNames)), *step, Millis(*each)};
}

void StageClock::Begin() {
  mark_ = Now();
  waited_ = ranks_->traffic().seconds_waited;
}

void StageClock::End(StepStage stage) {
  if (delay_ && delay_->stage == stage && step_ >= delay_->step) std::this_thread::sleep_for(delay_->each);
  const TimePoint now = Now();
  const double waited = ranks_->traffic().seconds_waited;
  const double passed = std::chrono::duration<double>(now - mark_).count();
  const double inside = std::clamp(waited - waited_, 0.0, passed);
  times_.seconds[static_cast<size_t>(stage)] += passed - inside;
  times_.seconds[static_cast<size_t>(StepStage::kCollective)] += inside;
  mark_ = now;
  waited_ = waited;
}

StageTimes StageClock::Take() {
  std::vector<double> now = ranks_->waits();
  for (size_t r = 0; r < now.size(); ++r) {
    const double waited = now[r] - waits_[r];
    // Never more than this rank was held up: some of it passed behind the computing.
    const double most = times_.seconds[static_cast<size_t>(StepStage::kCollective)];
    if (waited <= 0 || (times_.longest_wait && waited <= times_.longest_wait->second)) continue;
    times_.longest_wait = {static_cast<int>(r), std::min(waited, most)};
  }
  waits_ = std::move(now);
  return std::exchange(times_, {});
}

}  // namespace lockstep::engine
