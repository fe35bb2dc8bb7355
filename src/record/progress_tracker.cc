#include "record/progress_tracker.h"

#include <algorithm>
#include <utility>

namespace lockstep::record {
namespace {

constexpr size_t kMostSources = 16;  // a bar whose words change with every line must not fill memory

// Beginnings of words that say a bar counts something beside the training: work that may be all a program does ...
constexpr std::string_view kSideWork[] = {"eval", "valid", "testing", "inferenc", "predict", "generat", "sampling"};
constexpr std::string_view kSideWorkWhole[] = {"val", "test"};
// ... and what only precedes it or comes between: its end is not the end of the program.
constexpr std::string_view kPreparation[] = {
    "sanity",     "writing", "saving",     "loading", "download", "upload",  "fetch",   "shard",   "resolv",  "tokeniz",
    "preprocess", "mapping", "checkpoint", "filter",  "casting",  "packing", "caching", "extract", "convert", "compil"};
constexpr std::string_view kPreparationWhole[] = {"map", "split"};
constexpr std::string_view kTraining[] = {"train", "epoch", "step", "iter"};

template <typename List>
bool AnyWord(std::string_view label, const List& list, bool whole) {
  while (!label.empty()) {
    const std::string_view word = label.substr(0, label.find(' '));
    for (const std::string_view wanted : list) {
      if (whole ? word == wanted : word.starts_with(wanted)) return true;
    }
    label.remove_prefix(std::min(label.size(), word.size() + 1));
  }
  return false;
}

}  // namespace

ProgressTracker::Rank ProgressTracker::RankOf(const ProgressMark& mark) {
  if (mark.grammar == ProgressGrammar::kEpochs || mark.side) return Rank::kSideWork;
  if (mark.grammar == ProgressGrammar::kCounter) return Rank::kInside;
  if (mark.grammar != ProgressGrammar::kBar) return Rank::kTraining;
  if (AnyWord(mark.label, kPreparation, false) || AnyWord(mark.label, kPreparationWhole, true)) {
    return Rank::kPreparation;
  }
  if (AnyWord(mark.label, kSideWork, false) || AnyWord(mark.label, kSideWorkWhole, true)) return Rank::kSideWork;
  if (mark.nested) return Rank::kInside;
  return mark.names_loss || AnyWord(mark.label, kTraining, false) ? Rank::kTraining : Rank::kPlain;
}

// The same bar again, also as the bar of the next epoch.
size_t ProgressTracker::Find(const ProgressMark& mark) {
  const bool bar = mark.grammar == ProgressGrammar::kBar;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    // "step:100/1390 time:15s" goes on where "step:0/1390 loss:10.8" began.
    const bool same_count = mark.grammar == ProgressGrammar::kCounter && mark.total && !mark.side &&
                            source.grammar == ProgressGrammar::kStepLoss && source.total == mark.total;
    if ((source.grammar != mark.grammar && !same_count) || source.side != mark.side) continue;
    if (!bar || (source.label == mark.label && source.total == mark.total && source.nested == mark.nested)) return i;
  }
  Source fresh{
      .grammar = mark.grammar, .label = mark.label, .total = mark.total, .nested = mark.nested, .side = mark.side};
  if (sources_.size() < kMostSources) {
    sources_.push_back(std::move(fresh));
    return sources_.size() - 1;
  }
  size_t least = followed_ == size_t{0} ? 1 : 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (i != followed_ && sources_[i].marks < sources_[least].marks) least = i;
  }
  sources_[least] = std::move(fresh);
  return least;
}

// Whoever has counted longest is the training, unless its words or its place say otherwise.
bool ProgressTracker::Replaces(const Source& other, const Source& followed) {
  if (other.rank > followed.rank) return true;
  if (other.rank < followed.rank && (other.rank <= Rank::kInside || !followed.Finished())) return false;
  // Of two forms of lines, the one that says how many there are.
  const auto line = [](const Source& source) { return source.grammar != ProgressGrammar::kBar; };
  if (line(other) && line(followed) && other.total.has_value() != followed.total.has_value()) {
    return other.total.has_value();
  }
  if (line(other) && line(followed) && other.names_loss != followed.names_loss) return other.names_loss;
  if (other.elapsed && followed.elapsed) return other.past + *other.elapsed > followed.past + *followed.elapsed;
  return other.marks > followed.marks;
}

// Of a bar that has run through and begins again: the one that stood between two of its steps all the while, and has
// gone on since. Bars of other processes (Ray) are not drawn below it by the cursor.
std::optional<size_t> ProgressTracker::Around(const Source& source) const {
  if (source.grammar != ProgressGrammar::kBar || !source.Finished()) return std::nullopt;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& other = sources_[i];
    const bool alive = other.rank >= Rank::kPlain && other.total && !other.Finished();
    if (alive && other.begun < source.begun && other.last > source.last) return i;
  }
  return std::nullopt;
}

// "step 100: loss=0.5" beside a bar without a loss: its loss is that of the bar's step.
bool ProgressTracker::TellsLossOf(const Source& line, const ProgressMark& mark) const {
  if (!followed_ || !mark.names_loss || mark.elapsed || line.rank != Rank::kTraining) return false;
  const Source& bar = sources_[*followed_];
  return bar.elapsed && !bar.draws_loss;
}

void ProgressTracker::Follow(size_t at) {
  state_.takeovers += followed_.has_value();
  followed_ = at;
  state_.seconds_per_step.reset();
}

void ProgressTracker::ShowFollowed() {
  const Source& source = sources_[*followed_];
  state_.step = source.step;
  state_.total = source.total;
  state_.epochs_done.reset();
  state_.epoch = source.epoch;
  state_.by_epochs = source.by_epochs;
  state_.epochs_before = source.epochs_before;
}

std::optional<uint64_t> ProgressState::StepOfRun() const {
  return by_epochs && step && total ? *step + epochs_before * *total : step;
}

std::optional<uint64_t> ProgressState::TotalOfRun() const {
  if (!by_epochs && total && epoch && epoch->of != uint64_t{1}) return std::nullopt;
  if (!by_epochs || !total) return total;
  // "0/10" may be the first of ten or of eleven.
  const bool from_one = epoch && epoch->number == epochs_before + 1;
  return from_one && epoch->of ? std::optional<uint64_t>(*epoch->of * *total) : std::nullopt;
}

// again: the bar began anew with this mark.
void ProgressTracker::CountEpoch(const ProgressMark& mark, bool again, Source* source) {
  if (mark.grammar != ProgressGrammar::kBar || !mark.total || source->over_all) return;
  const std::optional<EpochNumber> before = source->epoch;
  // A bar that is removed at its end may not have shown its last steps, a line may be printed every so many steps only.
  const bool full = source->step && 10 * *source->step >= 9 * *mark.total;
  const bool numbered = mark.epoch && before;
  const bool last = numbered && mark.epoch->number == before->number && mark.epoch->of == mark.epoch->number;
  const bool counted = numbered && mark.epoch->number == before->number + 1;
  // A little back: the same bar of another rank in one log, or a few steps that are repeated.
  const bool same = !numbered || mark.epoch->number == before->number;
  if (again && same && source->step && 2 * *mark.step > *source->step) return;
  // Seen only when it was over, and now from its beginning: the description was set before the bar.
  const bool begins = again && source->whole && same;
  const bool next = again && !begins && ((full && !last) || counted);
  source->whole = again && source->step == mark.step;
  // A line that goes on in the next epoch counts the steps of all.
  const bool goes_on = counted && !again && mark.of_epoch;
  const bool sure = mark.of_epoch && mark.epoch && (mark.begins_anew || mark.epoch->number <= 1) && !goes_on;
  source->anew = source->anew || next;
  if (goes_on && !source->anew) source->by_epochs = false;
  source->by_epochs = next || sure || (source->by_epochs && (!again || mark.epoch));
  if (mark.epoch) {
    if (!before) source->first_epoch = std::min<uint64_t>(mark.epoch->number, 1);
    source->epoch = mark.epoch;
    // Lightning sets its bar to 0 before it changes the number.
    if (next && before && before->number == mark.epoch->number) ++source->epoch->number;
    source->epochs_before = source->epoch->number - std::min(source->epoch->number, source->first_epoch);
    source->over_all = !source->by_epochs && before && source->epoch->number > before->number;
    if (source->over_all) source->epoch.reset();
  } else if (next) {
    ++source->epochs_before;
    source->epoch = EpochNumber{.number = source->epochs_before + 1, .of = std::nullopt};
  } else if (again) {  // far from its end: a program that was started again
    source->epochs_before = 0;
    source->epoch.reset();
  }
}

bool ProgressTracker::Feed(std::string_view line, std::chrono::steady_clock::time_point now) {
  redrawn_ = loss_of_step_ = false;
  std::optional<ProgressMark> mark = ParseProgress(line);
  if (!mark || mark->grammar == ProgressGrammar::kEpochs) {
    if (const std::optional<EpochNumber> heading = ParseEpochHeading(line)) heading_ = heading;
    if (const std::optional<uint64_t> count = ParseEpochCount(line)) epoch_count_ = count;
    if (const std::optional<uint64_t> count = ParseStepCount(line)) step_count_ = count;
    if (const std::optional<double> seconds = ParseSpeed(line)) said_seconds_ = seconds;
    if (!mark || !epochs_) return false;
  }
  if (mark->grammar == ProgressGrammar::kCounter) {
    const bool rises = counter_ && *mark->step > *counter_;
    if (!rises && !(counter_ && *mark->step == *counter_)) counter_rises_ = 0;
    if (rises) ++counter_rises_;
    counter_ = mark->step;
    if (!rises || counter_rises_ < 2) return false;
  }
  if (!mark->step) {  // a Trainer's line: its step is the one of the bar
    state_.grammar = mark->grammar;
    ++state_.marks;
    state_.last = now;
    state_.of_training = true;
    state_.full = false;
    const double done = mark->epochs_done.value_or(-1);
    if (epochs_ && !followed_ && done >= 0 && done < 1e9) {
      const bool counted = step_count_ && epoch_count_ && *epoch_count_ > 0;
      const double steps = counted ? static_cast<double>(*step_count_) / static_cast<double>(*epoch_count_) : 1;
      state_.epochs_done = counted ? std::nullopt : std::optional<double>(done);
      state_.step =
          static_cast<uint64_t>(counted ? std::min(done * steps + 0.5, static_cast<double>(*step_count_)) : done);
      state_.total = counted ? step_count_ : epoch_count_;
    }
    return true;
  }

  if (!mark->seconds_per_step) mark->seconds_per_step = std::exchange(said_seconds_, std::nullopt);
  const size_t at = Find(*mark);
  Source& source = sources_[at];
  if (source.marks == 0 && !mark->names_loss) source.bare_step = mark->step;
  if (mark->names_loss && !source.loss_step) source.loss_step = mark->step;
  if (!mark->epoch && source.headed) mark->epoch = heading_;
  // A bar at its end, and of the next epoch: what was drawn between is not in a log of last states.
  const bool next_whole = source.Finished() && mark->epoch && source.epoch && !source.over_all &&
                          mark->epoch->number > source.epoch->number;
  if (source.marks > 0 && source.step == mark->step && !next_whole) {
    source.elapsed = mark->elapsed;
    redrawn_ = followed_ == at;
    const bool bar = mark->grammar == ProgressGrammar::kBar;
    loss_of_step_ = redrawn_ && (!bar || (source.bare_step && source.loss_step == *source.bare_step + 1));
    return false;
  }
  if (mark->unsure && source.marks == 0) {
    source.marks = 1;
    source.step = mark->step;
    source.first_step = *mark->step;
    source.first = now;
    return false;
  }
  const bool again = source.marks == 0 || *mark->step < *source.step || (next_whole && mark->step == source.step);
  if (const std::optional<size_t> around = again && source.marks > 0 ? Around(source) : std::nullopt) {
    source.inside = true;
    if (followed_ == at) Follow(*around);
  }
  if (source.marks == 0 && heading_) {
    source.headed = true;
    if (!mark->epoch) mark->epoch = heading_;
  }
  CountEpoch(*mark, again, &source);
  if (again) {
    if (source.marks > 0) source.past += source.elapsed.value_or(0);
    source.first_step = *mark->step;
    source.first = now;
    source.begun = state_.marks;
  }
  ++source.marks;
  source.last = state_.marks;
  source.step = mark->step;
  source.total = mark->total;
  source.elapsed = mark->elapsed;
  source.rank = std::max(source.marks > 1 ? source.rank : Rank::kPreparation, RankOf(*mark));
  if (source.inside) source.rank = std::min(source.rank, Rank::kInside);
  source.names_loss = source.names_loss || mark->names_loss;
  source.draws_loss = source.draws_loss || (mark->names_loss && !mark->loss_behind);
  if (source.rank == Rank::kPreparation) {
    // Activity, and nothing more.
  } else if (!followed_ || (*followed_ != at && Replaces(source, sources_[*followed_]))) {
    Follow(at);
  }

  if (followed_) ShowFollowed();
  state_.grammar = mark->grammar;
  ++state_.marks;
  state_.last = now;
  state_.of_training = followed_ == at || TellsLossOf(source, *mark);
  state_.full = source.Finished();
  if (followed_ != at) return true;
  if (mark->seconds_per_step) state_.seconds_per_step = mark->seconds_per_step;
  const double seconds = std::chrono::duration<double>(now - source.first).count();
  state_.measured = *mark->step > source.first_step && seconds > 0
                        ? std::optional<double>(seconds / static_cast<double>(*mark->step - source.first_step))
                        : std::nullopt;
  return true;
}

}  // namespace lockstep::record
