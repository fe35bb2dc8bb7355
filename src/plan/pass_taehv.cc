// A pass of TAEHV in its fast execution: models/fused.cc (which layers run together), models/fused_blocks.cc (what they
// keep), recipes/taehv.cc (loss of the joint mode). The wide decoder's layers run as they are; what they keep is
// counted as if each were a block of the same width, and is an estimate.
#include <algorithm>

#include "plan/layout.h"
#include "plan/pass.h"

namespace lockstep::plan {
namespace {

// One of the six stages, which are the units.
struct StageMemory {
  std::string name;
  int64_t input = 0;      // bytes of what comes in
  int64_t keeps = 0;      // for backward, the input not counted
  int64_t temporary = 0;  // in backward, while all of it is kept
  double flops = 0;       // forward
};

struct Walk {
  const TaehvSample& s;
  int64_t bytes;  // of an element that is computed with
  bool gpu;
  int64_t n, h, w;  // frames of all clips, and their size

  int64_t Picture(int64_t channels) const { return n * channels * h * w * bytes; }
  // Three memory blocks: each frame with the one before it, and two hidden ones, of each block; the output. Then the
  // weights in the type of computing.
  int64_t Blocks(int64_t c) const { return 13 * Picture(c) + 3 * 36 * c * c * bytes; }
  // In backward: the gradient that came, that of the third convolution, of both hidden ones, of a frame with its past.
  int64_t BlocksBackward(int64_t c) const { return 6 * Picture(c); }
  double BlocksFlops(int64_t c) const { return 3.0 * 2 * 9 * 4 * static_cast<double>(c * c * n * h * w); }
  double ConvFlops(int64_t in, int64_t out, int64_t taps) const {
    return 2.0 * static_cast<double>(taps * in * out) * static_cast<double>(n * h * w);
  }
};

std::vector<StageMemory> StagesOf(const TaehvSample& s, const Setting& setting, int64_t samples) {
  const int64_t down = s.encoder_time[0] * s.encoder_time[1] * s.encoder_time[2];
  Walk walk{
      s, setting.compute_bytes, setting.gpu, samples * RoundUp(s.frames, down), s.height / s.patch, s.width / s.patch};
  std::vector<StageMemory> stages;
  const int64_t colours = 3 * s.patch * s.patch;
  for (size_t i = 0; i < 3; ++i) {
    StageMemory stage{.name = "encoder." + std::to_string(i)};
    const int64_t time = s.encoder_time[i], wide = s.encoder_width[i], c = s.encoder_width[i + 1];
    int64_t pooled_from = 0;
    if (i == 0) {
      const int64_t have = time * colours, groups = walk.n / time;
      const bool thin = walk.gpu && 3 * have <= 32;
      const int64_t channels = thin ? 32 : walk.gpu ? RoundUp(have, 8) : have;
      pooled_from = walk.Picture(wide);
      stage.keeps = groups * channels * walk.h * walk.w * walk.bytes + pooled_from;
      stage.flops = walk.ConvFlops(colours, wide, 9);
    } else {
      stage.input = walk.Picture(wide);
    }
    walk.n /= time, walk.h /= 2, walk.w /= 2;
    stage.flops += walk.ConvFlops(time * wide, c, 9) + walk.BlocksFlops(c);
    stage.keeps += walk.Blocks(c);
    stage.temporary = std::max(walk.BlocksBackward(c), 2 * pooled_from - walk.Blocks(c));
    if (i == 2) stage.flops += walk.ConvFlops(c, s.latent, 9);
    stages.push_back(std::move(stage));
  }
  int64_t phases = walk.Picture(s.latent);
  for (size_t i = 0; i < 3; ++i) {
    StageMemory stage{.name = "decoder." + std::to_string(i), .input = phases};
    const int64_t time = s.decoder_time[i], space = s.decoder_space[i], c = s.decoder_width[i];
    const int64_t next = s.decoder_width[i + 1];
    if (i == 0) {
      stage.keeps += 2 * walk.Picture(RoundUp(s.latent, 8)) + walk.Picture(c);
      stage.flops += walk.ConvFlops(s.latent, c, 9);
    }
    stage.keeps += walk.Blocks(c);
    stage.flops += walk.BlocksFlops(c);
    stage.temporary = walk.BlocksBackward(c);
    const int64_t blocks = walk.Picture(c);
    const int64_t edge = space == 2 ? 1 : 0;
    const int64_t grown = walk.n * time * (space == 2 ? 4 : 1) * next * (walk.h + edge) * (walk.w + edge) * walk.bytes;
    stage.flops += 2.0 * (space == 2 ? 4 * 4 : 9) * static_cast<double>(c * time * next) *
                   static_cast<double>(walk.n * (walk.h + edge) * (walk.w + edge));
    walk.n *= time, walk.h *= space, walk.w *= space;
    if (i == 2) {
      // The last convolution's input is kept; in backward its gradient exists twice, before and after ReLU's, beside
      // that of the blocks' output.
      stage.keeps += grown + walk.Picture(colours);
      stage.temporary = std::max(stage.temporary, 2 * grown + blocks);
      stage.flops += walk.ConvFlops(next, colours, space == 2 ? 16 : 9);
    } else {
      stage.temporary = std::max(stage.temporary, 2 * grown);
      phases = grown;
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

int64_t FrameBytes(const TaehvSample& s, int64_t samples, int64_t bytes) {
  return samples * s.frames * 3 * s.height * s.width * bytes;
}

}  // namespace

std::vector<Moment> TaehvMoments(const TaehvSample& s, const Setting& setting, int64_t samples) {
  const std::vector<StageMemory> stages = StagesOf(s, setting, samples);
  const bool again = setting.recompute;
  // Frames as bytes (also those of the next step) and as float32.
  const int64_t frames = 2 * FrameBytes(s, samples, 1) + FrameBytes(s, samples, 4);
  std::vector<int64_t> upto = {frames};  // kept by the first i stages
  for (const StageMemory& stage : stages) {
    // What comes in is kept by the stage before, but for a picture that the blocks copy.
    upto.push_back(upto.back() + (again ? stage.input : stage.keeps));
  }
  std::vector<Moment> moments;
  // The decoded clip in the type of computing and in float32, clamped in between.
  const int64_t decoded = FrameBytes(s, samples, 4);
  moments.push_back(
      {"loss", -1, false, upto.back() + decoded, decoded + FrameBytes(s, samples, setting.compute_bytes)});
  for (size_t i = stages.size(); i-- > 0;) {
    const int64_t kept = upto[i + 1] + (again ? stages[i].keeps : 0);
    moments.push_back({"backward of " + stages[i].name, static_cast<int>(i), true, kept, stages[i].temporary});
  }
  return moments;
}

Work TaehvWork(const TaehvSample& s, const Setting& setting, int64_t samples) {
  Work work;
  for (const StageMemory& stage : StagesOf(s, setting, samples)) work.forward_flops += stage.flops;
  work.backward_flops = (setting.recompute ? 3 : 2) * work.forward_flops;
  work.convolutions = true;
  work.kernels = setting.recompute ? 1900 : 1500;
  return work;
}

}  // namespace lockstep::plan
