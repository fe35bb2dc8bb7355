#include "engine/convolution.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <dlfcn.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <exception>
#include <tuple>
#include <vector>

#include "engine/parallel.h"

namespace lockstep::engine {
namespace {

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Of the thread that calls it only. Asked for by name: LibTorch brings its own OpenMP runtime.
using SetOpenMpThreads = void (*)(int);
SetOpenMpThreads FindOpenMp() {
  static const auto found = reinterpret_cast<SetOpenMpThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  return found;
}

class OneThread {
 public:
  explicit OneThread(int after) : after_(after) {
    (void)at::get_num_threads();  // LibTorch sets the number of a new thread when it is first asked
    FindOpenMp()(1);
  }
  ~OneThread() { FindOpenMp()(after_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int after_;
};

struct Convolution {
  at::Tensor grad_output, input, weight;
  at::OptionalIntArrayRef bias;
  at::IntArrayRef stride, padding, dilation;
  bool transposed;
  at::IntArrayRef output_padding;
  int64_t groups;

  Gradients Backward(std::array<bool, 3> wanted) const { return Backward(grad_output, input, wanted); }
  Gradients Backward(const at::Tensor& output_part, const at::Tensor& input_part, std::array<bool, 3> wanted) const {
    return at::compositeexplicitautograd::convolution_backward(output_part, input_part, weight, bias, stride, padding,
                                                               dilation, transposed, output_padding, groups, wanted);
  }
};

// Whole samples for each thread, about as many for every one of them.
bool Divides(int64_t samples, int64_t threads) {
  const int64_t most = (samples + threads - 1) / threads;
  return most * threads * 4 <= samples * 5;
}

// In a wider type, so that a sum of 16-bit parts is rounded once.
at::Tensor Sum(const std::vector<at::Tensor>& parts) {
  if (!parts.front().defined()) return {};
  const at::ScalarType type = parts.front().scalar_type();
  at::Tensor sum = type == at::kDouble ? parts.front() : parts.front().to(at::kFloat);
  for (size_t i = 1; i < parts.size(); ++i) sum.add_(parts[i]);
  return sum.to(type);
}

Gradients Backward(const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight,
                   at::OptionalIntArrayRef bias, at::IntArrayRef stride, at::IntArrayRef padding,
                   at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups,
                   std::array<bool, 3> wanted) {
  const Convolution convolution{grad_output, input,    weight,     bias,           stride,
                                padding,     dilation, transposed, output_padding, groups};
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  const bool batched = input.dim() == weight.dim() && grad_output.dim() == weight.dim();
  if (!wanted[1] || threads == 1 || !batched || transposed || !Divides(input.size(0), threads)) {
    return convolution.Backward(wanted);
  }
  at::Tensor grad_input;
  if (wanted[0]) grad_input = std::get<0>(convolution.Backward({true, false, false}));
  std::vector<at::Tensor> weights(static_cast<size_t>(threads)), biases(static_cast<size_t>(threads));
  std::vector<std::exception_ptr> failures(static_cast<size_t>(threads));
  const int64_t each = (input.size(0) + threads - 1) / threads;
  ParallelFor(0, threads, 1, [&](int64_t begin, int64_t end) {
    const OneThread alone(static_cast<int>(threads));
    for (int64_t part = begin; part < end; ++part) {
      const auto at = static_cast<size_t>(part);
      const int64_t first = std::min(part * each, input.size(0));
      const int64_t count = std::min(each, input.size(0) - first);
      if (count == 0) continue;
      try {
        std::tie(std::ignore, weights[at], biases[at]) = convolution.Backward(
            grad_output.narrow(0, first, count), input.narrow(0, first, count), {false, true, wanted[2]});
      } catch (...) {
        failures[at] = std::current_exception();
      }
    }
  });
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  std::erase_if(weights, [](const at::Tensor& t) { return !t.defined(); });
  std::erase_if(biases, [](const at::Tensor& t) { return !t.defined(); });
  return {grad_input, Sum(weights), wanted[2] ? Sum(biases) : at::Tensor()};
}

}  // namespace

void UseSleepingConvolutions() {
  if (FindOpenMp() == nullptr) return;  // LibTorch without OpenMP has no such threads
  static torch::Library library = [] {
    torch::Library kernels(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    kernels.impl("convolution_backward", TORCH_FN(Backward));
    return kernels;
  }();
}

}  // namespace lockstep::engine
