// Frames of a clip beside their neighbours, for the warping of a stage: what is warped, what it is warped to, and both
// results side by side. The same values on every device; on a GPU gradients are added frame by frame, where autograd
// would make and add whole clips of zeros.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::models::vrt {

// Frames [first, first + count) of [b, n, ...], zeros where there are none.
at::Tensor FramesOrZeros(const at::Tensor& x, int64_t first, int64_t count);

struct Neighbours {
  std::vector<at::Tensor> sources;  // of each hop, [b * 2 (n - 1), h, w, c]: frame t + hop, then t - hop
  at::Tensor current;               // the frames they are warped to
};
// Of clips [b, n, h, w, c].
Neighbours NeighboursOf(const at::Tensor& x, int64_t hops);

// [b, n, h, w, 3 c]: x, what came from the next frame (none for the last), what came from the one before (none for the
// first). `aligned` [b * 2 (n - 1), h, w, c], as above.
at::Tensor BesideNeighbours(const at::Tensor& x, const at::Tensor& aligned);

}  // namespace lockstep::models::vrt
