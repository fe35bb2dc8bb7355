// First weights as a pure function: element i of a named parameter depends on (seed, name, i) alone, so that a rank can
// draw any piece of any parameter without the rest. Counter-based, as data/random.h; any thread.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string_view>

namespace lockstep::models {

// Elements [begin, begin + out.numel()) of the stream (seed, name), normally distributed around 0. `out` is contiguous
// float32 on any device; values are computed on the host, by torch's threads.
void DrawNormal(uint64_t seed, std::string_view name, int64_t begin, double deviation, const at::Tensor& out);

// The same between -bound and bound, both excluded.
void DrawUniform(uint64_t seed, std::string_view name, int64_t begin, double bound, const at::Tensor& out);

}  // namespace lockstep::models
