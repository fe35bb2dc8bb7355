#include "engine/readback.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::engine {

void Readback::Push(const std::vector<at::Tensor>& numbers) {
  const at::Tensor all = at::cat(numbers);
  if (spare_.empty()) {
    spare_.push_back(at::empty(all.sizes(), all.options().device(at::kCPU).pinned_memory(!device_.is_cpu())));
  }
  Waiting waiting{std::move(spare_.back()), c10::Event(device_.type())};
  spare_.pop_back();
  waiting.host.copy_(all, /*non_blocking=*/true);
  if (!device_.is_cpu()) waiting.done.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  waiting_.push_back(std::move(waiting));
}

std::vector<double> Readback::Take() {
  Waiting oldest = std::move(waiting_.front());
  waiting_.pop_front();
  if (!device_.is_cpu()) oldest.done.synchronize();
  const auto* first = static_cast<const double*>(oldest.host.const_data_ptr());
  std::vector<double> numbers(first, first + oldest.host.numel());
  spare_.push_back(std::move(oldest.host));
  return numbers;
}

}  // namespace lockstep::engine
