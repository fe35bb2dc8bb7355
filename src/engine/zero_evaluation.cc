// Stage 3 of ZeRO outside of training: forward passes that every rank runs for itself, in any number and order, as in a
// validation. Ranks that need a unit ask all others, who gather it with them; one that is done goes on helping. Before
// each unit there is one small collective over host memory, so that no more than that unit, and what is gathered ahead,
// is whole at any time.
#include "engine/zero.h"

namespace lockstep::engine {

Status Zero::Evaluate(const std::function<void()>& work) {
  if (!sharded()) return Ddp::Evaluate(work);
  {
    const std::lock_guard lock(mutex_);
    ReleaseAll();
    brought_.reset();
    followed_by_.resize(units_.size());
    evaluates_ = true;
  }
  work();
  const std::lock_guard lock(mutex_);
  Status status;
  try {
    for (size_t unit = 0; (unit = AgreeOnUnit(units_.size())) < units_.size();) Bring(unit);
  } catch (const c10::Error& error) {
    status = Status(Code::kRankFailed, error.what_without_backtrace());
  }
  evaluates_ = false;
  ReleaseAll();
  if (upload_) upload_->Finish();
  return status;
}

// The first unit, in the order of the model, that any rank needs: ranks that are behind catch up with the others, and
// all go on together. `needed` is this rank's; the number of units: none.
size_t Zero::AgreeOnUnit(size_t needed) {
  auto first = static_cast<int64_t>(needed);
  const Status status = ranks_->host().AllReduceNow(&first, 1, comm::DType::kI64, comm::Op::kMin);
  TORCH_CHECK(status.ok(), status.ToString());
  return static_cast<size_t>(first);
}

// All ranks bring the same units in the same order. What is whole when this begins differs between them: those that
// computed with the last one have released it.
void Zero::Bring(size_t unit) {
  if (brought_) {
    LetGo(*brought_);
    followed_by_[*brought_] = unit;
  }
  if (!started_[unit]) ReleaseAll();  // gathered ahead for another order
  brought_ = unit;
  Need(unit);
  int64_t ahead = 0;
  std::optional<size_t> next = followed_by_[unit];
  for (size_t i = 0; i < units_.size() && next && *next != unit && ahead < config_.zero.prefetch; ++i) {
    if (!StartNext(*next)) return;
    ahead += sizes_[*next];
    next = followed_by_[*next];
  }
}

}  // namespace lockstep::engine
