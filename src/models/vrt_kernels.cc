#include "models/vrt_kernels.h"

#include <torch/types.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "cuda/kernel_source.h"
#include "models/vrt_backward_source.h"
#include "models/vrt_row_source.h"
#include "models/vrt_shallow_source.h"
#include "models/vrt_source.h"
#include "models/vrt_window_source.h"

namespace lockstep::models::vrt::kernels {
namespace {

// Those of attention come three times: for heads of up to 16, 24 and 32 elements.
enum AttentionKernel {
  kForward,
  kForwardMutual,
  kBackward,
  kBackwardKeys,
  kBackwardMutual,
  kBias,
  kBiasDeep,
  kQueries,
  kOneFrame,
  kTwoFrames,
  kMutual,
  kPerSize
};
#define LOCKSTEP_NAMES(P)                                                                                \
  "forward_" P, "forward_mutual_" P, "backward_" P, "backward_keys_" P, "backward_mutual_" P, "bias_" P, \
      "bias_deep_" P, "queries_" P, "one_frame_" P, "two_frames_" P, "mutual_" P
constexpr const char* kAttentionNames[] = {
    LOCKSTEP_NAMES("16"), LOCKSTEP_NAMES("24"), LOCKSTEP_NAMES("32"), "delta",
    "bias_table",         "place_sums",         "window_96",          "window_120"};
#undef LOCKSTEP_NAMES
enum { kDelta = 3 * kPerSize, kBiasTable, kPlaceSums, kWindow96, kWindow120, kAttentionKernels };
static_assert(std::size(kAttentionNames) == kAttentionKernels);

// Norms come three times: for rows of up to 128, 256 and 512 elements.
enum RowKernel {
  kNorm,
  kNormBackward,
  kGeglu = 6,
  kGegluBackward,
  kResidual,
  kColumnSums,
  kSumParts,
  kMoveColumns,
  kRowKernels
};
constexpr const char* kRowNames[] = {"layer_norm_128", "layer_norm_backward_128",
                                     "layer_norm_256", "layer_norm_backward_256",
                                     "layer_norm_512", "layer_norm_backward_512",
                                     "geglu",          "geglu_backward",
                                     "residual",       "column_sums",
                                     "sum_parts",      "move_columns"};
static_assert(std::size(kRowNames) == kRowKernels);

int OfWidth(RowKernel norm, int64_t width) { return norm + (width <= 128 ? 0 : width <= 256 ? 2 : 4); }

cuda::KernelSource& AttentionKernels() {
  static const std::string text = std::string(kAttentionSource) + kBackwardSource + kShallowSource + kWindowSource;
  static cuda::KernelSource source("VRT's attention", text.c_str(),
                                   {std::begin(kAttentionNames), std::end(kAttentionNames)});
  return source;
}

cuda::KernelSource& RowKernels() {
  static cuda::KernelSource source("VRT", kRowSource, {std::begin(kRowNames), std::end(kRowNames)});
  return source;
}

constexpr int64_t kPlaces = 64, kPairPlaces = 225;  // of a frame of a window, and differences between two
constexpr unsigned kFlatBlocks = 132 * 16;          // sixteen for each multiprocessor
constexpr unsigned kNormBlocks = 132 * 4;
constexpr unsigned kGegluBlocks = 132 * 6;
constexpr int64_t kGegluThreads = 256;
constexpr unsigned kSumBlocks = 132 * 4;
constexpr int64_t kSumThreads = 512;
constexpr int64_t kBiasBlocks = 132;  // of 384 threads that the gradient of the bias is divided into; more smaller ones
constexpr int kMostDepth = 8;
constexpr unsigned kPlaceSplits = 16;

// As the struct of the source.
struct AttentionArgs {
  const void *qkv, *code, *bias;
  void *out, *lse;
  const void *d_out, *delta;
  void *d_qkv, *d_bias;
  int stride, first, width, heads, size, out_stride, out_first, lse_stride, lse_first;
  int frames, rows, columns, depth, shift_d, shift_h, shift_w, windows;
  float scale;
};

struct WindowArgs {
  AttentionArgs attention;
  const void *x, *weight, *norm, *norm_bias, *qkv_bias;
  float epsilon;
  int windows;
};

int Int(int64_t x) { return static_cast<int>(x); }

AttentionArgs ArgsOf(const at::Tensor& qkv, const Windows& w) {
  AttentionArgs a{};
  a.qkv = cuda::Address(qkv);
  a.stride = Int(qkv.size(1)), a.width = Int(w.width), a.heads = Int(w.heads), a.size = Int(w.width / w.heads);
  a.out_stride = Int(w.mutual ? 2 * w.width : w.width), a.lse_stride = Int(w.mutual ? 2 * w.heads : w.heads);
  a.frames = Int(w.frames), a.rows = Int(w.rows), a.columns = Int(w.columns), a.depth = Int(w.depth);
  a.shift_d = Int(w.shift[0]), a.shift_h = Int(w.shift[1]), a.shift_w = Int(w.shift[2]);
  a.windows = Int(w.clips * w.frames / w.depth * (w.rows / 8) * (w.columns / 8));
  a.scale = static_cast<float>(w.scale);
  return a;
}

// The same for one of the two parts.
AttentionArgs PartOf(AttentionArgs a, const Windows& w, bool mutual, const at::Tensor& code, const at::Tensor& bias) {
  a.first = mutual ? 3 * a.width : 0;
  a.out_first = w.mutual && !mutual ? a.width : 0;
  a.lse_first = w.mutual && !mutual ? a.heads : 0;
  a.code = mutual ? cuda::Address(code) : nullptr;
  a.bias = mutual ? nullptr : cuda::Address(bias);
  return a;
}

// Bytes of shared memory of a block with `tensors` windows in it, as the source lays them out.
unsigned SharedBytes(const AttentionArgs& a, int tensors) {
  const int tokens = Int(kPlaces) * a.depth, stride = a.size <= 24 ? 24 : 40;
  return static_cast<unsigned>(tensors * tokens * stride * 2 + ((2 * a.depth - 1) * Int(kPairPlaces) + 1) * 4 +
                               3 * tokens * 4);
}

int SizeOf(const AttentionArgs& a) { return a.size <= 16 ? 0 : a.size <= 24 ? 1 : 2; }

// Of queries_*: two windows of four tensors, and the parts of queries' gradients that warps give each other.
constexpr int kQueryGroups = 3, kMostQuerySlots = 4;
int64_t QueriesShared(const AttentionArgs& a) {
  const int64_t tokens = kPlaces * a.depth, stride = a.size <= 24 ? 24 : 40, padded = 16 + 8 * SizeOf(a);
  return 8 * tokens * stride * 2 + 6 * tokens * 4 + ((2 * a.depth - 1) * kPairPlaces + 1) * 4 + 16 * 16 * padded * 4;
}
bool FitsQueries(const at::Tensor& like, const AttentionArgs& a) {
  return a.depth > 2 && 2 * a.depth - 1 <= kQueryGroups * kMostQuerySlots &&
         QueriesShared(a) <= cuda::MostShared(like.device());
}

// Of one_frame_*, two_frames_* and mutual_*: a window, and shares of attention with their gradients.
constexpr int kShallowFrames = 2;
int64_t ShallowShared(const AttentionArgs& a, bool mutual) {
  const int64_t tokens = kPlaces * a.depth, keys = mutual ? kPlaces : tokens, stride = a.size <= 24 ? 24 : 40;
  return 2 * tokens * (4 * stride + 2 * (keys + 8)) + ((2 * a.depth - 1) * kPairPlaces + 1) * 4 + tokens * 4;
}
int ShallowSplits(const AttentionArgs& a) {
  const int64_t blocks = kBiasBlocks * (a.depth == 1 ? 4 : 2);  // as many as run at once
  return Int(std::clamp<int64_t>(blocks / a.heads, 1, a.windows));
}
void LaunchShallow(const at::Tensor& like, AttentionKernel kernel, AttentionArgs a, const at::Tensor& places) {
  void* to = cuda::Address(places);
  AttentionKernels().Launch(
      like, kernel + SizeOf(a) * kPerSize,
      {static_cast<unsigned>(ShallowSplits(a)), static_cast<unsigned>(a.heads), static_cast<unsigned>(128 * a.depth), 1,
       static_cast<unsigned>(ShallowShared(a, kernel == kMutual))},
      {&a, &to});
}

// The table's gradient from its parts.
void SumBias(const at::Tensor& like, const at::Tensor& parts, const at::Tensor& table) {
  void *from = cuda::Address(parts), *to = cuda::Address(table);
  int splits = Int(parts.size(0)), heads = Int(parts.size(1)), positions = Int(parts.size(2));
  AttentionKernels().Launch(like, kBiasTable, {static_cast<unsigned>((table.numel() + 127) / 128), 1, 128},
                            {&from, &to, &splits, &heads, &positions});
}

void LaunchAttention(const at::Tensor& like, AttentionKernel kernel, AttentionArgs a, cuda::Grid grid, int tensors) {
  grid.shared = kernel == kQueries ? static_cast<unsigned>(QueriesShared(a)) : SharedBytes(a, tensors);
  AttentionKernels().Launch(like, kernel + SizeOf(a) * kPerSize, grid, {&a});
}

// A block for each window and head; its warps share tiles of 16 tokens evenly.
cuda::Grid WindowGrid(const AttentionArgs& a) {
  int warps = 8;
  while (4 * a.depth % warps != 0) --warps;
  return {static_cast<unsigned>(a.windows), static_cast<unsigned>(a.heads), static_cast<unsigned>(32 * warps)};
}

constexpr int kWindowFrames = 6;  // at most, of all windows of a block of threads: a warp for 16 tokens

// Of heads that the kernel for this width holds; 0: there is none.
int64_t MostHeadSize(int64_t width) { return width == 96 ? 16 : width == 120 ? 24 : 0; }

int64_t WindowShared(const Windows& w) {
  const int64_t tokens = kPlaces * w.depth * (kWindowFrames / w.depth), row = w.width % 16 == 0 ? w.width + 8 : w.width;
  return 2 * (tokens * row + 6 * MostHeadSize(w.width) * row + 4 * tokens * 24) +
         4 * (2 * ((2 * w.depth - 1) * kPairPlaces + 1) + tokens);
}

}  // namespace

bool Usable(const at::Device& device, at::ScalarType type) {
  if (!device.is_cuda() || (type != at::kBFloat16 && type != at::kHalf)) return false;
  return AttentionKernels().Usable(device, type) && RowKernels().Usable(device, type);
}

bool FitsRows(int64_t width) { return width % 4 == 0 && width <= 512; }
bool FitsWindows(int64_t depth, int64_t head_size) {
  return depth <= kMostDepth && head_size % 2 == 0 && head_size <= 32;
}

at::Tensor SumParts(const at::Tensor& like, const at::Tensor& parts) {
  const at::Tensor out = at::empty(parts.sizes().slice(1), parts.options());
  int number = Int(parts.size(0)), count = Int(out.numel());
  void *from = cuda::Address(parts), *to = cuda::Address(out);
  RowKernels().Launch(like, kSumParts, {static_cast<unsigned>((count + 31) / 32), 1, 512},
                      {&from, &to, &number, &count});
  return out;
}

void MoveColumns(const at::Tensor& from, int64_t first, const at::Tensor& to, int64_t to_first, int64_t width) {
  int64_t rows = to.size(0);
  if (rows == 0) return;
  int stride = Int(from.defined() ? from.size(1) : 0), to_stride = Int(to.size(1)), begin = Int(first);
  int to_begin = Int(to_first), columns = Int(width);
  void *x = cuda::Address(from), *y = cuda::Address(to);
  RowKernels().Launch(to, kMoveColumns, {kFlatBlocks, 1, 256},
                      {&x, &stride, &begin, &y, &to_stride, &to_begin, &rows, &columns});
}

Normed Norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  int64_t rows = x.size(0);
  int width = Int(x.size(1));
  auto eps = static_cast<float>(epsilon);
  Normed out{at::empty_like(x), at::empty({rows, 2}, x.options().dtype(at::kFloat))};
  void *from = cuda::Address(x), *w = cuda::Address(weight), *b = cuda::Address(bias), *to = cuda::Address(out.normed),
       *stats = cuda::Address(out.stats);
  RowKernels().Launch(x, OfWidth(kNorm, width), {kFlatBlocks, 1, 256},
                      {&from, &w, &b, &to, &stats, &rows, &width, &eps});
  return out;
}

NormGradients NormBackward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& stats, const at::Tensor& weight,
                           const at::Tensor& bias, const at::Tensor& along, const at::Tensor& factor,
                           bool with_normed) {
  int64_t rows = x.size(0);
  int width = Int(x.size(1)), rows_of_clip = Int(factor.defined() ? rows / factor.numel() : rows);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(kNormBlocks, (rows + 7) / 8));
  const at::Tensor partial = at::empty({blocks, 3, width}, x.options().dtype(at::kFloat));
  NormGradients out{at::empty_like(x), with_normed ? at::empty_like(x) : at::Tensor(), {}, {}, {}};
  void *d = cuda::Address(dy), *from = cuda::Address(x), *s = cuda::Address(stats), *w = cuda::Address(weight),
       *b = cuda::Address(bias), *more = cuda::Address(along), *f = cuda::Address(factor), *dx = cuda::Address(out.dx),
       *normed = cuda::Address(out.normed), *parts = cuda::Address(partial);
  RowKernels().Launch(x, OfWidth(kNormBackward, width), {blocks, 1, 256},
                      {&d, &from, &s, &w, &b, &more, &f, &rows_of_clip, &dx, &normed, &parts, &rows, &width});
  const at::Tensor sums = SumParts(x, partial);
  out.weight = sums[0], out.bias = sums[1], out.along = sums[2];
  return out;
}

at::Tensor Geglu(const at::Tensor& both) {
  int64_t rows = both.size(0);
  int width = Int(both.size(1) / 2);
  const at::Tensor out = at::empty({rows, width}, both.options());
  void *from = cuda::Address(both), *to = cuda::Address(out);
  RowKernels().Launch(both, kGeglu, {kFlatBlocks, 1, 256}, {&from, &to, &rows, &width});
  return out;
}

at::Tensor GegluBackward(const at::Tensor& both, const at::Tensor& d_out) {
  int64_t rows = both.size(0);
  int width = Int(both.size(1) / 2);
  const int64_t eighths = width / 8, rows_of_block = kGegluThreads / eighths;
  const auto blocks =
      static_cast<unsigned>(std::min<int64_t>(kGegluBlocks, (rows + rows_of_block - 1) / rows_of_block));
  const at::Tensor partial = at::empty({blocks, 2 * width}, both.options().dtype(at::kFloat));
  void *from = cuda::Address(both), *d = cuda::Address(d_out), *to = cuda::Address(partial);
  RowKernels().Launch(both, kGegluBackward, {blocks, 1, static_cast<unsigned>(rows_of_block * eighths)},
                      {&from, &d, &to, &rows, &width});
  return SumParts(both, partial);
}

at::Tensor Residual(const at::Tensor& x, const at::Tensor& y, const at::Tensor& factor) {
  const at::Tensor out = at::empty_like(y);
  int64_t quads = y.numel() / 4, of_clip = factor.defined() ? quads / factor.numel() : quads;
  void *from = cuda::Address(x), *more = cuda::Address(y), *f = cuda::Address(factor), *to = cuda::Address(out);
  RowKernels().Launch(y, kResidual, {kFlatBlocks, 1, 256}, {&from, &more, &f, &to, &quads, &of_clip});
  return out;
}

at::Tensor ColumnSums(const at::Tensor& x, int64_t first_columns) {
  int64_t rows = x.size(0);
  int stride = Int(x.size(1)), columns = first_columns > 0 ? Int(first_columns) : stride;
  const int64_t quads = columns / 4, rows_of_block = kSumThreads / quads;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(kSumBlocks, (rows + rows_of_block - 1) / rows_of_block));
  const at::Tensor partial = at::empty({blocks, columns}, x.options().dtype(at::kFloat));
  void *from = cuda::Address(x), *to = cuda::Address(partial);
  RowKernels().Launch(x, kColumnSums, {blocks, 1, static_cast<unsigned>(quads * rows_of_block)},
                      {&from, &to, &rows, &columns, &stride});
  return SumParts(x, partial);
}

Attended Attend(const at::Tensor& qkv, const at::Tensor& code, const at::Tensor& bias, const Windows& w) {
  AttentionArgs a = ArgsOf(qkv, w);
  Attended out{at::empty({qkv.size(0), a.out_stride}, qkv.options()),
               at::empty({qkv.size(0), a.lse_stride}, qkv.options().dtype(at::kFloat))};
  a.out = cuda::Address(out.out), a.lse = cuda::Address(out.lse);
  LaunchAttention(qkv, kForward, PartOf(a, w, false, code, bias), WindowGrid(a), 3);
  if (w.mutual) LaunchAttention(qkv, kForwardMutual, PartOf(a, w, true, code, bias), WindowGrid(a), 3);
  return out;
}

bool FitsWindowsOf(const at::Tensor& x, const Windows& w) {
  return w.depth <= kWindowFrames && w.heads >= 2 && w.width / w.heads <= MostHeadSize(w.width) &&
         WindowShared(w) <= cuda::MostShared(x.device());
}

Attended AttendWindows(const at::Tensor& x, const WindowParameters& p, const Windows& w, double epsilon,
                       bool with_lse) {
  const int64_t parts = w.mutual ? 2 : 1;
  Attended result{at::empty({x.size(0), parts * w.width}, x.options()), {}};
  if (with_lse) result.lse = at::empty({x.size(0), parts * w.heads}, x.options().dtype(at::kFloat));
  WindowArgs args{ArgsOf(x, w),
                  cuda::Address(x),
                  cuda::Address(p.qkv),
                  cuda::Address(p.norm),
                  cuda::Address(p.norm_bias),
                  cuda::Address(p.qkv_bias),
                  static_cast<float>(epsilon),
                  kWindowFrames / Int(w.depth)};
  args.attention.out = cuda::Address(result.out), args.attention.lse = cuda::Address(result.lse);
  args.attention.code = w.mutual ? cuda::Address(p.code) : nullptr;
  args.attention.bias = cuda::Address(p.table);
  const int blocks = (args.attention.windows + args.windows - 1) / args.windows;
  AttentionKernels().Launch(
      x, w.width == 96 ? kWindow96 : kWindow120,
      {static_cast<unsigned>(blocks), 1, static_cast<unsigned>(4 * 32 * args.attention.depth * args.windows), 1,
       static_cast<unsigned>(WindowShared(w))},
      {&args});
  return result;
}

bool AttendsAgain(const at::Tensor& qkv, const Windows& w) {
  const AttentionArgs a = ArgsOf(qkv, w);
  return w.depth <= kShallowFrames && ShallowShared(a, false) <= cuda::MostShared(qkv.device());
}

AttendGradients AttendBackward(const at::Tensor& d_out, const at::Tensor& qkv, const at::Tensor& code,
                               const at::Tensor& bias, const Attended& attended, const Windows& w) {
  const auto floats = qkv.options().dtype(at::kFloat);
  const int64_t positions = (2 * w.depth - 1) * kPairPlaces;
  AttendGradients result{at::empty_like(qkv), at::empty({positions, w.heads}, floats), {}, {}};
  AttentionArgs a = ArgsOf(qkv, w);
  a.d_out = cuda::Address(d_out), a.d_qkv = cuda::Address(result.qkv);
  if (AttendsAgain(qkv, w)) {
    if (!attended.out.defined()) result.out = at::empty({qkv.size(0), a.out_stride}, qkv.options());
    a.out = cuda::Address(result.out);
    const at::Tensor parts = at::empty({ShallowSplits(a), w.heads, positions}, floats);
    AttentionArgs self = PartOf(a, w, false, code, bias);
    self.d_bias = cuda::Address(parts);
    LaunchShallow(qkv, w.depth == 1 ? kOneFrame : kTwoFrames, self, {});
    SumBias(qkv, parts, result.table);
    if (!w.mutual) return result;
    const at::Tensor places = at::empty({2 * ShallowSplits(a), kPlaces, 3 * w.width}, floats);
    LaunchShallow(qkv, kMutual, PartOf(a, w, true, code, bias), places);
    result.places = SumParts(qkv, places);
    return result;
  }
  const at::Tensor delta = at::empty_like(attended.lse);
  {
    void *d = cuda::Address(d_out), *out = cuda::Address(attended.out), *to = cuda::Address(delta);
    int64_t count = delta.numel();
    int size = a.size;
    AttentionKernels().Launch(qkv, kDelta, {kFlatBlocks, 1, 256}, {&d, &out, &to, &count, &size});
  }
  a.lse = cuda::Address(attended.lse), a.delta = cuda::Address(delta);
  const AttentionArgs self = PartOf(a, w, false, code, bias);
  const bool queries = FitsQueries(qkv, a);  // with the bias; else with keys and values
  LaunchAttention(qkv, queries ? kBackwardKeys : kBackward, self, WindowGrid(a), 4);
  if (w.mutual) LaunchAttention(qkv, kBackwardMutual, PartOf(a, w, true, code, bias), WindowGrid(a), 4);
  // A warp has four differences between frames (deep windows: five) and one of four tiles.
  const int64_t apart = 2 * w.depth - 1, slots = apart > 12 ? 5 : 4;
  const int64_t groups = queries ? kQueryGroups : (apart + slots - 1) / slots;
  const int splits = Int(std::clamp<int64_t>(kBiasBlocks * (groups == 1 ? 3 : 1) / w.heads, 1, a.windows));
  const at::Tensor parts = at::empty({splits, w.heads, positions}, floats);
  AttentionArgs for_bias = self;
  for_bias.d_bias = cuda::Address(parts);
  LaunchAttention(qkv,
                  queries      ? kQueries
                  : slots == 5 ? kBiasDeep
                               : kBias,
                  for_bias,
                  {static_cast<unsigned>(splits), static_cast<unsigned>(w.heads), static_cast<unsigned>(128 * groups)},
                  4);
  SumBias(qkv, parts, result.table);
  if (!w.mutual) return result;
  const at::Tensor places = at::empty({kPlaceSplits, kPlaces, 3 * w.width}, floats);
  {
    void *from = cuda::Address(result.qkv), *to = cuda::Address(places);
    int clips = Int(w.clips);
    AttentionArgs mutual = PartOf(a, w, true, code, bias);
    const int64_t quads = 3 * w.width / 4;
    AttentionKernels().Launch(
        qkv, kPlaceSums,
        {static_cast<unsigned>(kPlaces), kPlaceSplits, static_cast<unsigned>(kSumThreads / quads * quads)},
        {&from, &to, &mutual, &clips});
  }
  result.places = SumParts(qkv, places);
  return result;
}

}  // namespace lockstep::models::vrt::kernels
