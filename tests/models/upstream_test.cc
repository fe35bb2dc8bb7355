// Our TAEHV beside upstream's own code, which is not part of this tree: run by hand, see tests/golden/upstream.py.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/files.h"
#include "golden/golden.h"
#include "models/taehv_file.h"
#include "models/taehv_stream.h"
#include "paths.h"

namespace lockstep::models {
namespace {

// One frame at a time, everything that comes out.
std::pair<at::Tensor, at::Tensor> Stream(Taehv& model, const at::Tensor& frames) {
  std::vector<at::Tensor> latents, decoded;
  auto keep = [](std::vector<at::Tensor>& all, const at::Tensor& piece) {
    if (piece.defined()) all.push_back(piece);
  };
  EncoderStream encoder(&model);
  for (int64_t i = 0; i < frames.size(1); ++i) keep(latents, encoder.Push(frames.narrow(1, i, 1)));
  keep(latents, encoder.Finish());
  DecoderStream decoder(&model);
  for (const at::Tensor& latent : latents) keep(decoded, decoder.Push(latent));
  keep(decoded, decoder.Finish());
  return {at::cat(latents, 1), at::cat(decoded, 1)};
}

TEST(TaehvUpstream, DISABLED_WeightsForwardGradientsStreamsAndExportsAgree) {
  const char* code = getenv("LOCKSTEP_UPSTREAM");
  ASSERT_NE(code, nullptr) << "set it to the taehv.py of a checkout";
  auto dir = TempDir::Create("lockstep-upstream");
  ASSERT_TRUE(dir.ok());
  const char* python = getenv("LOCKSTEP_PYTHON");
  std::string command =
      fmt::format("'{}' '{}/tests/golden/upstream.py' '{}' '{}'",
                  python != nullptr ? python : SourceDir() + "/.venv/bin/python", SourceDir(), code, dir->path());
  ASSERT_EQ(system(command.c_str()), 0);
  const std::vector<std::string> variants = {"taehv", "taecvx",   "taehv1_5",       "taew2_2",
                                             "taeh3", "taeltx_2", "taehv1_5_super", "taew2_2_super"};
  for (const std::string& name : variants) {
    auto expected = golden::ReadTensors(*dir / (name + ".safetensors"));
    Taehv drawn(*FindTaehv(name), 7), model(*FindTaehv(name), 8);
    NamedTensors weights;
    for (const auto& [key, tensor] : expected) {
      if (key.starts_with("weights.")) weights.emplace_back(key.substr(8), tensor);
    }
    at::Tensor frames = expected.at("frames");
    EXPECT_GT(golden::Distance(model.Encode(frames), expected.at("latents")), 1e-3) << "before loading";
    auto recognized = RecognizeTaehv(weights, name + ".pth", {});
    ASSERT_TRUE(recognized.ok()) << recognized.status().ToString();
    EXPECT_EQ(ToJson(*recognized), ToJson(model.config()));
    Status status = model.Load(weights);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (const auto& item : drawn.named_parameters()) {
      EXPECT_TRUE(at::equal(item.value(), expected.at("drawn." + item.key()))) << name << " " << item.key();
    }
    at::Tensor latents = model.Encode(frames), decoded = model.Decode(latents);
    (decoded.square().mean() + latents.square().mean()).backward();
    auto both = [&](const at::Tensor& a, const at::Tensor& b, const std::string& prefix) {
      return std::max(golden::Distance(a, expected.at(prefix + "latents")),
                      golden::Distance(b, expected.at(prefix + "decoded")));
    };
    double forward = both(latents, decoded, "");
    double gradient = 0;
    for (const auto& item : model.named_parameters()) {
      gradient = std::max(gradient, golden::Distance(item.value().grad(), expected.at("gradient." + item.key())));
    }
    at::Tensor pieces = model.EncodeSequential(frames, 1);
    double sequential = both(pieces, model.DecodeSequential(pieces, 1), "sequential.");
    double streaming = 0;
    if (expected.contains("stream.latents")) {
      auto [streamed, shown] = Stream(model, frames);
      streaming = both(streamed, shown, "stream.");
    }
    ASSERT_TRUE(ExportTaehv(model, *dir / (name + ".export")).ok());
    fmt::print("{}: latents and frames {:.2g}, gradients {:.2g}, sequential {:.2g}, streaming {:.2g}\n", name, forward,
               gradient, sequential, streaming);
    EXPECT_LT(forward, 1e-6) << name;
    EXPECT_LT(gradient, 1e-5) << name;
    EXPECT_LT(sequential, 1e-5) << name;
    EXPECT_LT(streaming, 1e-5) << name;
  }
  ASSERT_EQ(system((command + " --load").c_str()), 0);
  for (const std::string& name : variants) {
    auto expected = golden::ReadTensors(*dir / (name + ".safetensors"));
    auto loaded = golden::ReadTensors(*dir / (name + ".loaded"));
    EXPECT_LT(golden::Distance(loaded.at("latents"), expected.at("latents")), 1e-6) << name;
    EXPECT_LT(golden::Distance(loaded.at("decoded"), expected.at("decoded")), 1e-6) << name;
  }
}

}  // namespace
}  // namespace lockstep::models
