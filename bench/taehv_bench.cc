// TAEHV alone, without data or trainer: a joint training step (encode, decode, MSE, backward, clip, fused AdamW; on a
// GPU recorded as one CUDA graph) or reconstruction without gradients. One JSON line.
//   taehv_bench step DEVICE PRECISION EXECUTION CLIPS FRAMES HEIGHT WIDTH [REPETITIONS] [profile]
//   taehv_bench reconstruct ...same; FRAMES 0 < n: whole clips; with [piece=N] in pieces of N frames
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "engine/cuda_graph.h"
#include "models/taehv.h"

#ifdef LOCKSTEP_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#endif

using namespace lockstep;  // NOLINT(google-build-using-namespace): a program of one file

namespace {

void Wait(const at::Device& device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

double PeakGib(const at::Device& device) {
#ifdef LOCKSTEP_CUDA
  if (device.is_cuda()) {
    auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    return double(stats.allocated_bytes[0].peak) / (1 << 30);
  }
#endif
  return 0 * double(device.index());
}

void Profile(const at::Device& device, const std::function<void()>& work, int times) {
  namespace profiler = torch::autograd::profiler;
  profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  std::set<profiler::ActivityType> activities{device.is_cuda() ? profiler::ActivityType::CUDA
                                                               : profiler::ActivityType::CPU};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  for (int i = 0; i < times; ++i) work();
  Wait(device);
  auto result = profiler::disableProfiler();
  std::map<std::string, std::pair<int, double>> kernels;
  double total = 0;
  for (const auto& event : result->events()) {
    if (event.deviceType() != device.type()) continue;
    auto& [count, us] = kernels[event.name()];
    ++count;
    us += double(event.durationNs()) / 1e3;
    total += double(event.durationNs()) / 1e3;
  }
  std::vector<std::pair<std::string, std::pair<int, double>>> rows(kernels.begin(), kernels.end());
  std::sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.second.second > b.second.second; });
  if (device.is_cuda()) fmt::print("device busy {:.2f} ms per step\n", total / times / 1e3);
  for (size_t i = 0; i < std::min<size_t>(rows.size(), 45); ++i) {
    const auto& [name, sum] = rows[i];
    fmt::print("{:5.1f}% {:8.0f} us x{:5.0f}  {}\n", 100 * sum.second / total, sum.second / times,
               double(sum.first) / times, name.substr(0, 150));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 9) {
    fmt::print(stderr, "taehv_bench step|reconstruct DEVICE PRECISION EXECUTION CLIPS FRAMES HEIGHT WIDTH [...]\n");
    return 2;
  }
  std::vector<std::string> args(argv + 1, argv + argc);
  bool step = args[0] == "step", profile = args.back() == "profile";
  at::Device device(args[1]);
  at::ScalarType type = args[2] == "bf16" ? at::kBFloat16 : args[2] == "fp16" ? at::kHalf : at::kFloat;
  int repetitions = args.size() > 8 && args[8][0] >= '0' && args[8][0] <= '9' ? std::stoi(args[8]) : 20;
  int64_t piece = 0;
  for (const std::string& arg : args) {
    if (arg.starts_with("piece=")) piece = std::stoll(arg.substr(6));
  }
#ifdef LOCKSTEP_CUDA
  if (device.is_cuda()) c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(false, 0));
#endif
  int threads = 2;
  for (const std::string& arg : args) {
    if (arg.starts_with("threads=")) threads = std::stoi(arg.substr(8));
  }
  if (device.is_cpu()) at::set_num_threads(threads);
  at::globalContext().setBenchmarkCuDNN(false);
  at::globalContext().setDeterministicCuDNN(true);
  models::Taehv model(*models::FindTaehv("taehv"), 7);
  model.StartNearIdentity();
  model.SetExecution(args[3] == "fast" ? models::Execution::kFast : models::Execution::kReference);
  model.to(device);
  if (!step) model.to(type);
  std::vector<at::Tensor> parameters = model.parameters();
  at::Tensor frames =
      at::rand({std::stoll(args[4]), std::stoll(args[5]), 3, std::stoll(args[6]), std::stoll(args[7])}).to(device);

  std::vector<at::Tensor> first, second, steps;
  for (const at::Tensor& p : parameters) {
    first.push_back(at::zeros_like(p));
    second.push_back(at::zeros_like(p));
    steps.push_back(at::zeros({}, p.options().dtype(at::kFloat).requires_grad(false)));
  }
  at::Tensor rate = at::full({}, 1e-4, frames.options());
  std::function<void()> work = [&] {
    if (!step) {
      torch::NoGradGuard no_grad;
      at::Tensor x = frames.to(type);
      piece > 0 ? model.DecodeSequential(model.EncodeSequential(x, piece), piece / model.config().TimeDown())
                : model.Decode(model.Encode(x));
      return;
    }
    at::Tensor loss;
    {
      at::autocast::set_autocast_enabled(device.type(), type != at::kFloat);
      if (type != at::kFloat) at::autocast::set_autocast_dtype(device.type(), type);
      at::Tensor decoded = model.Decode(model.Encode(frames)).to(at::kFloat);
      loss = at::mse_loss(decoded, model.Target(frames));
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(device.type(), false);
    }
    loss.backward();
    torch::NoGradGuard no_grad;
    std::vector<at::Tensor> gradients;
    for (at::Tensor& p : parameters) gradients.push_back(p.grad());
    at::Tensor norm = at::stack(at::_foreach_norm(gradients)).norm();
    at::_foreach_mul_(gradients, (1.0 / (norm + 1e-6)).clamp_max(1.0));
    at::_foreach_add_(steps, 1.0);
    at::_fused_adamw_(parameters, gradients, first, second, {}, steps, rate, 0.9, 0.95, 0.01, 1e-8, false, false);
    for (at::Tensor& p : parameters) p.mutable_grad() = at::Tensor();
  };
  for (int i = 0; i < 3; ++i) work();
  Wait(device);
  std::unique_ptr<engine::CudaGraph> graph;
  engine::GraphPool capture(device);
  if (device.is_cuda() && step) {
    auto made = capture.Capture(work);
    if (!made.ok()) {
      fmt::print(stderr, "{}\n", made.status().ToString());
      return 1;
    }
    graph = std::move(*made);
    work = [&] { graph->Replay(); };
    for (int i = 0; i < 3; ++i) work();
    Wait(device);
  }
  std::vector<double> ms, cpu;
  for (int i = 0; i < repetitions; ++i) {
    auto start = std::chrono::steady_clock::now();
    std::clock_t used = std::clock();
    work();
    Wait(device);
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    cpu.push_back(1e3 * double(std::clock() - used) / CLOCKS_PER_SEC);
  }
  std::sort(ms.begin(), ms.end());
  std::sort(cpu.begin(), cpu.end());
  double median = ms[ms.size() / 2];
  fmt::print(
      "{{\"what\": \"{}\", \"execution\": \"{}\", \"precision\": \"{}\", \"size\": \"{}x{}x{}x{}\", \"ms\": {:.2f}, "
      "\"fastest_ms\": {:.2f}, \"cpu_ms\": {:.2f}, \"frames_per_s\": {:.1f}, \"peak_gib\": {:.2f}}}\n",
      args[0], args[3], args[2], args[4], args[5], args[6], args[7], median, ms[0], cpu[cpu.size() / 2],
      1e3 * double(frames.size(0) * frames.size(1)) / median, PeakGib(device));
  if (profile) Profile(device, work, 3);
  return 0;
}
