#include "recipes/frozen_script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "cache/digest.h"
#include "engine/state_tensors.h"

namespace lockstep::recipes {

Result<std::string> ScriptDigest(const ScriptFile& file) {
  return file.kind == "program" ? cache::ProgramDigest(file.path, file.arguments, file.weights)
                                : cache::FileDigest(file.path);
}

std::string ShapeText(at::IntArrayRef shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string ScriptError(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  // TorchScript puts its own stack before the message.
  std::string last;
  for (const std::string& line : Split(text, '\n')) {
    if (!Trim(line).empty()) last = std::string(Trim(line));
    if (line.find("Error:") != std::string::npos) return std::string(Trim(line));
  }
  return last;
}

Result<std::unique_ptr<FrozenScript>> FrozenScript::Load(const ScriptFile& file, const std::string& key,
                                                         at::Device device) {
  if (std::error_code error; !std::filesystem::is_regular_file(file.path, error)) {
    return Status(Code::kUsage, fmt::format("{}: {}: there is no such file", key, Printable(file.path)),
                  file.kind == "program"
                      ? "name a program that takes and gives tensors (docs/feature-cache.md)"
                      : "name a file written by torch.jit.save (docs/taehv.md shows how to make one)");
  }
  std::unique_ptr<FrozenScript> made(new FrozenScript());
  if (file.kind == "program") {
    Result<cache::EncoderProgram> program = cache::EncoderProgram::Start(file.path, file.arguments);
    if (!program.ok()) return program.status().Context(key);
    made->program_.emplace(std::move(*program));
    return made;
  }
  try {
    made->module_ = torch::jit::load(file.path, device);
    made->module_.eval();
    for (const auto& parameter : made->module_.parameters()) parameter.set_requires_grad(false);
    made->module_.to(device, engine::ComputeType(file.precision));
  } catch (const std::exception& error) {
    return Status(Code::kUsage,
                  fmt::format("{}: not a TorchScript module that loads: {}", file.path, ScriptError(error)),
                  "write it with torch.jit.save (docs/taehv.md shows how); weights alone are not enough");
  }
  return made;
}

c10::IValue FrozenScript::Forward(const at::Tensor& x) {
  const at::NoGradGuard no_grad;
  const engine::AutocastGuard plain(x.device().type(), engine::Precision::kFp32);
  // TorchScript rewrites what it has run a few times; a resumed run would then not have the bits of the first steps.
  const torch::jit::GraphOptimizerEnabledGuard as_written(false);
  if (!program_) return module_.forward({x});
  const at::Tensor frames = x.to(at::kCPU, at::kFloat).contiguous();
  const auto* at = static_cast<const std::byte*>(frames.const_data_ptr());
  const auto given = program_->Call({{"frames", Dtype::kF32, frames.sizes().vec(), {at, at + frames.nbytes()}}});
  TORCH_CHECK(given.ok(), given.status().message());
  c10::Dict<std::string, at::Tensor> tensors;
  for (const cache::NamedTensor& one : *given) {
    const std::optional<at::ScalarType> type = engine::TorchType(one.dtype);
    TORCH_CHECK(type, "'", one.name, "' is ", std::string(DtypeName(one.dtype)), ", which LibTorch does not have");
    at::Tensor tensor = at::empty(one.shape, *type);
    if (!one.data.empty()) std::memcpy(tensor.data_ptr(), one.data.data(), one.data.size());
    tensors.insert(one.name, tensor.to(x.device()));
  }
  return tensors;
}

std::map<std::string, at::Tensor> TensorsOf(const c10::IValue& dict) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& entry : dict.toGenericDict()) {
    TORCH_CHECK(entry.key().isString() && entry.value().isTensor(), "a dict of tensors by name is expected");
    tensors[entry.key().toStringRef()] = entry.value().toTensor();
  }
  return tensors;
}

}  // namespace lockstep::recipes
