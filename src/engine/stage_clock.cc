#include "engine/stage_clock.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <thread>

#include "base/digits.h"
#include "base/text.h"
#include "engine/device_stages.h"
#include "record/samples.h"

namespace lockstep::engine {

static_assert(kStageCount == std::size(record::kStageNames));

StageClock::StageClock(comm::TensorCommunicator* ranks, int rank, at::Device device)
    : ranks_(ranks), on_cpu_(device.is_cpu()), device_(DeviceStages::Create(device)), waits_(ranks->waits()) {
  if (device_) ranks->ObserveWaits([stages = device_.get()](bool begins) { stages->Wait(begins); });
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

StageClock::~StageClock() {
  if (device_) ranks_->ObserveWaits(nullptr);
}

void StageClock::SetStep(uint64_t step) {
  const bool begins = delay_ && step_ < delay_->step && step >= delay_->step;
  step_ = step;
  if (begins && DelaysOnDevice()) device_->Delay(delay_->stage, delay_->each);
}

void StageClock::Begin() {
  mark_ = Now();
  waited_ = ranks_->traffic().seconds_waited;
  if (device_) device_->Begin();
}

void StageClock::End(StepStage stage) {
  if (delay_ && delay_->stage == stage && step_ >= delay_->step && !DelaysOnDevice()) {
    std::this_thread::sleep_for(delay_->each);
  }
  if (device_) device_->End(stage);
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
  times_.computed_known = on_cpu_;
  return std::exchange(times_, {});
}

at::Tensor StageClock::TakeOnDevice() { return device_ ? device_->Take() : at::Tensor(); }

void StageClock::Read(const std::vector<double>& numbers, StageTimes* times) const {
  if (!device_) return;
  std::copy(numbers.end() - std::ptrdiff_t{kStageCount}, numbers.end(), times->seconds.begin());
  times->computed_known = true;
}

}  // namespace lockstep::engine
