// `lockstep cache build` without a recipe: an encoder, data, and where its features go, from a small configuration of
// their own (docs/feature-cache.md).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "cache/build.h"
#include "data/sources.h"
#include "recipes/clip_encoder.h"

namespace lockstep::recipes {

struct EncoderCacheConfig {
  ClipEncoderConfig encoder;
  uint64_t batch = 8;           // records encoded at once
  std::string device = "auto";  // of a TorchScript file
  data::SourceConfig clips{.frames = 1, .height = 224, .width = 224};
  std::string index;  // file of `lockstep data index`
  int threads = 2;    // that decode
  std::string root;
  double max_error = 0.1;
};
void Declare(ConfigReader& reader, EncoderCacheConfig* config);
// The file (may be empty) with assignments "key=value", which win over it.
Result<EncoderCacheConfig> ReadEncoderCacheConfig(const std::string& file, const std::vector<std::string>& assignments);

// One process of a build; returns when all samples are encoded, by whomever.
Status BuildEncoderCache(const EncoderCacheConfig& config, at::Device device, const cache::BuildOptions& options);

}  // namespace lockstep::recipes
