// A decoder-only language model in the layout of Qwen2.5: RMSNorm, rotary embeddings, grouped-query attention, SwiGLU,
// a tied or an own head. Parameters have Hugging Face's names ("model.layers.0.self_attn.q_proj.weight"). A plain
// module: owned by the recipe, used by one thread at a time, no collectives; equal seeds give equal weights on every
// rank.
//
//   Decoder model(DecoderConfig::Named().at("tiny"), /*seed=*/7);
//   at::Tensor hidden = model.Hidden(tokens, Packing{});
//   model.Loss(hidden, labels).backward();
//
// Under autocast the matrix products run in its type; the residual stream, softmax and the norms' sums stay float32.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/decoder_config.h"
#include "models/lora.h"
#include "models/packing.h"

namespace lockstep::models {

namespace decoder {
struct Body;
struct Linear;
}  // namespace decoder

class Decoder : public torch::nn::Module {
 public:
  enum class Weights {
    kDrawn,        // allocated and drawn: normal(0, 0.02), biases 0, norms 1, as Hugging Face draws them
    kAllocated,    // allocated, any values: for a file or a checkpoint to fill
    kUnallocated,  // right shapes over one element of memory (NaN). For whoever owns parts of the parameters and gives
                   // each its memory by set_data; Draw fills it. Not on the meta device, where set_data is refused.
  };
  // Throws where config.Check() is an error.
  explicit Decoder(const DecoderConfig& config, uint64_t seed = 0, Weights weights = Weights::kDrawn);

  const DecoderConfig& config() const { return config_; }

  // Elements [begin, begin + out.numel()) of the named parameter, flattened, as the constructor with this seed draws
  // them. Element i is a function of (seed, name, i) alone: parameters may be drawn in any order and in pieces. `out`
  // is flat float32 and contiguous, on any device.
  void Draw(const std::string& name, int64_t begin, const at::Tensor& out) const;

  // LoRA for the matrices that `lora` chooses: all other parameters are frozen, and "<matrix>.lora_A" (as Draw says:
  // uniform, PEFT's kaiming_uniform_ with a = sqrt(5)) and "<matrix>.lora_B" (0) train, where "<matrix>" is the
  // weight's name without ".weight". Once, after the weights are there. An error where LoraConfig::Choose has one.
  Status AddLora(const LoraConfig& lora);
  const LoraConfig& lora() const { return lora_; }
  // Names of the weight matrices of the layers, which can have LoRA.
  std::vector<std::string> Matrices() const;
  // A parameter as it is without LoRA beside it: a matrix plus its LoRA, in float32; any other one itself.
  at::Tensor Merged(const std::string& name) const;

  // Tokens [B, T] int64 -> [B, T, width], the final norm applied.
  at::Tensor Hidden(const at::Tensor& tokens, const Packing& packing);
  // [..., width] -> [..., vocabulary].
  at::Tensor Logits(const at::Tensor& hidden);
  // Mean cross-entropy over the positions whose label is not negative (-100: ignored), float32; 0 where there are none.
  // labels[b, t] is the token that hidden[b, t] should predict: the caller shifts (ShiftedLabels in packing.h). Logits
  // exist for some rows at a time, in backward too.
  at::Tensor Loss(const at::Tensor& hidden, const at::Tensor& labels);

  // Units of the model in the order of forward, with the names of their parameters: "embed", "layers.0", ..., "head".
  // The final norm belongs to the last layer's unit, since Hidden applies it and Loss and Logits run the head. A tied
  // weight is used by both ends and belongs to no unit; then there are no units "embed" and "head".
  std::vector<std::pair<std::string, std::vector<std::string>>> Units() const;
  // Hidden, Logits and Loss run every unit through `runner` (the signature of engine::UnitRunner): unit number, what to
  // run, its input.
  using Runner = std::function<at::Tensor(size_t unit, const std::function<at::Tensor(const at::Tensor&)>& forward,
                                          const at::Tensor& input)>;
  void RunUnits(Runner runner) { runner_ = std::move(runner); }
  // From now on a backward may add weight gradients straight to parameters that have one (a matrix product with
  // accumulation instead of a product and a sum). For a trainer that calls backward(): not with autograd::grad.
  void AddGradientsInPlace() { gradients_in_place_ = true; }

  // Generation: keys and values of all earlier tokens are kept. Needs whole parameters, runs no units; no gradients.
  struct Cache {
    std::vector<at::Tensor> keys, values;  // per layer: [B, kv_heads, capacity, head size]
    int64_t length = 0;                    // tokens so far; set it back to forget the last ones
    int64_t capacity = 0;
  };
  // For `batch` sequences of equal length, at most `capacity` tokens each. Memory is allocated here and nowhere else.
  std::unique_ptr<Cache> NewCache(int64_t batch, int64_t capacity);
  // Continues all sequences by tokens [B, t]; logits [B, vocabulary] that follow the last one. Throws where the cache
  // has no room for them.
  at::Tensor Next(const at::Tensor& tokens, Cache* cache);

 private:
  at::Tensor Run(size_t unit, const std::function<at::Tensor(const at::Tensor&)>& forward, const at::Tensor& input);
  at::Tensor HeadWeight() const;
  std::vector<std::pair<std::string, std::shared_ptr<decoder::Linear>>> Linears() const;
  size_t LayerUnit(int64_t layer) const { return static_cast<size_t>(layer + (config_.tied ? 0 : 1)); }

  DecoderConfig config_;
  LoraConfig lora_;
  uint64_t seed_;
  std::shared_ptr<decoder::Body> body_;
  at::Tensor head_;  // undefined when tied
  Runner runner_;
  bool gradients_in_place_ = false;
};

}  // namespace lockstep::models
