// Where a run continues: which checkpoint, and what of it is taken.
#include <fmt/format.h>

#include <filesystem>

#include "base/digits.h"
#include "base/files.h"
#include "base/log.h"
#include "engine/state_tensors.h"
#include "engine/trainer.h"
#include "record/checkpoint_folder.h"

namespace lockstep::engine {
namespace {

// --resume none, and not the restart of such a run.
bool FromStart(const TrainerOptions& options) { return options.resume == "none" && !options.restarted; }

Status FindAsked(const std::string& resume, std::string* path) {
  Result<std::string> found = record::FindCheckpoint(resume);
  if (!found.ok()) return found.status().Context("--resume");
  *path = *found;
  if (!path->empty()) return Status::Ok();
  return Status(Code::kUsage, fmt::format("--resume {}: there is no such checkpoint", resume),
                "name a run, a folder checkpoints/step-<n>, or use --resume auto");
}

}  // namespace

// Rank 0 decides; the others need not see the folder, and verify with it what they see.
Result<StartPoint> Trainer::FindStart(const TrainerOptions& options, Ranks* ranks) {
  Status status;
  std::string found;
  LOCKSTEP_RETURN_IF_ERROR(WithVerification(ranks, [&](const VerifyCheckpoint& verify) {
    if (FromStart(options)) return;
    const bool named = options.resume != "auto" && options.resume != "none";
    if (named && !options.restarted) {
      status = FindAsked(options.resume, &found);
    } else if (!options.run_dir.empty()) {
      std::vector<record::Candidate> rejected;
      Result<std::optional<std::string>> newest =
          record::NewestGood(options.run_dir + "/checkpoints", &rejected, verify);
      for (const record::Candidate& candidate : rejected) {
        LogWarn("checkpoint {} is passed over: {}", candidate.path, candidate.status.message());
      }
      status = newest.status();
      if (newest.ok() && *newest) {
        found = **newest;
      } else if (newest.ok() && named) {
        status = FindAsked(options.resume, &found);  // restarted before its first own checkpoint
      }
    }
  }));
  uint64_t step = 0;
  if (status.ok() && !found.empty()) {
    const Result<record::CheckpointReader> reader = record::CheckpointReader::Open(found);
    status = reader.status();
    if (reader.ok()) step = reader->step();
  }
  LOCKSTEP_RETURN_IF_ERROR(ranks->Agree(status));
  Result<std::vector<std::string>> told = ranks->host().Gather(fmt::format("{} {}", step, found));
  if (!told.ok()) return told.status();
  const std::string& main = told->front();
  const size_t space = main.find(' ');
  return StartPoint{main.substr(space + 1), ParseDigits<uint64_t>(main.substr(0, space)).value_or(0)};
}

// Where the run is told to begin: checkpoints of before that do not lead there would be taken for this run's after a
// restart, and keep the next ones from being the newest. Called when nothing is left to refuse.
Status Trainer::SetCheckpointsAside(const StartPoint& start) const {
  const std::string folder = options_.run_dir + "/checkpoints";
  std::error_code error;
  if (options_.resume == "auto" || options_.restarted || !std::filesystem::exists(folder, error)) return Status::Ok();
  const std::string aside = fmt::format("{}-before-attempt-{}", folder, options_.attempt);
  std::vector<std::pair<std::string, std::string>> moves;
  if (!start.path.empty() && std::filesystem::equivalent(start.path + "/..", folder, error)) {
    const Result<std::vector<record::Candidate>> found = record::ScanCheckpoints(folder);
    if (!found.ok()) return found.status();
    for (const record::Candidate& one : *found) {
      const std::string name = std::filesystem::path(one.path).filename();
      if (!one.temporary && one.step > start.step) moves.emplace_back(one.path, aside + "/" + name);
    }
    if (moves.empty()) return Status::Ok();
    LOCKSTEP_RETURN_IF_ERROR(MakeDirs(aside));
  } else {
    moves.emplace_back(folder, aside);
  }
  for (const auto& [from, to] : moves) {
    std::filesystem::rename(from, to, error);
    if (!error) continue;
    return Status(Code::kEnvironment, fmt::format("{}: cannot be moved aside: {}", from, error.message()));
  }
  for (const char* link : {"/latest", "/best"}) {  // to what is there no more
    if (!std::filesystem::exists(folder + link, error)) std::filesystem::remove(folder + link, error);
  }
  LogWarn("--resume {}: {} are now in {}", options_.resume,
          moves.front().first == folder ? "the checkpoints of before" : "this run's newer checkpoints", aside);
  return Status::Ok();
}

Status Trainer::StartFrom(const std::string& checkpoint) {
  Position& at = state_.position;
  if (options_.phase.takes_over) {
    LOCKSTEP_RETURN_IF_ERROR(TakeOver(checkpoint, options_.phase.keeps_optimizer, &state_, ranks_));
  } else {
    LOCKSTEP_RETURN_IF_ERROR(Restore(checkpoint, &state_, ranks_));
  }
  if (at.seed != config_.run.seed) {
    return ranks_->Agree(
        Status(Code::kUsage,
               fmt::format("{}: written with run.seed {}, this run has {}", checkpoint, at.seed, config_.run.seed),
               fmt::format("use run.seed={}: the order of the data depends on it", at.seed)));
  }
  // Scores of two metrics do not compare.
  if (!at.best_metric.empty() && at.best_metric != BestScore().first) {
    at.best.reset();
    at.stale_validations = 0;
  }
  if (!options_.phase.takes_over) return ranks_->Agree(CheckData(checkpoint));
  // Its samples may be others: it begins with an epoch of its own.
  at.sampler = {config_.run.seed, at.sampler.epoch + 1, 0};
  at.bad_steps = at.stale_validations = 0;
  return Status::Ok();
}

// A position in one set of samples means nothing in another.
Status Trainer::CheckData(const std::string& checkpoint) {
  Position& at = state_.position;
  if (at.data.empty() || at.data == DataIdentity()) return Status::Ok();
  if (config_.data.on_change == "new_epoch") {
    at.sampler = {config_.run.seed, at.sampler.epoch + 1, 0};
    return Status::Ok();
  }
  return Status(Code::kUsage,
                fmt::format("{}: written with other training data ({}) than this run's ({}: {})", checkpoint, at.data,
                            DataIdentity(), sources_.train->Describe()),
                "use the data it was written with, or data.on_change: new_epoch to begin a new epoch of these");
}

}  // namespace lockstep::engine
