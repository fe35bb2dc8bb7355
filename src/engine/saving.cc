#include "engine/saving.h"

#include <fmt/format.h>

#include "base/units.h"

#ifdef LOCKSTEP_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace lockstep::engine {

Status Saving::Open(const CheckpointConfig& config, const std::string& folder, at::Device device) {
  config_ = config;
  if (folder.empty()) return Status::Ok();
  record::BackgroundSaver::Options options;
  options.folder = folder;
  options.keep = config.keep;
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

Status Saving::Reserve(const TrainingState& state) {
  return saver_ ? saver_->Reserve(Describe(state).content.tensors) : Status::Ok();
}

Status Saving::Begin(const TrainingState& state) {
  StateImage image = Describe(state);
#ifdef LOCKSTEP_CUDA
  const at::Device device = state.learner->flat().device();
  if (device.is_cuda()) at::cuda::getCurrentCUDAStream(device.index()).synchronize();
#endif
  std::optional<uint64_t> best;
  if (state.position.best) best = state.position.best_step;
  const Result<bool> begun = saver_->Begin(image.content, best);
  if (!begun.ok()) return begun.status();
  owed_ = !*begun;
  if (owed_) return Status::Ok();
  hold_ = std::move(image.hold);
  last_ = Now();
  begun_step_ = state.position.step;
  return Status::Ok();
}

bool Saving::Due(uint64_t step) const {
  if (!saver_) return false;
  return owed_ || (config_.every > 0 && step % config_.every == 0) ||
         (config_.every_time && Now() - last_ >= *config_.every_time);
}

void Saving::Poll(Report* report) {
  if (saver_) Take(saver_->Poll(), report);
}

Status Saving::Save(const TrainingState& state, bool now, Report* report) {
  if (!saver_ || (begun_step_ == state.position.step && begun_step_ > 0)) return Status::Ok();
  if (now) Take(saver_->Drain(), report);
  return Begin(state);
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

Status Saving::Finish(Report* report) {
  if (!saver_) return Status::Ok();
  Take(saver_->Drain(), report);
  return newest_;
}

}  // namespace lockstep::engine
