#include "media/restore_assemble.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>

#include "base/files.h"
#include "data/image.h"
#include "data/parallel.h"

namespace lockstep::media {
namespace {

constexpr std::chrono::milliseconds kLook{20}, kLookRarely{250};  // for windows of other ranks

std::string RawName(int64_t frame) { return fmt::format("{:08}", frame); }

// `bytes`: [h, w, 3].
Status WritePng(const std::string& path, const at::Tensor& bytes) {
  const at::Tensor dense = bytes.contiguous();
  const std::span<const uint8_t> rgb(dense.data_ptr<uint8_t>(), static_cast<size_t>(dense.numel()));
  Result<std::string> png =
      data::EncodePng(rgb, static_cast<int>(dense.size(1)), static_cast<int>(dense.size(0)), data::PngEffort::kFast);
  if (!png.ok()) return png.status();
  return WriteFileAtomic(path, *png, 0644, Durability::kProcess);
}

class Assembler {
 public:
  Assembler(const WorkFiles& files, const RestoreTask& task, const AssembleOptions& options)
      : files_(files), task_(task), options_(options) {}

  // The PNG files of a folder: those that only one window holds are there.
  Status Fill() {
    const FoundClip& clip = *task_.clip;
    for (int64_t frame = 0; frame < count(); ++frame) {
      const auto [first, last] = WindowsOver(task_.windows, frame);
      LOCKSTEP_RETURN_IF_ERROR(WaitFor(first, last));
      if (last - first == 1) continue;
      const std::string path = files_.Frame(task_.number, clip.FrameName(frame));
      if (!FileExists(path)) {
        Result<at::Tensor> mean = Mean(frame, first, last);
        if (!mean.ok()) return mean.status();
        LOCKSTEP_RETURN_IF_ERROR(WritePng(path, ToPictures(mean->unsqueeze(0))[0]));
      }
      for (size_t w = first; w < last; ++w) ::unlink(files_.Shared(task_.number, frame, w).c_str());
    }
    return Status::Ok();
  }

  // A video or a tensor: every frame in order. The frames stay until the file is published.
  Status Write(MediaOutput* output) {
    std::vector<double> seconds;
    if (FileExists(files_.Times(task_.number))) {
      Result<at::Tensor> times = ReadRaw(files_.Times(task_.number), {count()}, at::kDouble);
      if (!times.ok()) return times.status();
      seconds.assign(times->data_ptr<double>(), times->data_ptr<double>() + count());
    }
    for (int64_t frame = 0; frame < count(); ++frame) {
      const auto [first, last] = WindowsOver(task_.windows, frame);
      LOCKSTEP_RETURN_IF_ERROR(WaitFor(first, last));
      Result<at::Tensor> value = last - first == 1 ? Stored(frame) : Mean(frame, first, last);
      if (!value.ok()) return value.status();
      at::Tensor planes = *value;
      if (last - first > 1) planes = task_.bytes ? ToPictures(planes.unsqueeze(0))[0] : planes.clamp(0, 1);
      if (task_.bytes) planes = planes.permute({2, 0, 1});
      Piece piece{planes.unsqueeze(0).unsqueeze(0), {}};
      if (!seconds.empty()) piece.seconds = {seconds[static_cast<size_t>(frame)]};
      LOCKSTEP_RETURN_IF_ERROR(output->Write(piece));
    }
    return output->Finish({{"rate", RateText(task_.out.rate)}});
  }

 private:
  int64_t count() const { return static_cast<int64_t>(task_.out.count); }

  Status WaitFor(size_t first, size_t last) {
    for (ready_ = std::max(ready_, first); ready_ < last; ++ready_) {
      std::chrono::milliseconds pause = kLook;
      while (!FileExists(files_.Mark(task_.number, ready_))) {
        if (options_.stop != nullptr && *options_.stop) return Status(Code::kInterrupted, "stopped");
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, kLookRarely);
      }
    }
    return Status::Ok();
  }

  Result<at::Tensor> Stored(int64_t frame) const {
    const std::string path = files_.Frame(task_.number, RawName(frame));
    const int64_t height = task_.out.height, width = task_.out.width;
    return task_.bytes ? ReadRaw(path, {height, width, 3}, at::kByte) : ReadRaw(path, {3, height, width}, at::kFloat);
  }

  // Of what windows [first, last) give, summed in their order.
  Result<at::Tensor> Mean(int64_t frame, size_t first, size_t last) const {
    at::Tensor sum;
    for (size_t w = first; w < last; ++w) {
      Result<at::Tensor> one =
          ReadRaw(files_.Shared(task_.number, frame, w), {3, task_.out.height, task_.out.width}, at::kFloat);
      if (!one.ok()) return one.status();
      sum = sum.defined() ? sum.add_(*one) : *one;
    }
    return sum.div_(static_cast<double>(last - first));
  }

  const WorkFiles& files_;
  const RestoreTask& task_;
  const AssembleOptions& options_;
  size_t ready_ = 0;  // windows before it are there
};

}  // namespace

at::Tensor ToPictures(const at::Tensor& frames) {
  return frames.clamp(0, 1).mul_(255).round_().to(at::kByte).permute({0, 2, 3, 1}).contiguous();
}

Status StoreWindow(const WorkFiles& files, const RestoreTask& task, const StoredWindow& window, size_t threads) {
  const FrameWindow& all = task.windows[window.window];
  const FrameWindow own = OwnFrames(task.windows, window.window);
  std::vector<Status> outcomes(static_cast<size_t>(all.length));
  data::ForEachAtOnce(
      outcomes.size(),
      [&](size_t i) {
        const int64_t frame = all.begin + static_cast<int64_t>(i);
        try {
          if (own.length > 0 && frame >= own.begin && frame < own.end()) {
            const at::Tensor value = window.own[frame - own.begin];
            const bool png = task.clip->written == Written::kFolder;
            const std::string path = files.Frame(task.number, png ? task.clip->FrameName(frame) : RawName(frame));
            outcomes[i] = png ? WritePng(path, value) : WriteRaw(path, value);
            return;
          }
          const bool before = own.length == 0 || frame < own.begin;
          const at::Tensor value = before ? window.before[frame - all.begin] : window.after[frame - own.end()];
          outcomes[i] = WriteRaw(files.Shared(task.number, frame, window.window), value);
        } catch (const std::exception& error) {
          outcomes[i] = Status(Code::kEnvironment, error.what());
        }
      },
      threads);
  for (const Status& outcome : outcomes) LOCKSTEP_RETURN_IF_ERROR(outcome);
  return WriteFileAtomic(files.Mark(task.number, window.window), "", 0644, Durability::kProcess);
}

Status AssembleClip(const WorkFiles& files, const RestoreTask& task, const AssembleOptions& options,
                    std::string* written, std::vector<std::string>* notes) {
  const FoundClip& clip = *task.clip;
  Assembler assembler(files, task, options);
  const nlohmann::json record = RecordOfClip(options.settings, clip, task.out.count);
  if (clip.written == Written::kFolder) {
    LOCKSTEP_RETURN_IF_ERROR(assembler.Fill());
    if (written != nullptr) *written = "PNG";
    return PublishClip(files, task.number, clip, files.Frames(task.number), record, options.out.overwrite);
  }
  const std::string made = files.Made(task.number, clip.output);
  OutputOptions out = options.out;
  out.overwrite = true;  // what a killed process left in the work folder
  Result<std::unique_ptr<MediaOutput>> output = CreateFrames(made, task.out, out);
  if (!output.ok()) return output.status();
  LOCKSTEP_RETURN_IF_ERROR(assembler.Write(output->get()));
  if (written != nullptr) *written = (*output)->Describe();
  if (notes != nullptr) {
    for (std::string& note : (*output)->Notes()) notes->push_back(std::move(note));
  }
  return PublishClip(files, task.number, clip, made, record, options.out.overwrite);
}

}  // namespace lockstep::media
