#include "engine/saving.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/units.h"
#include "record/shared_folder.h"

#ifdef LOCKSTEP_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace lockstep::engine {

namespace {

// A rank waits for the slowest disk of all. One that is gone is noticed at once, one that is stuck by the training.
constexpr std::chrono::hours kSaveTimeout{1};
// A save in flight when the run fails may still be worth its last bytes.
constexpr std::chrono::seconds kPatience{5};

}  // namespace

Status Saving::Open(const CheckpointConfig& config, const std::string& folder, at::Device device, Ranks* ranks) {
  config_ = config;
  ranks_ = ranks;
  if (folder.empty()) return Status::Ok();
  record::BackgroundSaver::Options options;
  options.folder = folder;
  options.keep = config.keep;
  options.staging_bytes = config.staging;
  if (ranks->size() > 1) {
    const auto gather = [ranks](std::string_view text) { return ranks->host().Gather(text); };
    Result<std::vector<int>> writers = record::RanksThatSee(folder, ranks->rank(), gather);
    if (!writers.ok()) return writers.status();
    writers_ = *writers;
    Result<std::shared_ptr<comm::Communicator>> comm = ranks->tensors().ConnectHost("checkpoint", kSaveTimeout);
    if (!comm.ok()) return comm.status();
    comm_ = *comm;
    options.peers.rank = ranks->rank();
    options.peers.size = ranks->size();
    options.peers.writers = writers_;
    options.peers.send = [comm = comm_](void* data, size_t bytes, int from, int to) {
      return comm->Send(data, bytes, from, to);
    };
    options.peers.gather = [comm = comm_](std::string_view text) { return comm->Gather(text); };
  }
#ifdef LOCKSTEP_CUDA
  if (device.is_cuda()) {
    // A stream of its own: the copy runs beside the passes that follow.
    const auto stream = at::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index());
    options.copy = [stream](void* to, const void* from, size_t bytes) {
      const c10::cuda::CUDAGuard guard(stream.device_index());
      cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.stream());
      if (error == cudaSuccess) error = cudaStreamSynchronize(stream.stream());
      if (error == cudaSuccess) return Status::Ok();
      return Status(Code::kEnvironment,
                    fmt::format("copy of {} bytes from the GPU: {}", bytes, cudaGetErrorString(error)));
    };
  }
#else
  (void)device;
#endif
  Result<std::unique_ptr<record::BackgroundSaver>> saver = record::BackgroundSaver::Create(std::move(options));
  if (!saver.ok()) return saver.status();
  saver_ = std::move(*saver);
  return Status::Ok();
}

std::string Saving::Describe() const {
  if (ranks_->size() == 1) return "by one rank";
  if (static_cast<int>(writers_.size()) == ranks_->size()) return "by all ranks, each its part";
  return fmt::format("by rank{} {}, which see{} the folder; the others send their part",
                     writers_.size() == 1 ? "" : "s", fmt::join(writers_, ", "), writers_.size() == 1 ? "s" : "");
}

Status Saving::Reserve(const TrainingState& state) {
  return saver_ ? saver_->Reserve(engine::Describe(state, *ranks_).content.tensors) : Status::Ok();
}

Status Saving::Save(const TrainingState& state, bool now, Report* report) {
  if (!saver_ || (begun_step_ == state.position.step && begun_step_ > 0)) return Status::Ok();
  if (now) Take(saver_->Drain(), report);
  StateImage image = engine::Describe(state, *ranks_);
#ifdef LOCKSTEP_CUDA
  const at::Device device = state.learner->flat().device();
  if (device.is_cuda()) at::cuda::getCurrentCUDAStream(device.index()).synchronize();
#endif
  std::optional<uint64_t> best;
  if (state.position.best) best = state.position.best_step;
  const Result<bool> begun = saver_->Begin(image.content, best);
  if (!begun.ok()) return begun.status();
  if (!*begun) return Status(Code::kInternal, "a checkpoint was begun while the one before was being written");
  owed_ = false;
  hold_ = std::move(image.hold);
  last_ = Now();
  begun_step_ = state.position.step;
  return Status::Ok();
}

bool Saving::Due(uint64_t step) {
  if (!saver_ || !ranks_->is_main()) return false;
  const bool due = owed_ || (config_.every > 0 && step % config_.every == 0) ||
                   (config_.every_time && Now() - last_ >= *config_.every_time);
  owed_ = due && saver_->busy();
  return due && !owed_;
}

void Saving::Poll(Report* report) {
  if (saver_) Take(saver_->Poll(), report);
}

Result<double> Saving::BeforeUpdate() {
  if (!saver_) return 0.0;
  const TimePoint start = Now();
  LOCKSTEP_RETURN_IF_ERROR(saver_->WaitCopied());
  return SecondsSince(start);
}

void Saving::Take(const std::vector<record::SaveReport>& reports, Report* report) {
  for (const record::SaveReport& save : reports) {
    newest_ = save.status;
    if (save.status.ok()) {
      saved_step_ = save.step;
      report->Say(fmt::format("checkpoint {} ({}, written in {:.1f} s, training waited {:.0f} ms)", save.path,
                              FormatSize(save.bytes), save.write_seconds, save.blocked_seconds * 1e3));
    } else {
      report->Say(fmt::format("checkpoint at step {} was not written: {}; older ones are untouched, training goes on",
                              save.step, save.status.message()));
    }
    if (!save.prune.ok()) report->Say("old checkpoints could not be removed: " + save.prune.message());
  }
}

Status Saving::Finish(Report* report, bool failed) {
  if (!saver_) return Status::Ok();
  if (failed && comm_ != nullptr && !saver_->WaitIdle(kPatience)) comm_->Abort("the run has failed");
  Take(saver_->Drain(), report);
  return newest_;
}

}  // namespace lockstep::engine
