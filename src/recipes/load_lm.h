// A trained language model from what a user has: a run (its name, 'latest', its directory), a checkpoint folder, of
// which the averaged weights are taken where it has them, or a folder as Hugging Face has it (config.json and
// safetensors). And back into such a folder. The model is on the CPU, in float32, without gradients. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "base/tensor_info.h"
#include "models/decoder.h"

namespace lockstep::recipes {

struct LoadedLm {
  std::shared_ptr<models::Decoder> model;
  std::string path;              // the step folder, or the given one
  std::string tokenizer;         // "bytes", another, or "": not known
  std::string base;              // with LoRA: the folder that it was added to, where there was one
  int64_t end = -1;              // the token that ends a document; -1: not known
  std::optional<uint64_t> step;  // of a checkpoint
  bool averaged = false;         // EMA weights
  bool writes_text() const;      // its tokens are bytes
};

// Whether `path` means a checkpoint of the recipe lm, or a folder with config.json. Errors of looking are for LoadLm.
bool IsLm(const std::string& path);
Result<LoadedLm> LoadLm(const std::string& path);

// As a Hugging Face folder, LoRA merged into its matrices; what the tokens are is kept in config.json
// ("lockstep_tokenizer", "eos_token_id").
Status ExportLm(const LoadedLm& lm, const std::string& folder, Dtype dtype);
// Its LoRA alone, as PEFT has it.
Status ExportAdapter(const LoadedLm& lm, const std::string& folder, Dtype dtype);

}  // namespace lockstep::recipes
