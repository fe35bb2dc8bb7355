#include "engine/offload.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/device_norm.h"
#include "engine/host_memory.h"

namespace lockstep::engine {
namespace {

constexpr size_t kAhead = 3;  // chunks whose gradients are on their way down

// A chunk's staging memory, pinned where the device needs it.
struct Staging {
  at::Tensor gradients, values;
  std::optional<c10::Event> down, up;
};

class OffloadUpdater : public UpdaterOnHost {
 public:
  OffloadUpdater(const UpdaterConfig& config, FlatParameters* flat, ParallelStrategy* strategy)
      : UpdaterOnHost(config, flat->owned(), strategy), flat_(flat), device_(flat->device()) {
    on_device_.range = {DeviceBegin(), own_.numel()};
    const bool pinned = !device_.is_cpu();
    const int64_t n = std::min(kHostChunk, own_.numel());
    for (size_t i = 0; i < kAhead + 1; ++i) {
      Staging one;
      one.gradients = HostMemory(n, {.type = Travels(), .pinned = pinned});
      if (!working_on_host()) one.values = HostMemory(n, {.type = flat->options().parameters, .pinned = pinned});
      if (pinned) {
        one.down.emplace(device_.type());
        one.up.emplace(device_.type());
      }
      staging_.push_back(std::move(one));
    }
    worker_ = std::thread([this] { Work(); });
  }
  ~OffloadUpdater() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    worker_.join();
    for (const Staging& one : staging_) {  // copies may still read it
      if (one.up) one.up->synchronize();
    }
  }

  void Sync() override {
    WaitFor(0);
    resident_ = dirty_ = false;
  }
  bool captured() const override { return false; }
  std::vector<at::Tensor> OwnMemory() const override {
    std::vector<at::Tensor> all = {on_device_.values, on_device_.m, on_device_.v};
    for (const Staging& one : staging_) all.insert(all.end(), {one.gradients, one.values});
    return all;
  }
  Status Apply(bool ema, const at::Tensor& outcome) override;
  void Finish() override;
  void WaitFor(int64_t begin) override;

 private:
  void Work();
  void Run();
  void Down(size_t chunk);
  FlatRange ChunkRange(size_t chunk) const;
  void StepOnDevice();
  // Where the part begins that is updated on the device: what the forward pass needs first.
  int64_t DeviceBegin() const;
  // bf16 gradients are never widened on the way.
  at::ScalarType Travels() const {
    return own_.gradients.scalar_type() == at::kFloat ? config_.travels : own_.gradients.scalar_type();
  }
  // Parameters in host memory are written there at once, and go up with their units (gathered.h).
  bool working_on_host() const { return flat_->options().host_parameters; }
  size_t chunks() const { return static_cast<size_t>((on_device_.range.begin + kHostChunk - 1) / kHostChunk); }

  FlatParameters* flat_;
  at::Device device_;
  std::vector<Staging> staging_;
  std::optional<c10::Stream> stream_;  // of the passes, at Apply
  // The part that is updated on the device. Host memory holds it too, current once it was copied down.
  Optimizer::OnDevice on_device_;
  bool resident_ = false;  // it is there
  bool dirty_ = false;     // and newer than on the host

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread worker_;
  bool ends_ = false, busy_ = false, ema_due_ = false;
  double factor_ = 1;
  int64_t uploaded_ = 0;               // everything from here on is on its way up
  std::optional<c10::Event> last_up_;  // behind it
  std::vector<bool> active_;
  std::exception_ptr error_;
};

// From the end of the buffer: parameters lie in the order of backward.
FlatRange OffloadUpdater::ChunkRange(size_t chunk) const {
  const int64_t begin = static_cast<int64_t>(chunks() - 1 - chunk) * kHostChunk;
  return {begin, std::min(begin + kHostChunk, on_device_.range.begin)};
}

int64_t OffloadUpdater::DeviceBegin() const {
  const bool possible = config_.host_share < 1 && config_.optimizer.kind != OptimizerConfig::Kind::kSgd &&
                        !working_on_host() && !ema_.on() && device::Usable(device_);
  if (!possible) return own_.numel();
  const auto chunks = static_cast<int64_t>(config_.host_share * static_cast<double>(own_.numel()) / kHostChunk);
  return std::min(chunks * kHostChunk, own_.numel());
}

// On the stream of the passes: the next forward pass reads what this writes.
void OffloadUpdater::StepOnDevice() {
  const at::NoGradGuard no_grad;
  const auto [begin, end] = on_device_.range;
  if (begin >= end) return;
  const auto part = [&](const at::Tensor& x) { return x.narrow(0, begin, end - begin); };
  if (!resident_) {
    on_device_.values = part(own_.values).to(device_);
    on_device_.m = part(optimizer_.slots()[0].own).to(device_);
    on_device_.v = part(optimizer_.slots()[1].own).to(device_);
    resident_ = true;
  }
  optimizer_.StepOnDevice(on_device_, lr_factor_, factor_, active_, part(own_.gradients));
  part(flat_->OwnedWorking()).copy_(on_device_.values);
  dirty_ = true;
}

void OffloadUpdater::Finish() {
  WaitFor(0);
  if (!std::exchange(dirty_, false)) return;
  const at::NoGradGuard no_grad;
  const auto [begin, end] = on_device_.range;
  const auto part = [&, b = begin, n = end - begin](const at::Tensor& x) { return x.narrow(0, b, n); };
  part(own_.values).copy_(on_device_.values);
  part(optimizer_.slots()[0].own).copy_(on_device_.m);
  part(optimizer_.slots()[1].own).copy_(on_device_.v);
}

Status OffloadUpdater::Apply(bool ema, const at::Tensor& outcome) {
  WaitFor(0);
  double norm = 0;
  if (device_.is_cpu()) {
    SquareSum squares = GradientSquares(own_.gradients.to(at::kFloat));
    LOCKSTEP_RETURN_IF_ERROR(strategy_->CombineNorm(&squares));
    norm = squares.Norm();
  } else {
    const Result<at::Tensor> total = GradientNormOnDevice(own_, strategy_);
    if (!total.ok()) return total.status();
    norm = total->item<double>();
  }
  if (const std::optional<double> factor = Decide(norm, outcome)) {
    if (!device_.is_cpu()) stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
    {
      const std::lock_guard lock(mutex_);
      active_ = strategy_->used();
      factor_ = *factor;
      ema_due_ = ema;
      uploaded_ = on_device_.range.begin;
    }
    StepOnDevice();  // before the step counts move
    {
      const std::lock_guard lock(mutex_);
      busy_ = true;
    }
    changed_.notify_all();
    flat_->OwnedValuesAreWritten();
  }
  return Status::Ok();
}

void OffloadUpdater::WaitFor(int64_t begin) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_ || (begin > 0 && uploaded_ <= begin); });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  if (last_up_) last_up_->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

void OffloadUpdater::Work() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return busy_ || ends_; });
      if (ends_ && !busy_) return;
    }
    std::exception_ptr error;
    try {
      Run();
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      error_ = error;
      busy_ = false;
    }
    changed_.notify_all();
  }
}

void OffloadUpdater::Down(size_t chunk) {
  Staging& staging = staging_[chunk % staging_.size()];
  const FlatRange range = ChunkRange(chunk);
  const at::Tensor chunk_gradients = own_.gradients.narrow(0, range.begin, range.size()).to(Travels());
  staging.gradients.narrow(0, 0, range.size()).copy_(chunk_gradients, /*non_blocking=*/true);
  if (staging.down) staging.down->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

void OffloadUpdater::Run() {
  const at::NoGradGuard no_grad;
  std::optional<c10::StreamGuard> down_guard;
  std::optional<c10::Stream> up;
  if (!device_.is_cpu()) {
    const c10::impl::VirtualGuardImpl guard(device_.type());
    down_guard.emplace(guard.getStreamFromGlobalPool(device_));
    up = guard.getStreamFromGlobalPool(device_);
    c10::Event ready(device_.type());  // gradients are complete, and no pass reads the parameters any more
    ready.record(*stream_);
    ready.block(down_guard->current_stream());
    ready.block(*up);
  }
  const at::Tensor working = flat_->OwnedWorking();
  const size_t count = chunks();
  for (size_t chunk = 0; chunk < std::min(kAhead, count); ++chunk) Down(chunk);
  for (size_t chunk = 0; chunk < count; ++chunk) {
    Staging& staging = staging_[chunk % staging_.size()];
    const FlatRange range = ChunkRange(chunk);
    if (staging.down) staging.down->synchronize();
    // The memory of the next chunk to come down was last used for parameters that must have gone up.
    const at::Tensor to = working.narrow(0, range.begin, range.size());
    optimizer_.StepChunk(range, lr_factor_, factor_, active_, staging.gradients,
                         working_on_host() ? to : staging.values);
    {
      std::optional<c10::StreamGuard> up_guard;
      if (up) up_guard.emplace(*up);
      if (!working_on_host()) to.copy_(staging.values.narrow(0, 0, range.size()), /*non_blocking=*/true);
      std::optional<c10::Event> done;
      if (up) {
        staging.up->record(*up);
        done.emplace(device_.type());
        done->record(*up);
      }
      const std::lock_guard lock(mutex_);
      last_up_ = std::move(done);
      uploaded_ = range.begin;
    }
    changed_.notify_all();
    if (const size_t next = chunk + kAhead; next < count) {
      Staging& later = staging_[next % staging_.size()];
      if (next >= staging_.size() && later.up) later.up->synchronize();
      Down(next);
    }
  }
  optimizer_.EndChunks(active_);
  if (ema_due_) ema_.Update();
}

}  // namespace

std::unique_ptr<Updater> MakeOffloadUpdater(const UpdaterConfig& config, FlatParameters* flat,
                                            ParallelStrategy* strategy) {
  return std::make_unique<OffloadUpdater>(config, flat, strategy);
}

}  // namespace lockstep::engine
