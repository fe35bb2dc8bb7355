// Reads the golden values of tests/golden/data (made by tests/golden/make.py) and measures distances to them.
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "base/json.h"
#include "base/safetensors.h"
#include "paths.h"

namespace lockstep::golden {

inline std::string Path(const std::string& name) { return SourceDir() + "/tests/golden/data/" + name; }

inline nlohmann::json Json(const std::string& topic) {
  auto json = ReadJsonFile(Path(topic + ".json"));
  if (!json.ok()) throw std::runtime_error(json.status().ToString());
  return *json;
}

inline std::map<std::string, at::Tensor> ReadTensors(const std::string& path) {
  auto file = SafetensorsFile::Open(path);
  if (!file.ok()) throw std::runtime_error(file.status().ToString());
  std::map<std::string, at::Tensor> tensors;
  for (const TensorInfo& info : file->tensors()) {
    at::Tensor tensor = at::empty(info.shape, info.dtype == Dtype::kF64 ? at::kDouble : at::kFloat);
    Status read = file->Read(info, tensor.data_ptr(), info.bytes);
    if (!read.ok()) throw std::runtime_error(read.ToString());
    tensors[info.name] = tensor;
  }
  return tensors;
}

inline std::map<std::string, at::Tensor> Tensors(const std::string& topic) {
  return ReadTensors(Path(topic + ".safetensors"));
}

// Largest difference, relative to the golden tensor's largest value; as make.py measures it.
inline double Distance(const at::Tensor& found, const at::Tensor& expected) {
  if (found.sizes() != expected.sizes()) return INFINITY;
  double scale = std::max(1e-30, expected.to(at::kDouble).abs().max().item<double>());
  return (found.detach().to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>() / scale;
}

// Norm and eight values: what make.py stores of a large tensor.
inline at::Tensor Digest(const at::Tensor& tensor) {
  at::Tensor flat = tensor.detach().flatten().to(at::kDouble);
  at::Tensor at = at::div(at::arange(8) * (flat.numel() - 1), 7, "floor");
  return at::cat({flat.norm().unsqueeze(0), flat.index_select(0, at)});
}

// What float32 may cost: four times what it costs PyTorch itself, and never less than a few roundings.
inline double Allowed(const nlohmann::json& noise) { return std::max(1e-6, 4 * noise.get<double>()); }

}  // namespace lockstep::golden
