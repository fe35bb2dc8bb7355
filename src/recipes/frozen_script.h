// A frozen encoder that is a file: a TorchScript module, or a program that takes and gives tensors over a pipe. Called
// without gradients and without the rewriting of TorchScript's executor, so that equal input has equal bits at all
// times. One thread; every rank has its own; nothing is collective.
#pragma once

#include <torch/script.h>

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/encoder_program.h"
#include "engine/precision.h"

namespace lockstep::recipes {

struct ScriptFile {
  std::string kind = "torchscript";    // or program
  std::string path;                    // of the file
  std::vector<std::string> arguments;  // of a program
  std::vector<std::string> weights;    // files a program reads its weights from
  engine::Precision precision = engine::Precision::kFp32;
};

// Of everything the file computes with: code, arguments and weights.
Result<std::string> ScriptDigest(const ScriptFile& file);

class FrozenScript {
 public:
  // Loads the file onto the device. `key`: where the configuration names the file, for messages.
  static Result<std::unique_ptr<FrozenScript>> Load(const ScriptFile& file, const std::string& key, at::Device device);

  // `x` in the file's compute type. A module's own result, or a dict of what the program gave. Throws as LibTorch does.
  c10::IValue Forward(const at::Tensor& x);

 private:
  FrozenScript() = default;
  torch::jit::Module module_;
  std::optional<cache::EncoderProgram> program_;
};

// The entries of a dict of tensors. Throws for another value.
std::map<std::string, at::Tensor> TensorsOf(const c10::IValue& dict);

// "[2, 3]".
std::string ShapeText(at::IntArrayRef shape);

// The line of LibTorch's message that says what was wrong.
std::string ScriptError(const std::exception& error);

}  // namespace lockstep::recipes
