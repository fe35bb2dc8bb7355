// A decoder's folder as Hugging Face has it: config.json beside model.safetensors, or beside shards named by
// model.safetensors.index.json. Tensors are read and written one at a time: there is never a second copy of the model.
// Reading is const and safe from any thread; no collectives.
//
//   auto file = DecoderFile::Open("Qwen2.5-0.5B");
//   if (!file.ok()) return file.status();
//   Decoder model(file->config(), 0, Decoder::Weights::kAllocated);
//   LOCKSTEP_RETURN_IF_ERROR(file->Load(model));
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor_info.h"
#include "base/weights.h"
#include "models/decoder.h"

namespace lockstep::models {

// Names and shapes of a decoder's parameters, in the module's order; nothing is allocated.
struct DecoderTensor {
  std::string name;
  std::vector<int64_t> shape;
};
std::vector<DecoderTensor> DecoderTensors(const DecoderConfig& config);

class DecoderFile {
 public:
  // Names, shapes and types of all tensors are checked here: F32, BF16 or F16 each. A tied model's file may hold
  // lm_head.weight, which is not read; any other tensor that is missing or left over is an error that names it.
  static Result<DecoderFile> Open(const std::string& folder);

  const DecoderConfig& config() const { return config_; }
  const lockstep::Weights& weights() const { return *weights_; }

  // All parameters; the model's shapes must be the file's. Values that are not finite are an error.
  Status Load(Decoder& model) const;
  // Elements [begin, begin + out.numel()) of a parameter, flattened, into `out` (contiguous, any type and device): for
  // a rank that owns a part. Reads the whole tensor from the disk.
  Status Read(const std::string& name, int64_t begin, const at::Tensor& out) const;

 private:
  DecoderConfig config_;
  std::unique_ptr<lockstep::Weights> weights_;
};

struct DecoderWriteOptions {
  Dtype dtype = Dtype::kBF16;            // or F32, F16
  uint64_t shard_bytes = 5'000'000'000;  // a file holds at most this much, or one tensor
};
// A whole parameter by its name, called once for each, in the order of the files. Tensors of any device and type.
using DecoderSource = std::function<Result<at::Tensor>(const std::string& name)>;
// Files appear when they are complete; those of an earlier model in the folder are replaced or removed. Values that are
// not finite, or not any more in F16, are an error that names the tensor.
Status WriteDecoder(const DecoderConfig& config, const DecoderSource& source, const std::string& folder,
                    const DecoderWriteOptions& options = {});
// LoRA is merged into its matrices.
Status WriteDecoder(const Decoder& model, const std::string& folder, const DecoderWriteOptions& options = {});

// The LoRA of a model alone, as PEFT's folder: adapter_model.safetensors and adapter_config.json, which
// PeftModel.from_pretrained(base, folder) loads. `base`: the model it belongs to, as PEFT shall find it; empty: not
// said.
Status WriteAdapter(const Decoder& model, const std::string& base, const std::string& folder, Dtype dtype);

}  // namespace lockstep::models
