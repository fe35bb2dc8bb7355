// The arithmetic of collectives: sums (or maxima, minima) of n arrays in one fixed order, the balanced pairwise tree
// ((0+1)+(2+3))+4. bf16 and f16 are added in f32 and rounded once (to nearest, ties to even) when stored as such. A NaN
// wins every maximum and minimum. Integer sums wrap. Pure functions, any thread.
#pragma once

#include <cstddef>

#include "comm/communicator.h"

namespace lockstep::comm {

// memcpy between buffers that do not overlap, as fast whatever their alignment.
void CopyBytes(void* to, const void* from, size_t bytes);

// The type partial results have: f32 for the 16-bit types, else the type itself.
DType AccumulatorOf(DType dtype);

// outs[k][i] = tree over r of sources[r][i], for every k. An output may be one of the sources, exactly. `in` and `out`
// differ only as a type and its accumulator do.
void ReduceTree(const void* const* sources, int n, DType in, void* const* outs, int n_outs, DType out, size_t count,
                Op op);

}  // namespace lockstep::comm
