// What a block of VRT does between its matrix products, as CUDA kernels: attention inside windows that reads and writes
// tokens where they lie in the clip (no roll, no gather, no attention matrix), norms, GEGLU, residuals. Only where
// Usable says so; half precision, sums in float32 and in a fixed order. Safe while a CUDA graph records; no
// synchronisation.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace lockstep::models::vrt::kernels {

bool Usable(const at::Device& device, at::ScalarType type);
// Whether rows of this width, or windows of this many frames with heads of this size, are within what the kernels are
// written for.
bool FitsRows(int64_t width);
bool FitsWindows(int64_t depth, int64_t head_size);

struct Normed {
  at::Tensor normed, stats;  // stats: [rows, 2], mean and inverse deviation
};
// LayerNorm of rows [N, width]; weight and bias in float32.
Normed Norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon);

struct NormGradients {
  at::Tensor dx;            // `along` + the norm's
  at::Tensor normed;        // what it gave in forward, where wanted
  at::Tensor weight, bias;  // float32
  at::Tensor along;         // sums of factor[clip] * along over rows, float32
};
// `along` and `factor` may be undefined.
NormGradients NormBackward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& stats, const at::Tensor& weight,
                           const at::Tensor& bias, const at::Tensor& along, const at::Tensor& factor,
                           bool with_normed = true);

// gelu(gate) * value: [N, 2 * width] -> [N, width].
at::Tensor Geglu(const at::Tensor& both);
// `both` becomes its own gradient, and the gradient of the output becomes the output. The former's sums over rows,
// float32.
at::Tensor GegluBackward(const at::Tensor& both, const at::Tensor& d_out);

// x + factor[clip] * y, rows [clips * N, width]; x and factor (float32, [clips]) may be undefined.
at::Tensor Residual(const at::Tensor& x, const at::Tensor& y, const at::Tensor& factor);

// Columns [first, first + width) of rows to columns [to_first, ...) of others; zeros where `from` is undefined. All in
// eights.
void MoveColumns(const at::Tensor& from, int64_t first, const at::Tensor& to, int64_t to_first, int64_t width);

// [parts, ...] -> [...], float32. `like` is of the type that the kernels were made for.
at::Tensor SumParts(const at::Tensor& like, const at::Tensor& parts);

// Sums of the first `columns` columns (0: all) of rows [N, width], float32.
at::Tensor ColumnSums(const at::Tensor& x, int64_t columns = 0);

// Windows of `depth` x 8 x 8 tokens in clips whose sizes they divide.
struct Windows {
  int64_t clips, frames, rows, columns;
  int64_t depth;
  std::array<int64_t, 3> shift;
  int64_t heads, width;
  double scale;
  bool mutual;  // columns of qkv: self, then mutual; of the output: mutual, then self
};

struct Attended {
  at::Tensor out;  // [tokens, width], twice that where mutual
  at::Tensor lse;  // [tokens, heads of all], in units of log2
};
// qkv [tokens, 3 * width] (mutual: 6 *), code [64, 3 * width] of places in a frame, added to the mutual part; bias
// [heads, 2 * depth - 1, 225] of the self part in units of log2, float32.
Attended Attend(const at::Tensor& qkv, const at::Tensor& code, const at::Tensor& bias, const Windows& windows);

// What a forward pass needs that keeps nothing.
struct WindowParameters {
  at::Tensor norm, norm_bias;  // float32
  at::Tensor qkv, qkv_bias;    // [3 * width (mutual: 6 *), width], the type of x; the bias may be undefined
  at::Tensor code, table;      // as `code` and `bias` above
};
bool FitsWindowsOf(const at::Tensor& x, const Windows& windows);
// What Attend gives for the queries, keys and values of the norm of x: [tokens, width]. One kernel.
Attended AttendWindows(const at::Tensor& x, const WindowParameters& parameters, const Windows& windows, double epsilon,
                       bool with_lse);

struct AttendGradients {
  at::Tensor qkv;
  at::Tensor table;   // [(2 * depth - 1) * 225, heads], float32
  at::Tensor places;  // [64, 3 * width], float32: of the mutual part, sums over windows and frames
  at::Tensor out;     // of forward, where `attended` had none
};
// Whether backward makes attention again by itself: `attended` may then be empty.
bool AttendsAgain(const at::Tensor& qkv, const Windows& windows);
AttendGradients AttendBackward(const at::Tensor& d_out, const at::Tensor& qkv, const at::Tensor& code,
                               const at::Tensor& bias, const Attended& attended, const Windows& windows);

}  // namespace lockstep::models::vrt::kernels
