// When the parameters of units are whole at stage 3: the calls of engine/zero_units.cc for one pass, on sizes alone.
// Pure, any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::plan {

struct GatherLimits {
  int64_t prefetch = 0, reuse_distance = 0, live = 0;  // elements
};

// What is gathered while a unit computes.
struct Gathered {
  int64_t elements = 0;
  int buffers = 0;  // pieces of memory, where each holds the largest unit
};

// `sizes`: elements of each unit; 0: nothing of it is sharded. The result has one entry for each use: units forward,
// then backward.
std::vector<Gathered> GatheredInPass(const std::vector<int64_t>& sizes, const GatherLimits& limits);

}  // namespace lockstep::plan
