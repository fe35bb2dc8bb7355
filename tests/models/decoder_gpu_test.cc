// The decoder on a GPU against itself on the CPU: packed rows by flash attention, the loss in half precision, the
// cache; and that a step never waits for the device. For builds with CUDA.
#ifdef LOCKSTEP_CUDA
#include <ATen/autocast_mode.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include "models/decoder.h"
#include "models/decoder_kernels.h"

namespace lockstep::models {
namespace {

struct GpuAutocast {
  explicit GpuAutocast(std::optional<at::ScalarType> type) {
    at::autocast::set_autocast_enabled(at::kCUDA, type.has_value());
    at::autocast::set_autocast_dtype(at::kCUDA, type.value_or(at::kBFloat16));
  }
  ~GpuAutocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCUDA, false);
  }
};

struct GpuLearned {
  double loss = 0;
  std::map<std::string, at::Tensor> gradients;  // on the CPU
};

GpuLearned LearnOnDevice(Decoder& model, const at::Tensor& tokens, const Packing& packing,
                         std::optional<at::ScalarType> type = std::nullopt) {
  model.zero_grad();
  at::Tensor loss;
  {
    const GpuAutocast autocast(type);
    loss = model.Loss(model.Hidden(tokens, packing), ShiftedLabels(tokens, packing.documents));
  }
  const double scale = type == at::kHalf ? 1024 : 1;
  (loss * scale).backward();
  GpuLearned learned{loss.item<double>(), {}};
  for (const auto& item : model.named_parameters()) {
    learned.gradients[item.key()] = item.value().grad().cpu().to(at::kFloat) / scale;
  }
  return learned;
}

// The largest relative distance of a gradient, by norm.
double GpuDistance(const GpuLearned& a, const GpuLearned& b) {
  double largest = std::abs(a.loss - b.loss) / std::abs(b.loss);
  for (const auto& [name, gradient] : b.gradients) {
    const at::Tensor apart = a.gradients.at(name) - gradient;
    largest = std::max(largest, apart.norm().item<double>() / (gradient.norm().item<double>() + 1e-12));
  }
  return largest;
}

DecoderConfig GpuDecoder(bool tied) {
  return {.vocabulary = 1000, .width = 256, .layers = 3, .heads = 8, .mlp = 512, .rope_theta = 1e4, .tied = tied};
}

// Rows with documents of 60, 100 and 40 tokens; the second row is one document.
at::Tensor GpuDocuments() {
  at::Tensor row = at::cat({at::full({60}, 5), at::full({100}, 6), at::full({40}, 5)}).to(at::kLong);
  return at::stack({row, at::full_like(row, 6), row});
}

TEST(DecoderOnAGpu, HasItsOwnKernels) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    EXPECT_TRUE(decoder::kernels::Usable(at::Device(at::kCUDA, 0), type, at::kFloat, 256));
  }
}

// bfloat16 parameters, as with train.parameters: bf16, against the same values in float32.
TEST(DecoderOnAGpu, LearnsWithParametersInBfloat16) {
  at::manual_seed(1);
  const at::Tensor tokens = at::randint(0, 1000, {3, 200}).cuda(), documents = GpuDocuments().cuda();
  Decoder model(GpuDecoder(false), 3);
  model.to(at::kCUDA);
  model.to(at::kBFloat16);
  for (const Packing& packing : {Packing{}, Packing{.documents = documents}}) {
    const GpuLearned narrow = LearnOnDevice(model, tokens, packing, at::kBFloat16);
    model.to(at::kFloat);
    EXPECT_LT(GpuDistance(narrow, LearnOnDevice(model, tokens, packing)), 5e-2);
    model.to(at::kBFloat16);
  }
}

// With fixed orders of all sums, twice the same bits.
TEST(DecoderOnAGpu, RepeatsBitsWhereAsked) {
  const at::Tensor tokens = at::randint(0, 1000, {3, 200}).cuda(), documents = GpuDocuments().cuda();
  Decoder model(GpuDecoder(true), 3);
  model.to(at::kCUDA);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  for (const Packing& packing : {Packing{}, Packing{.documents = documents, .document_limit = 12}}) {
    const GpuLearned once = LearnOnDevice(model, tokens, packing, at::kBFloat16);
    EXPECT_EQ(GpuDistance(LearnOnDevice(model, tokens, packing, at::kBFloat16), once), 0);
  }
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
}

TEST(DecoderOnAGpu, LearnsAsOnTheCpu) {
  at::globalContext().setAllowTF32CuBLAS(false);
  at::manual_seed(1);
  const at::Tensor tokens = at::randint(0, 1000, {3, 200}), documents = GpuDocuments();
  const at::Tensor on_gpu = tokens.cuda(), documents_on_gpu = documents.cuda();
  for (const bool tied : {true, false}) {
    Decoder model(GpuDecoder(tied), 3);
    const GpuLearned packed = LearnOnDevice(model, tokens, {.documents = documents}),
                     rows = LearnOnDevice(model, tokens, {});
    model.to(at::kCUDA);
    const Packing counted{.documents = documents_on_gpu}, limited{.documents = documents_on_gpu, .document_limit = 12};
    EXPECT_LT(GpuDistance(LearnOnDevice(model, on_gpu, counted), packed), 1e-4) << "float32, by a mask";
    EXPECT_LT(GpuDistance(LearnOnDevice(model, on_gpu, {}), rows), 1e-4) << "float32, whole rows";
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const double allowed = type == at::kHalf ? 1e-2 : 5e-2;
      const GpuLearned flash = LearnOnDevice(model, on_gpu, counted, type);
      EXPECT_LT(GpuDistance(flash, packed), allowed) << "flash attention over documents";
      EXPECT_LT(GpuDistance(LearnOnDevice(model, on_gpu, limited, type), flash), 1e-3)
          << "with empty documents at the end";
      EXPECT_LT(GpuDistance(LearnOnDevice(model, on_gpu, {}, type), rows), allowed) << "whole rows, shared keys";
    }
    EXPECT_GT(GpuDistance(rows, packed), 0.1) << "the control: documents matter";
  }
}

TEST(DecoderOnAGpu, AStepWithALimitOfDocumentsNeverWaitsForTheDevice) {
  Decoder model(GpuDecoder(true), 3);
  model.to(at::kCUDA);
  const at::Tensor tokens = at::randint(0, 1000, {3, 200}).cuda(), documents = GpuDocuments().cuda();
  const auto step = [&](int64_t limit) {
    const GpuAutocast autocast(at::kBFloat16);
    model.Loss(model.Hidden(tokens, {.documents = documents, .document_limit = limit}), tokens).backward();
  };
  step(12);
  auto& sync = c10::cuda::warning_state();
  sync.set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
  EXPECT_NO_THROW(step(12));
  EXPECT_THROW(step(0), c10::Error) << "the control: counting waits";
  sync.set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
}

TEST(DecoderOnAGpu, GeneratesWithTheCacheAsWithout) {
  at::manual_seed(2);
  Decoder model(GpuDecoder(true), 3);
  model.to(at::kCUDA);
  const at::NoGradGuard no_grad;
  at::Tensor tokens = at::randint(0, 1000, {3, 10}).cuda(), input = tokens;
  const auto cache = model.NewCache(3, 30);
  for (int i = 0; i < 20; ++i) {
    input = model.Next(input, cache.get()).argmax(-1, true);
    tokens = at::cat({tokens, input}, 1);
  }
  const at::Tensor whole = model.Logits(model.Hidden(tokens, {})).argmax(-1);
  EXPECT_TRUE(at::equal(whole.narrow(1, 9, 20), tokens.narrow(1, 10, 20)));
}

}  // namespace
}  // namespace lockstep::models
#endif
