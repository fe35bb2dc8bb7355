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

// nullopt: there are too many already.
std::optional<size_t> CapturedSteps::ShapeOf(const TensorBatch& batch) {
  Shape fresh;
  for (const auto& [name, tensor] : batch.fields) fresh.fields[name] = {tensor.sizes().vec(), tensor.scalar_type()};
  for (size_t i = 0; i < shapes_.size(); ++i) {
    if (shapes_[i].fields == fresh.fields) return i;
  }
  if (shapes_.size() >= kMostShapes) return std::nullopt;
  shapes_.push_back(std::move(fresh));
  return shapes_.size() - 1;
}

bool CapturedSteps::Takes(const TensorBatch& batch, uint64_t step) {
  const std::optional<size_t> number = ShapeOf(batch);
  if (!number) return false;
  Shape& shape = shapes_[*number];
  if (shape.last != step) ++shape.steps;
  shape.last = step;
  return shape.steps > kEagerSteps;
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
  const std::optional<size_t> shape = ShapeOf(batch);
  if (!shape) return std::nullopt;
  TensorBatch& inputs = shapes_[*shape].inputs;
  if (inputs.fields.empty()) {
    inputs = batch;
    for (auto& [name, tensor] : inputs.fields) tensor = tensor.clone();
    has_passes_ = true;
  }
  Captured* captured = Capture({key.part, key.discriminator, *shape}, [&] { return work(inputs); });
  if (captured == nullptr) return std::nullopt;
  // The discriminator's pass may have left a graph for this one that remembers its inputs: they are the same, and a
  // plain copy would tell autograd that they are not.
  for (auto& [name, tensor] : inputs.fields) tensor.variable_data().copy_(batch[name]);
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
