#include "media/restore_run.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "engine/devices.h"
#include "media/interpolate.h"
#include "media/pipe.h"

namespace lockstep::media {
namespace {

constexpr std::chrono::milliseconds kShow{200};  // between looks at what other ranks have done
// Of a GPU's memory that whole windows may take; beyond it they stay on the host, and tiles are copied.
constexpr double kWindowShare = 0.25;

struct ReadWindow {
  RestoreUnit unit;
  WindowFrames frames;
};

// A window on its way to the host.
struct ComputedWindow {
  RestoreUnit unit;
  StoredWindow values;
  at::Tensor finite;
  c10::Event copied;
};

// The first error of any thread ends them all.
class Outcome {
 public:
  explicit Outcome(const std::atomic<bool>* stop) : stop_(stop) {}
  void Fail(const Status& status) {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = status;
    over_ = true;
  }
  bool over() {
    if (stop_ != nullptr && *stop_) Fail(Status(Code::kInterrupted, "stopped by a signal"));
    return over_;
  }
  Status status() {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  const std::atomic<bool>* flag() const { return &over_; }

 private:
  const std::atomic<bool>* stop_;
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  Status status_;
};

class Loop {
 public:
  Loop(const WorkFiles& files, const MediaOptions& asked, const RestoreLoop& loop, const std::atomic<bool>* stop)
      : files_(files), asked_(asked), loop_(loop), outcome_(stop) {}

  Result<RestoreOutcome> Run() {
    std::jthread reader([this] { Guard([this] { return ReadAll(); }); });
    std::jthread storer([this] { Guard([this] { return StoreAll(); }); });
    std::jthread assembler([this] {
      Guard([this] { return AssembleAll(); });
      assembled_ = true;
    });
    const Closing closing{this};  // before the threads are waited for, whatever is thrown
    const c10::OptionalDeviceGuard current = OnDevice();
    Compute();
    computed_.Close();
    storer.join();
    while (!assembled_ && !outcome_.over()) {
      if (loop_.progress) loop_.progress();
      std::this_thread::sleep_for(kShow);
    }
    if (outcome_.over()) return outcome_.status();
    assembler.join();
    return result_;
  }

 private:
  struct Closing {
    Loop* loop;
    ~Closing() {
      if (std::uncaught_exceptions() > 0) loop->outcome_.Fail(Status(Code::kInternal, "computing failed"));
      loop->read_.Close();
      loop->computed_.Close();
    }
  };

  // Of a thread: its error ends the others.
  void Guard(const std::function<Status()>& work) {
    Status status;
    try {
      const c10::OptionalDeviceGuard current = OnDevice();  // pinned memory is that of a device
      status = work();
    } catch (const std::exception& error) {
      status = Status(Code::kEnvironment, error.what());
    }
    if (status.ok()) return;
    outcome_.Fail(status);
    read_.Close();
    computed_.Close();
  }

  c10::OptionalDeviceGuard OnDevice() const {
    return loop_.device.is_cuda() ? c10::OptionalDeviceGuard(loop_.device) : c10::OptionalDeviceGuard();
  }

  Status ReadAll() {
    size_t task = 0;
    std::unique_ptr<WindowReader> reader;
    for (const RestoreUnit& unit : loop_.units) {
      if (outcome_.over()) return Status::Ok();
      const RestoreTask& of = loop_.tasks[unit.task];
      if (!reader || unit.task != task) reader = std::make_unique<WindowReader>(*of.clip, asked_, loop_.reading);
      task = unit.task;
      const FrameWindow& window = of.windows[unit.window];
      const int64_t between = loop_.tiles.between;
      Result<WindowFrames> frames = reader->Read(between > 0 ? FramesAround(window, between, InputFrames(of)) : window);
      if (!frames.ok()) return frames.status();
      if (!read_.Push({unit, std::move(*frames)})) return Status::Ok();
    }
    read_.Close();
    return Status::Ok();
  }

  void Compute() {
    for (size_t i = 0; i < loop_.units.size(); ++i) {
      std::optional<ReadWindow> window = read_.Pop();
      if (!window || outcome_.over()) return;
      if (!computed_.Push(ComputeOne(*window))) return;
      if (loop_.progress) loop_.progress();
    }
  }

  // Of a clip whose rate is doubled.
  static int64_t InputFrames(const RestoreTask& task) { return (static_cast<int64_t>(task.out.count) + 1) / 2; }

  bool FitsOnDevice(const RestoreTask& task, const at::Tensor& frames) const {
    if (!loop_.device.is_cuda()) return true;
    const auto gpu = engine::DescribeGpu(loop_.device);
    const double pixels = static_cast<double>(frames.size(0) * frames.size(2) * frames.size(3));
    const double restored = static_cast<double>(frames.size(0) * task.out.height * task.out.width * 3);
    // The input in float32 twice, the sum, its bounded copy, bytes.
    const double need = 4 * (2 * pixels * 8 + 3 * restored);
    return !gpu || need < kWindowShare * static_cast<double>(gpu->memory);
  }

  ComputedWindow ComputeOne(const ReadWindow& window) {
    const RestoreTask& task = loop_.tasks[window.unit.task];
    const bool fits = FitsOnDevice(task, window.frames.frames);
    const at::Device place = fits ? loop_.device : at::Device(at::kCPU);
    at::Tensor x = window.frames.frames.to(place, /*non_blocking=*/true);
    x = x.scalar_type() == at::kByte ? x.to(at::kFloat).div_(255) : x.clamp(0, 1);
    std::vector<at::Tensor> channels = {x.contiguous()};
    if (window.frames.spikes.defined()) channels.push_back(window.frames.spikes.to(place, /*non_blocking=*/true));
    if (loop_.noise) channels.push_back(at::full_like(x.narrow(1, 0, 1), *loop_.noise));
    const RestoreForward tile_wise = [this](const at::Tensor& clips) {
      return loop_.forward(clips.to(loop_.device)).to(at::kCPU, at::kFloat);
    };
    const RestoreForward& forward = fits ? loop_.forward : tile_wise;
    const at::Tensor input = channels.size() > 1 ? at::cat(channels, 1) : channels[0];
    const FrameWindow all = task.windows[window.unit.window];
    const at::Tensor restored = loop_.tiles.between > 0
                                    ? InterpolateWindow(forward, loop_.tiles, all, InputFrames(task), input)
                                    : RestoreWindow(forward, loop_.tiles, input);
    const FrameWindow own = OwnFrames(task.windows, window.unit.window);
    const int64_t before = own.length > 0 ? own.begin - all.begin : all.length;
    ComputedWindow out{window.unit, {}, {}, c10::Event(loop_.device.type())};
    out.values.window = window.unit.window;
    out.finite = ToHost(restored.isfinite().all());
    if (before > 0) out.values.before = ToHost(restored.narrow(0, 0, before));
    if (own.length > 0) {
      const at::Tensor part = restored.narrow(0, before, own.length);
      out.values.own = ToHost(task.bytes ? ToPictures(part) : part.clamp(0, 1));
      if (own.end() < all.end()) {
        out.values.after = ToHost(restored.narrow(0, own.end() - all.begin, all.end() - own.end()));
      }
    }
    if (loop_.device.is_cuda()) {
      out.copied.record(c10::impl::VirtualGuardImpl(loop_.device.type()).getStream(loop_.device));
    }
    return out;
  }

  // Queued, not awaited.
  static at::Tensor ToHost(const at::Tensor& x) {
    if (!x.is_cuda()) return x;
    const at::Tensor dense = x.contiguous();
    return at::empty(dense.sizes(), dense.options().device(at::kCPU).pinned_memory(true))
        .copy_(dense, /*non_blocking=*/true);
  }

  Status StoreAll() {
    while (std::optional<ComputedWindow> window = computed_.Pop()) {
      if (loop_.device.is_cuda()) window->copied.synchronize();
      if (!window->finite.item<bool>()) {
        return Status(Code::kEnvironment, "the model gave values that are not finite", "try --precision fp32");
      }
      LOCKSTEP_RETURN_IF_ERROR(
          StoreWindow(files_, loop_.tasks[window->unit.task], window->values, loop_.store_threads));
    }
    return Status::Ok();
  }

  Status AssembleAll() {
    AssembleOptions options = loop_.assembling;
    options.stop = outcome_.flag();
    for (const size_t task : loop_.assembled) {
      LOCKSTEP_RETURN_IF_ERROR(AssembleClip(files_, loop_.tasks[task], options, &result_.written, &result_.notes));
    }
    return Status::Ok();
  }

  const WorkFiles& files_;
  const MediaOptions& asked_;
  const RestoreLoop& loop_;
  Outcome outcome_;
  Handover<ReadWindow> read_{1};
  Handover<ComputedWindow> computed_{1};
  std::atomic<bool> assembled_{false};
  RestoreOutcome result_;
};

}  // namespace

Result<RestoreOutcome> RunRestoreLoop(const WorkFiles& files, const MediaOptions& asked, const RestoreLoop& loop,
                                      const std::atomic<bool>* stop) {
  const at::NoGradGuard no_grad;
  return Loop(files, asked, loop, stop).Run();
}

}  // namespace lockstep::media
