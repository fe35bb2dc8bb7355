#include "engine/captured_steps.h"

#include <fmt/format.h>

namespace lockstep::engine {
namespace {

const char* Name(CapturedSteps::Part part) {
  constexpr const char* kParts[] = {"pass", "last pass with the exchange", "update", "update with EMA"};
  return kParts[static_cast<int>(part)];
}

}  // namespace

CapturedSteps::CapturedSteps(at::Device device, std::function<void(const std::string&)> gave_up)
    : gave_up_(std::move(gave_up)), graphs_(std::make_unique<GraphPool>(device)) {}

bool CapturedSteps::Fits(const TensorBatch& batch) const {
  if (inputs_.fields.empty()) return true;
  if (inputs_.fields.size() != batch.fields.size()) return false;
  for (const auto& [name, tensor] : inputs_.fields) {
    const auto it = batch.fields.find(name);
    if (it == batch.fields.end() || it->second.sizes() != tensor.sizes() ||
        it->second.scalar_type() != tensor.scalar_type()) {
      return false;
    }
  }
  return true;
}

CapturedSteps::Captured* CapturedSteps::Capture(const Key& key, const std::function<double()>& work) {
  const auto it = parts_.find(key);
  if (it != parts_.end()) return &it->second;
  Captured captured;
  Result<std::unique_ptr<CudaGraph>> made = graphs_->Capture([&] { captured.weight = work(); });
  if (!made.ok()) {
    const std::string why =
        fmt::format("{}{}: {}", key.discriminator ? "discriminator's " : "", Name(key.part), made.status().message());
    Stop();
    gave_up_(why);
    return nullptr;
  }
  captured.graph = std::move(*made);
  return &parts_.emplace(key, std::move(captured)).first->second;
}

std::optional<double> CapturedSteps::ReplayPass(const Key& key, const TensorBatch& batch,
                                                const std::function<double(const TensorBatch& inputs)>& work) {
  if (inputs_.fields.empty()) {
    inputs_ = batch;
    for (auto& [name, tensor] : inputs_.fields) tensor = tensor.clone();
  }
  Captured* captured = Capture(key, [&] { return work(inputs_); });
  if (captured == nullptr) return std::nullopt;
  // The discriminator's pass may have left a graph for this one that remembers its inputs: they are the same, and a
  // plain copy would tell autograd that they are not.
  for (auto& [name, tensor] : inputs_.fields) tensor.variable_data().copy_(batch[name]);
  captured->graph->Replay();
  return captured->weight;
}

bool CapturedSteps::ReplayUpdate(const Key& key, const std::function<void()>& work) {
  Captured* captured = Capture(key, [&] {
    work();
    return 0.0;
  });
  if (captured == nullptr) return false;
  captured->graph->Replay();
  return true;
}

}  // namespace lockstep::engine
