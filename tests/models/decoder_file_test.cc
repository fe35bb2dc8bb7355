// Folders in Hugging Face's form: written here and read back, by us and by the safetensors package; what does not fit
// is named.
#include "models/decoder_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "base/run_python.h"
#include "base/safetensors.h"

namespace lockstep::models {
namespace {

DecoderConfig StoredDecoder(bool tied) {
  return {.vocabulary = 61, .width = 32, .layers = 2, .mlp = 48, .rope_theta = 1e4, .tied = tied};
}

std::map<std::string, at::Tensor> DecoderParameters(const Decoder& model) {
  std::map<std::string, at::Tensor> all;
  for (const auto& item : model.named_parameters()) all[item.key()] = item.value().detach();
  return all;
}

class DecoderFolder : public testing::Test {
 protected:
  void SetUp() override {
    auto made = TempDir::Create("lockstep-decoder");
    ASSERT_TRUE(made.ok());
    dir_.emplace(std::move(*made));
  }
  std::vector<std::string> Names() const { return *ListDir(dir_->path()); }
  // The folder of a model whose tensors `change` may alter.
  void Write(const DecoderConfig& config, const std::function<void(std::map<std::string, at::Tensor>&)>& change,
             Dtype dtype = Dtype::kF32) const {
    auto tensors = DecoderParameters(Decoder(config, 3));
    change(tensors);
    std::vector<TensorSpec> specs;
    for (const auto& [name, tensor] : tensors) specs.push_back({name, dtype, tensor.sizes().vec()});
    auto writer = SafetensorsWriter::Create(*dir_ / "model.safetensors", specs);
    ASSERT_TRUE(writer.ok());
    for (const auto& [name, tensor] : tensors) {
      ASSERT_TRUE(writer->Write(name, tensor.contiguous().data_ptr(), tensor.nbytes()).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
    ASSERT_TRUE(WriteFileAtomic(*dir_ / "config.json", config.ToJson().dump()).ok());
  }
  std::optional<TempDir> dir_;
};

TEST_F(DecoderFolder, ComesBackAsItWasInEveryTypeAndNumberOfFiles) {
  struct Row {
    bool tied;
    DecoderWriteOptions options;
    size_t files;
    double allowed;
  };
  const Row rows[] = {
      {true, {Dtype::kF32, 1 << 30}, 1, 0},
      {false, {Dtype::kF32, 20000}, 5, 0},  // over the last one's files, which must be gone
      {true, {Dtype::kF32, 1}, 26, 0},
      {true, {Dtype::kBF16, 20000}, 2, 4e-3},
      {false, {Dtype::kF16, 1 << 30}, 1, 5e-4},
  };
  for (const Row& row : rows) {
    const Decoder model(StoredDecoder(row.tied), 3);
    const Status wrote = WriteDecoder(model, dir_->path(), row.options);
    ASSERT_TRUE(wrote.ok()) << wrote.ToString();
    EXPECT_EQ(Names().size(), 1 + row.files + (row.files > 1 ? 1 : 0)) << fmt::format("{}", fmt::join(Names(), " "));
    auto file = DecoderFile::Open(dir_->path());
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    EXPECT_EQ(file->config(), StoredDecoder(row.tied));
    Decoder back(file->config(), 0, Decoder::Weights::kAllocated);
    const Status read = file->Load(back);
    ASSERT_TRUE(read.ok()) << read.ToString();
    const auto found = DecoderParameters(back);
    for (const auto& [name, tensor] : DecoderParameters(model)) {
      EXPECT_TRUE(at::allclose(found.at(name), tensor, row.allowed, 1e-7)) << name;
      at::Tensor piece = at::empty({tensor.numel() - 3});
      ASSERT_TRUE(file->Read(name, 2, piece).ok());
      EXPECT_TRUE(at::equal(piece, found.at(name).flatten().narrow(0, 2, piece.numel()))) << name;
    }
  }
}

TEST_F(DecoderFolder, HasTheNamesAndTheIndexThatTransformersReads) {
  ASSERT_TRUE(WriteDecoder(Decoder(StoredDecoder(false), 3), dir_->path(), {Dtype::kBF16, 20000}).ok());
  auto index = ReadJsonFile(*dir_ / "model.safetensors.index.json");
  ASSERT_TRUE(index.ok());
  EXPECT_EQ((*index)["metadata"]["total_size"].get<int64_t>(), 2 * StoredDecoder(false).ParameterCount());
  EXPECT_EQ((*index)["weight_map"]["model.embed_tokens.weight"], "model-00001-of-00002.safetensors");
  EXPECT_EQ((*index)["weight_map"]["lm_head.weight"], "model-00002-of-00002.safetensors");
  auto config = ReadJsonFile(*dir_ / "config.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ((*config)["architectures"][0], "Qwen2ForCausalLM");
  EXPECT_EQ((*config)["torch_dtype"], "bfloat16");
}

// Needs a Python with transformers (LOCKSTEP_PYTHON), which is no dependency of the tests.
TEST_F(DecoderFolder, DISABLED_IsReadByTransformersAndItsFoldersAreReadHere) {
  const at::Tensor tokens = at::arange(14).view({2, 7});
  for (const DecoderConfig& config :
       {StoredDecoder(true), StoredDecoder(false),
        DecoderConfig{.vocabulary = 61, .width = 32, .layers = 2, .mlp = 48, .qkv_bias = false}}) {
    Decoder model(config, 3);
    ASSERT_TRUE(WriteDecoder(model, dir_->path(), {Dtype::kF32, 20000}).ok());
    const PythonRun run =
        RunPython("golden/decoder.py", fmt::format("--convert '{}' '{}/back'", dir_->path(), dir_->path()));
    ASSERT_EQ(run.code, 0) << run.output;
    auto file = DecoderFile::Open(*dir_ / "back");
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    EXPECT_EQ(file->config(), config);
    Decoder back(file->config(), 0, Decoder::Weights::kAllocated);
    ASSERT_TRUE(file->Load(back).ok());
    const auto found = DecoderParameters(back);
    for (const auto& [name, tensor] : DecoderParameters(model)) EXPECT_TRUE(at::equal(found.at(name), tensor)) << name;
    auto logits = OpenWeights(*dir_ / "back/logits.safetensors");
    ASSERT_TRUE(logits.ok());
    at::Tensor expected = at::empty({2, 7, 61});
    ASSERT_TRUE((*logits)->Read("logits", expected.data_ptr(), expected.nbytes()).ok());
    EXPECT_TRUE(at::allclose(model.Logits(model.Hidden(tokens, {})), expected, 1e-4, 1e-6));
  }
}

TEST_F(DecoderFolder, OfATiedModelMayHoldTheHead) {
  Write(StoredDecoder(true),
        [](auto& tensors) { tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight"); });
  auto file = DecoderFile::Open(dir_->path());
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  Decoder model(file->config(), 0, Decoder::Weights::kAllocated);
  EXPECT_TRUE(file->Load(model).ok());
}

TEST_F(DecoderFolder, ThatDoesNotFitIsRefusedWithTheTensorsName) {
  using Tensors = std::map<std::string, at::Tensor>;
  struct Row {
    std::function<void(Tensors&)> change;
    std::string message;
  };
  const std::string q = "model.layers.1.self_attn.q_proj.weight";
  const Row rows[] = {
      {[&](Tensors& t) { t.erase(q); }, "1 tensor missing: " + q},
      {[&](Tensors& t) { t.erase("lm_head.weight"); }, "1 tensor missing: lm_head.weight"},
      {[&](Tensors& t) { t[q] = at::zeros({32, 16}); }, q + " is F32 [32, 16], expected F32, BF16 or F16 [32, 32]"},
      {[&](Tensors& t) { t["model.layers.2.mlp.up_proj.weight"] = at::zeros({1}); },
       "1 tensor not in this model: model.layers.2.mlp.up_proj.weight"},
      {[&](Tensors& t) { t[q] = at::full({32, 32}, NAN); }, q + " has values that are not finite"},
  };
  for (const Row& row : rows) {
    Write(StoredDecoder(false), row.change);
    auto file = DecoderFile::Open(dir_->path());
    Decoder model(StoredDecoder(false), 0, Decoder::Weights::kAllocated);
    const Status status = file.ok() ? file->Load(model) : file.status();
    EXPECT_NE(status.message().find(row.message), std::string::npos) << status.ToString();
  }
  Write(StoredDecoder(false), [](Tensors&) {});
  Decoder other(StoredDecoder(true), 0, Decoder::Weights::kAllocated);
  auto file = DecoderFile::Open(dir_->path());
  ASSERT_TRUE(file.ok());
  Decoder wider({.vocabulary = 61, .width = 64, .layers = 2, .mlp = 48}, 0, Decoder::Weights::kAllocated);
  EXPECT_NE(file->Load(wider).message().find("model.embed_tokens.weight is F32 [61, 32], the model has [61, 64]"),
            std::string::npos);
}

TEST_F(DecoderFolder, IsNotWrittenWithValuesThatAreNotFinite) {
  struct Row {
    double value;
    Dtype dtype;
    const char* message;
  };
  const Row rows[] = {{NAN, Dtype::kF32, "model.norm.weight has values that are not finite"},
                      {1e6, Dtype::kF16, "model.norm.weight has values that F16 cannot hold"},
                      {1, Dtype::kI8, "cannot be written as I8"}};
  for (const Row& row : rows) {
    Decoder model(StoredDecoder(true), 3);
    DecoderParameters(model).at("model.norm.weight").fill_(row.value);
    const Status status = WriteDecoder(model, dir_->path(), {row.dtype, 1 << 30});
    EXPECT_NE(status.message().find(row.message), std::string::npos) << status.ToString();
    EXPECT_TRUE(Names().empty());
  }
}

}  // namespace
}  // namespace lockstep::models
