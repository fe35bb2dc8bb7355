// Weights of a model in whatever file upstream ships them: safetensors (one file, or shards with an index) or a
// `torch.save` zip. The format is recognised by content, not by name. Files of unknown origin are expected: nothing in
// them is ever executed, and every length is checked. Reading is const and safe from any thread.
//
//   auto weights = OpenWeights("taew2_1.pth");
//   if (!weights.ok()) return weights.status();
//   for (const TensorInfo& t : (*weights)->tensors()) ...
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/tensor_info.h"

namespace lockstep {

class Weights {
 public:
  virtual ~Weights() = default;
  // "safetensors", "sharded safetensors" or "torch.save".
  virtual std::string_view format() const = 0;
  virtual const std::string& path() const = 0;
  // Tensors of nested containers are named by their path: "state_dict.encoder.0.weight", "optimizer.state.0.exp_avg".
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  // What is not a tensor, as text: safetensors' metadata; numbers and strings of a torch.save file by their path.
  virtual const std::map<std::string, std::string>& metadata() const = 0;
  // Dense, row-major, little-endian; bytes must be the tensor's. Strided views are gathered.
  virtual Status Read(std::string_view name, void* dst, size_t bytes) const = 0;

  const TensorInfo* Find(std::string_view name) const;
};

// A file in either format, an index of safetensors shards (model.safetensors.index.json), or a folder that holds one of
// model.safetensors.index.json and model.safetensors.
Result<std::unique_ptr<Weights>> OpenWeights(const std::string& path);

}  // namespace lockstep
