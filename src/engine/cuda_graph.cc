#include "engine/cuda_graph.h"

#include <fmt/format.h>

#ifdef LOCKSTEP_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#endif

#include "base/text.h"

namespace lockstep::engine {

#ifdef LOCKSTEP_CUDA

struct CudaGraph::Graph {
  at::cuda::CUDAGraph graph;
};
struct GraphPool::Memory {
  at::cuda::MempoolId_t pool = at::cuda::graph_pool_handle();
};

CudaGraph::CudaGraph(std::unique_ptr<Graph> graph) : graph_(std::move(graph)) {}
CudaGraph::~CudaGraph() = default;
void CudaGraph::Replay() { graph_->graph.replay(); }

GraphPool::GraphPool(at::Device device) : device_(device), memory_(std::make_unique<Memory>()) {}
GraphPool::~GraphPool() = default;
void GraphPool::Renew() { memory_ = std::make_unique<Memory>(); }

Result<std::unique_ptr<CudaGraph>> GraphPool::Capture(const std::function<void()>& work) {
  const c10::cuda::CUDAGuard guard(device_);
  // What eager steps held would lie beside the graph's own memory.
  c10::cuda::CUDACachingAllocator::emptyCache();
  std::unique_ptr<CudaGraph> made(new CudaGraph(std::make_unique<CudaGraph::Graph>()));
  std::string why;
  const auto first_line = [](const char* text) { return Split(text, '\n').front(); };
  try {
    // Relaxed: threads that load data may allocate pinned memory meanwhile.
    made->graph_->graph.capture_begin(memory_->pool, cudaStreamCaptureModeRelaxed);
    try {
      work();
    } catch (const c10::Error& error) {
      why = first_line(error.what_without_backtrace());
    } catch (const std::exception& error) {
      why = first_line(error.what());
    }
    made->graph_->graph.capture_end();
  } catch (const c10::Error& error) {
    if (why.empty()) why = first_line(error.what_without_backtrace());
    // The capture may have been broken off before torch's allocator left the graph's memory.
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device_.index(), memory_->pool);
    } catch (const c10::Error&) {  // it had
    }
  }
  if (why.empty()) return made;
  cudaGetLastError();
  return Status(Code::kUsage, why);
}

#else

struct CudaGraph::Graph {};
struct GraphPool::Memory {};
CudaGraph::CudaGraph(std::unique_ptr<Graph> graph) : graph_(std::move(graph)) {}
CudaGraph::~CudaGraph() = default;
void CudaGraph::Replay() {}
GraphPool::GraphPool(at::Device device) : device_(device) {}
GraphPool::~GraphPool() = default;
void GraphPool::Renew() {}
Result<std::unique_ptr<CudaGraph>> GraphPool::Capture(const std::function<void()>& /*work*/) {
  return Status(Code::kUsage, fmt::format("graphs need CUDA, the device is {}", device_.str()));
}

#endif

}  // namespace lockstep::engine
