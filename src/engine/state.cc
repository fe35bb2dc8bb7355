#include "engine/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/config_tree.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/state_tensors.h"
#include "record/checkpoint_folder.h"

namespace lockstep::engine {
namespace {

// Under `prefix`: a model with its buffers, its optimizer's state, its average.
void AddLearner(const std::string& prefix, const torch::nn::Module& module, Learner& learner, int world,
                std::vector<StateTensor>* tensors) {
  const FlatParameters& flat = learner.flat();
  std::set<std::string> added;
  AddFlat(prefix + "model/", flat, flat.owned().values, world, tensors);
  AddFrozen(prefix + "model/", flat, world, tensors);
  for (const FlatParameter& parameter : flat.parameters()) added.insert(parameter.name);
  for (const FrozenParameter& parameter : flat.frozen().parameters()) added.insert(parameter.name);
  const auto add = [&](const std::string& name, const at::Tensor& tensor, bool buffer) {
    StateTensor one{prefix + "model/" + name, tensor.sizes().vec(), tensor.detach(), {}};
    one.of_main = one.moving = buffer;  // ranks may have buffers of their own (running statistics)
    tensors->push_back(std::move(one));
  };
  for (const auto& item : module.named_parameters()) {
    if (!added.contains(item.key())) add(item.key(), item.value(), false);
  }
  for (const auto& item : module.named_buffers()) add(item.key(), item.value(), true);
  for (const Optimizer::Slot& slot : learner.optimizer().slots()) {
    AddFlat(prefix + "optimizer/" + slot.name + ".", flat, slot.own, world, tensors);
  }
  if (learner.ema().on()) AddFlat(prefix + "ema/", flat, learner.ema().values(), world, tensors);
}

std::vector<StateTensor> Tensors(const TrainingState& state, const RecipeState& recipe, int world) {
  std::vector<StateTensor> tensors;
  AddLearner("", state.recipe->model(), *state.learner, world, &tensors);
  if (state.discriminator != nullptr) {
    const Discriminator discriminator = *state.recipe->discriminator();
    AddLearner(discriminator.name + "/", *discriminator.module, *state.discriminator, world, &tensors);
  }
  for (const auto& [name, tensor] : recipe.tensors) {
    StateTensor one{"recipe/" + name, tensor.sizes().vec(), tensor.detach(), {}};
    one.of_main = true;
    tensors.push_back(std::move(one));
  }
  return tensors;
}

// Counters of a learner.
nlohmann::json LearnerJson(Learner& learner) {
  nlohmann::json json;
  nlohmann::json steps = nlohmann::json::object();
  for (size_t i = 0; i < learner.flat().parameters().size(); ++i) {
    steps[learner.flat().parameters()[i].name] = learner.optimizer().steps()[i];
  }
  json["optimizer_steps"] = std::move(steps);
  json["ema_updates"] = learner.ema().updates();
  if (const LossScaler* scaler = learner.scaler()) {
    json["scaler"] = {{"scale", scaler->scale()}, {"good_steps", scaler->good_steps()}};
  }
  return json;
}

void RestoreLearner(const nlohmann::json& json, Learner* learner) {
  const nlohmann::json steps = json.value("optimizer_steps", nlohmann::json::object());
  for (size_t i = 0; i < learner->flat().parameters().size(); ++i) {
    learner->optimizer().steps()[i] = GetInt(steps, learner->flat().parameters()[i].name);
  }
  learner->ema().set_updates(static_cast<uint64_t>(GetInt(json, "ema_updates")));
  if (LossScaler* scaler = learner->scaler(); scaler != nullptr && json.contains("scaler")) {
    scaler->Restore(GetNumber(json["scaler"], "scale", scaler->scale()),
                    static_cast<uint64_t>(GetInt(json["scaler"], "good_steps")));
  }
  learner->Sync();
}

nlohmann::json DiscriminatorState(const nlohmann::json& json) {
  const char* old = "companion";  // before version 0.2
  return json.value(json.contains("discriminator") ? "discriminator" : old, nlohmann::json::object());
}

nlohmann::json PositionJson(const Position& p) {
  nlohmann::json json = {
      {"step", p.step},
      {"sampler", {{"seed", p.sampler.seed}, {"epoch", p.sampler.epoch}, {"position", p.sampler.position}}},
      {"samples", p.samples},
      {"bad_steps", p.bad_steps},
      {"best_metric", p.best_metric},
      {"best_step", p.best_step},
      {"stale_validations", p.stale_validations},
      {"seed", p.seed},
      {"data", p.data}};
  json["best"] = p.best ? nlohmann::json(*p.best) : nlohmann::json(nullptr);
  return json;
}

Position ReadPosition(const nlohmann::json& json) {
  const auto number = [](const nlohmann::json& object, const char* key) {
    const auto it = object.find(key);
    return it != object.end() && it->is_number_unsigned() ? it->get<uint64_t>() : 0;
  };
  Position p;
  p.step = number(json, "step");
  const nlohmann::json sampler = json.value("sampler", nlohmann::json::object());
  p.sampler = {number(sampler, "seed"), number(sampler, "epoch"), number(sampler, "position")};
  p.samples = number(json, "samples");
  p.bad_steps = number(json, "bad_steps");
  p.best_step = number(json, "best_step");
  p.stale_validations = number(json, "stale_validations");
  p.seed = number(json, "seed");
  p.data = GetString(json, "data");
  p.best_metric = GetString(json, "best_metric");
  if (json.contains("best") && json["best"].is_number()) p.best = json["best"].get<double>();
  return p;
}

nlohmann::json SmallState(const TrainingState& state, const RecipeState& recipe) {
  nlohmann::json json = LearnerJson(*state.learner);
  json["position"] = PositionJson(state.position);
  json["identity"] = state.recipe->Identity();
  json["precision"] = PrecisionName(state.precision);
  json["recipe"] = recipe.values;
  if (state.discriminator != nullptr) json["discriminator"] = LearnerJson(*state.discriminator);
  return json;
}

// "name is "b" here, "a" there": of a variant with another name the name alone, else everything that differs.
std::string Differences(const nlohmann::json& here, const nlohmann::json& there) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : here.items()) {
    const nlohmann::json other = there.value(key, nlohmann::json());
    if (value != other) parts.push_back(fmt::format("{} is {} here, {} there", key, value.dump(), other.dump()));
    if (key == "name" && value != other) return parts.back();
  }
  for (const auto& [key, value] : there.items()) {
    if (!here.contains(key)) parts.push_back(fmt::format("{} is not here, {} there", key, value.dump()));
  }
  return Join(parts, "; ");
}

Status CheckRecipe(const SharedCheckpoint& checkpoint, Recipe& recipe) {
  const record::CheckpointManifest& manifest = checkpoint.manifest();
  if (manifest.recipe == recipe.name()) return Status::Ok();
  return Status(Code::kUsage,
                fmt::format("{}: a checkpoint of the recipe '{}', expected '{}'", checkpoint.path(), manifest.recipe,
                            recipe.name()),
                "use another run name, or --resume none to start anew beside it");
}

Status CheckIdentity(const SharedCheckpoint& checkpoint, Recipe& recipe) {
  LOCKSTEP_RETURN_IF_ERROR(CheckRecipe(checkpoint, recipe));
  const record::CheckpointManifest& manifest = checkpoint.manifest();
  const nlohmann::json found = manifest.state.value("identity", nlohmann::json::object());
  if (found != recipe.Identity()) {
    return Status(
        Code::kUsage,
        fmt::format("{}: a checkpoint of another model: {}", checkpoint.path(), Differences(recipe.Identity(), found)),
        "set the recipe's model as it was, or use another run name");
  }
  return Status::Ok();
}

// Averages that the phase before did not keep begin as the weights. A rank has the average of its part alone, where its
// weights may be whole.
void BeginAverages(const std::set<std::string>& stored, Learner* learner) {
  if (!learner->ema().on()) return;
  const at::NoGradGuard no_grad;
  const FlatParameters& flat = learner->flat();
  for (const Segment& part : flat.owned().segments) {
    if (stored.contains("ema/" + flat.parameters()[part.parameter].name)) continue;
    const int64_t n = part.end - part.begin;
    learner->ema().values().narrow(0, part.begin, n).copy_(flat.owned().Values(part.begin, n, part.flat));
  }
}

}  // namespace

StateImage Describe(const TrainingState& state, const Ranks& ranks) {
  const RecipeState recipe = state.recipe->Save();
  StateImage image;
  image.content.step = state.position.step;
  image.content.recipe = state.recipe->name();
  image.content.state = SmallState(state, recipe);
  image.content.tensors = ForCheckpoint(Tensors(state, recipe, ranks.size()), ranks.rank(), ranks.size(), &image.hold);
  return image;
}

Status Restore(const std::string& path, TrainingState* state, Ranks* ranks) {
  const Result<SharedCheckpoint> checkpoint = SharedCheckpoint::Open(path, ranks);
  if (!checkpoint.ok()) return checkpoint.status();
  LOCKSTEP_RETURN_IF_ERROR(ranks->Agree(CheckIdentity(*checkpoint, *state->recipe)));
  RecipeState recipe = state->recipe->Save();  // the names and shapes that must be there
  LOCKSTEP_RETURN_IF_ERROR(checkpoint->Read(Tensors(*state, recipe, ranks->size()), ranks));
  const nlohmann::json& json = checkpoint->manifest().state;
  state->position = ReadPosition(json.value("position", nlohmann::json::object()));
  RestoreLearner(json, state->learner);
  if (state->discriminator != nullptr) {
    RestoreLearner(DiscriminatorState(json), state->discriminator);
  }
  for (Learner* one : {state->learner, state->discriminator}) {
    if (one != nullptr) LOCKSTEP_RETURN_IF_ERROR(one->strategy().PublishParameters());
  }
  recipe.values = json.value("recipe", nlohmann::json::object());
  return state->recipe->Restore(recipe);
}

Status TakeOver(const std::string& path, bool optimizer, TrainingState* state, Ranks* ranks) {
  const Result<SharedCheckpoint> checkpoint = SharedCheckpoint::Open(path, ranks);
  if (!checkpoint.ok()) return checkpoint.status();
  LOCKSTEP_RETURN_IF_ERROR(ranks->Agree(CheckRecipe(*checkpoint, *state->recipe)));
  RecipeState recipe = state->recipe->Save();
  const std::vector<StateTensor> all = Tensors(*state, recipe, ranks->size());
  std::set<std::string> stored, known;
  for (const record::StoredTensor& tensor : checkpoint->manifest().tensors) stored.insert(tensor.name);
  for (const StateTensor& tensor : all) known.insert(tensor.name);
  Status fits;
  for (const std::string& name : stored) {
    if (!name.starts_with("model/") || known.contains(name)) continue;
    fits = Status(Code::kUsage,
                  fmt::format("{}: the phase before has the parameter {}, which this phase's model lacks", path,
                              name.substr(name.find('/') + 1)),
                  "a phase may add LoRA, not take it away");
    break;
  }
  LOCKSTEP_RETURN_IF_ERROR(ranks->Agree(fits));
  std::vector<StateTensor> taken;
  for (const StateTensor& tensor : all) {
    const bool moment = tensor.name.find("optimizer/") != std::string::npos;
    if (stored.contains(tensor.name) && (optimizer || !moment)) taken.push_back(tensor);
  }
  LOCKSTEP_RETURN_IF_ERROR(checkpoint->Read(taken, ranks));
  BeginAverages(stored, state->learner);
  const nlohmann::json& json = checkpoint->manifest().state;
  state->position = ReadPosition(json.value("position", nlohmann::json::object()));
  if (optimizer) {
    RestoreLearner(json, state->learner);
    if (state->discriminator != nullptr) RestoreLearner(DiscriminatorState(json), state->discriminator);
  } else {
    state->learner->ema().set_updates(static_cast<uint64_t>(GetInt(json, "ema_updates")));
    state->learner->Sync();
  }
  for (Learner* one : {state->learner, state->discriminator}) {
    if (one != nullptr) LOCKSTEP_RETURN_IF_ERROR(one->strategy().PublishParameters());
  }
  recipe.values = json.value("recipe", nlohmann::json::object());
  return state->recipe->Restore(recipe);
}

Result<Precision> RecordedPrecision(const std::string& path) {
  Result<record::CheckpointReader> reader = record::CheckpointReader::Open(path);
  if (!reader.ok()) return reader.status();
  std::string name = GetString(reader->state(), "precision");
  // <run>/checkpoints/step-<n>
  std::error_code ignored;
  const auto run = std::filesystem::weakly_canonical(path, ignored).parent_path().parent_path();
  if (const Result<ConfigTree> tree = ConfigTree::Load(run / "train.yaml"); name.empty() && tree.ok()) {
    const ConfigNode* train = tree->root().Find("train");
    const ConfigNode* precision = train == nullptr ? nullptr : train->Find("precision");
    if (precision != nullptr) name = precision->text;
  }
  const std::optional<Precision> found = PrecisionNamed(name);
  return found && *found != Precision::kAuto ? *found : Precision::kFp32;
}

Result<std::vector<std::pair<std::string, at::Tensor>>> CheckpointWeights(const record::CheckpointReader& reader,
                                                                          bool* averaged) {
  constexpr std::string_view kModel = "model/";
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const TensorInfo& info : reader.tensors()) {
    if (!info.name.starts_with(kModel)) continue;
    const std::string name = info.name.substr(kModel.size());
    const TensorInfo* average = reader.Find("ema/" + name);
    if (average != nullptr && averaged != nullptr) *averaged = true;
    const TensorInfo& taken = average != nullptr ? *average : info;
    if (taken.dtype != Dtype::kF32) {
      return Status(Code::kUsage,
                    fmt::format("'{}': {} holds {}, expected F32", reader.path(), taken.name, DtypeName(taken.dtype)));
    }
    at::Tensor tensor = at::empty(taken.shape, at::kFloat);
    LOCKSTEP_RETURN_IF_ERROR(reader.Read(taken.name, tensor.data_ptr(), tensor.nbytes()));
    tensors.emplace_back(name, std::move(tensor));
  }
  return tensors;
}

Result<std::vector<std::pair<std::string, at::Tensor>>> ReadWeights(const std::string& path) {
  Result<std::string> checkpoint = record::FindCheckpoint(path);
  if (!checkpoint.ok()) return checkpoint.status();
  if (!checkpoint->empty()) {
    Result<record::CheckpointReader> reader = record::CheckpointReader::Open(*checkpoint);
    if (!reader.ok()) return reader.status();
    return CheckpointWeights(*reader, nullptr);
  }
  Result<std::unique_ptr<Weights>> file = OpenWeights(path);
  if (!file.ok()) return file.status();
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const TensorInfo& info : (*file)->tensors()) {
    const auto type = TorchType(info.dtype);
    if (!type) {
      return Status(Code::kUsage,
                    fmt::format("{}: tensor {}: the type {} is not supported", path, info.name, DtypeName(info.dtype)));
    }
    at::Tensor tensor = at::empty(info.shape, at::TensorOptions().dtype(*type));
    LOCKSTEP_RETURN_IF_ERROR((*file)->Read(info.name, tensor.data_ptr(), tensor.nbytes()));
    tensors.emplace_back(info.name, std::move(tensor));
  }
  // Files often wrap the weights once: {"state_dict": {...}}.
  for (const std::string prefix : {"state_dict.", "params_ema.", "params.", "model.", "module."}) {
    bool all = !tensors.empty();
    for (const auto& item : tensors) all = all && item.first.starts_with(prefix);
    if (!all) continue;
    for (auto& item : tensors) item.first.erase(0, prefix.size());
  }
  return tensors;
}

}  // namespace lockstep::engine
