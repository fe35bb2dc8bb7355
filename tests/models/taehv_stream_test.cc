// A clip in pieces gives what the whole clip gives: every variant, odd lengths, odd pieces, several clips at once.
#include "models/taehv_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "golden/golden.h"

namespace lockstep::models {
namespace {

using testing::HasSubstr;

constexpr double kSums = 1e-5;  // the same sums in another order, through forty layers

// ThinNearIdentity nets with the structure of a variant, near identity so that every layer matters.
Taehv ThinNearIdentity(const std::string& variant) {
  at::set_num_threads(1);
  TaehvConfig config = *FindTaehv(variant);
  config.encoder_width = {4, 4, 4, 4};
  config.decoder_width = {8, 4, 4, 4};
  Taehv model(config, 3);
  model.StartNearIdentity();
  return model;
}

at::Tensor StreamNoise(at::IntArrayRef sizes) { return at::rand(sizes, at::detail::createCPUGenerator(1)); }

at::Tensor Clip(const Taehv& model, int64_t frames, int64_t clips = 2) {
  return StreamNoise({clips, frames, 3, model.config().SpaceDown(), 2 * model.config().SpaceDown()});
}

// Pushes pieces of the given lengths in turn and joins what comes out.
template <typename Stream>
at::Tensor InPieces(Stream& stream, const at::Tensor& whole, std::vector<int64_t> lengths) {
  std::vector<at::Tensor> out;
  auto keep = [&](const at::Tensor& piece) {
    if (piece.defined()) out.push_back(piece);
  };
  for (int64_t at = 0, i = 0; at < whole.size(1); ++i) {
    int64_t take = std::min(lengths[i % lengths.size()], whole.size(1) - at);
    keep(stream.Push(whole.narrow(1, at, take)));
    at += take;
  }
  keep(stream.Finish());
  return at::cat(out, 1);
}

class TaehvPieces : public testing::TestWithParam<const char*> {};

TEST_P(TaehvPieces, OfAnyLengthGiveTheWholeClip) {
  torch::NoGradGuard no_grad;
  Taehv model = ThinNearIdentity(GetParam());
  EncoderStream encoder(&model);
  for (int64_t frames : {1, 3, 5, 17, 18, 34}) {
    at::Tensor clip = Clip(model, frames), latents = model.Encode(clip), decoded = model.Decode(latents);
    EXPECT_EQ(decoded.size(1), model.config().FramesOut(frames));
    DecoderStream decoder(&model, latents.size(1));
    for (std::vector<int64_t> lengths : {std::vector<int64_t>{1}, {4}, {2, 5, 1}}) {
      EXPECT_LT(golden::Distance(InPieces(encoder, clip, lengths), latents), kSums) << frames << " by " << lengths[0];
      EXPECT_LT(golden::Distance(InPieces(decoder, latents, lengths), decoded), kSums)
          << frames << " by " << lengths[0];
    }
    for (int64_t piece : {3, 8}) {
      EXPECT_LT(golden::Distance(model.EncodeSequential(clip, piece), latents), kSums) << frames << " by " << piece;
      EXPECT_LT(golden::Distance(model.DecodeSequential(latents, piece), decoded), kSums) << frames << " by " << piece;
    }
  }
}

TEST_P(TaehvPieces, ThatAreTheWholeClipGiveTheSameBits) {
  torch::NoGradGuard no_grad;
  Taehv model = ThinNearIdentity(GetParam());
  for (int64_t frames : {1, 5, 17, 19}) {
    at::Tensor clip = Clip(model, frames), latents = model.Encode(clip);
    // Chunks run one after the other here and side by side there: other shapes.
    if (model.config().chunk == 0 || frames <= model.config().chunk) {
      EXPECT_TRUE(at::equal(model.EncodeSequential(clip, frames), latents)) << frames;
    }
    EXPECT_TRUE(at::equal(model.DecodeSequential(latents, latents.size(1)), model.Decode(latents))) << frames;
    EXPECT_TRUE(at::equal(model.DecodeSequential(latents, latents.size(1), false), model.Decode(latents, false)));
  }
}

TEST_P(TaehvPieces, WithAForgottenMemoryGiveSomethingElse) {
  torch::NoGradGuard no_grad;
  Taehv model = ThinNearIdentity(GetParam());
  at::Tensor clip = Clip(model, 34), latents = model.Encode(clip);
  if (model.config().chunk == 0) {  // chunks know nothing of each other anyway
    EncoderStream stream(&model);
    int64_t half = model.config().TimeDown() * 2;
    stream.Push(clip.narrow(1, 0, half));
    stream.Reset();
    at::Tensor second = stream.Push(clip.narrow(1, half, half));
    EXPECT_GT(golden::Distance(second.narrow(1, 0, 1), latents.narrow(1, 2, 1)), 1e-3);
  }
  taehv::StackMemory none;
  at::Tensor alone = model.RunDecoder(latents.narrow(1, 1, 1).flatten(0, 1), 2, &none);
  taehv::StackMemory memory;
  model.RunDecoder(latents.narrow(1, 0, 1).flatten(0, 1), 2, &memory);
  at::Tensor after = model.RunDecoder(latents.narrow(1, 1, 1).flatten(0, 1), 2, &memory);
  EXPECT_GT(golden::Distance(alone, after), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Variants, TaehvPieces,
                         testing::Values("taehv", "taecvx", "taehv1_5", "taeh3", "taeltx_2", "taehv_super",
                                         "taeh3_super", "taew2_2_super", "taecvx_super"),
                         [](const auto& info) { return std::string(info.param); });

TEST(EncoderStream, GivesALatentWithItsLastFrameAndNotEarlier) {
  Taehv model = ThinNearIdentity("taehv");
  EncoderStream stream(&model);
  at::Tensor clip = Clip(model, 8);
  for (int64_t frame = 0; frame < 8; ++frame) {
    at::Tensor latent = stream.Push(clip.narrow(1, frame, 1));
    EXPECT_EQ(latent.defined(), frame % 4 == 3) << frame;
    EXPECT_EQ(stream.frames(), frame + 1);
  }
  EXPECT_FALSE(stream.Finish().defined());  // nothing was left
  EXPECT_EQ(stream.frames(), 0);
}

TEST(EncoderStream, HoldsBackWhatH3DropsUntilItKnowsTheEnd) {
  Taehv model = ThinNearIdentity("taeh3");
  EncoderStream stream(&model);
  at::Tensor clip = Clip(model, 18, 1);
  EXPECT_EQ(stream.Push(clip.narrow(1, 0, 17)).size(1), 2);  // five are done, three may be dropped
  EXPECT_FALSE(stream.Push(clip.narrow(1, 17, 1)).size(1) > 1);
  at::Tensor rest = stream.Finish();  // the second chunk is filled up: two and five, less three, are seven in all
  EXPECT_EQ(rest.size(1), 4);
}

TEST(DecoderStream, SuppressesStartUpFramesAndThenGivesAllOfALatent) {
  Taehv model = ThinNearIdentity("taehv");
  DecoderStream stream(&model);
  at::Tensor latents = model.Encode(Clip(model, 9));
  EXPECT_EQ(stream.Push(latents.narrow(1, 0, 1)).size(1), 1);
  EXPECT_EQ(stream.Push(latents.narrow(1, 1, 1)).size(1), 4);
  EXPECT_FALSE(stream.Finish().defined());
  EXPECT_EQ(stream.Push(latents.narrow(1, 0, 1)).size(1), 1);  // a new clip
}

TEST(DecoderStream, OfCogVideoXTrimsByTheNumberOfLatentsAndNotAtAllWhenItIsUnknown) {
  Taehv model = ThinNearIdentity("taecvx");
  at::Tensor latents = model.Encode(Clip(model, 12));
  DecoderStream odd(&model, 3), even(&model, 2), unknown(&model);
  EXPECT_EQ(InPieces(odd, latents, {1}).size(1), 9);
  EXPECT_EQ(InPieces(even, latents.narrow(1, 0, 2), {1}).size(1), 8);
  EXPECT_EQ(InPieces(unknown, latents, {1}).size(1), 12);
  odd.Push(latents.narrow(1, 0, 2));
  EXPECT_THROW(odd.Finish(), c10::Error);  // two came, three were announced
}

TEST(DecoderStream, OfH3GivesTheBlackFramesOfAClipThatNoEncoderMade) {
  torch::NoGradGuard no_grad;
  Taehv model = ThinNearIdentity("taeh3");
  for (int64_t count : {1, 3, 4, 5, 6, 9, 10}) {
    at::Tensor latents = StreamNoise({1, count, 24, 1, 2}), whole = model.Decode(latents);
    DecoderStream stream(&model);
    EXPECT_LT(golden::Distance(InPieces(stream, latents, {2}), whole), kSums) << count;
  }
}

TEST(EncoderStream, RefusesAnotherPictureSizeWithinAClip) {
  Taehv model = ThinNearIdentity("taehv");
  EncoderStream stream(&model);
  stream.Push(at::zeros({1, 1, 3, 16, 16}));
  try {
    stream.Push(at::zeros({1, 1, 3, 16, 24}));
    FAIL() << "took another size";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("must stay the same"));
  }
  stream.Reset();
  EXPECT_NO_THROW(stream.Push(at::zeros({1, 1, 3, 16, 24})));
  EXPECT_FALSE(EncoderStream(&model).Finish().defined());  // a clip without frames
}

// What a stream keeps does not depend on how much went through it.
TEST(EncoderStream, KeepsNoMoreAfterManyFrames) {
  Taehv model = ThinNearIdentity("taehv");
  taehv::StackMemory memory;
  auto bytes = [&] {
    size_t sum = 0;
    for (const auto& layer : memory.layers) {
      if (layer.frames.defined()) sum += layer.frames.storage().nbytes();
    }
    return sum;
  };
  torch::NoGradGuard no_grad;
  at::Tensor frames = Clip(model, 8).flatten(0, 1);
  model.RunEncoder(frames, 2, &memory);
  size_t first = bytes();
  EXPECT_GT(first, 0u);
  for (int i = 0; i < 5; ++i) model.RunEncoder(frames, 2, &memory);
  EXPECT_EQ(bytes(), first);
}

TEST(Streams, MakeNoGraph) {
  Taehv model = ThinNearIdentity("taehv");
  EncoderStream stream(&model);
  EXPECT_FALSE(stream.Push(Clip(model, 4)).requires_grad());
  EXPECT_FALSE(model.DecodeSequential(StreamNoise({1, 2, 16, 1, 1}), 1).requires_grad());
}

TEST(Preview, WithoutUpscalingGivesFewerAndSmallerFrames) {
  torch::NoGradGuard no_grad;
  for (bool super : {false, true}) {
    TaehvConfig config = *FindTaehv("taehv");
    config.decoder_width = {8, 4, 4, 4};
    config.super = super;
    config.decoder_time = {1, 2, 1};
    config.decoder_space = {2, 1, 1};
    Taehv model(config, 1);
    EXPECT_EQ(model.Decode(StreamNoise({1, 3, 16, 2, 2})).sizes(), at::IntArrayRef({1, 5, 3, 4, 4}));
    EXPECT_THAT(config.Check(12, 64, 64).message(), HasSubstr("preview"));
  }
}

}  // namespace
}  // namespace lockstep::models
