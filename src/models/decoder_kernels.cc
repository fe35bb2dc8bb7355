#include "models/decoder_kernels.h"

#include <torch/types.h>

#include <algorithm>
#include <iterator>

#include "cuda/kernel_source.h"
#include "models/decoder_source.h"

namespace lockstep::models::decoder::kernels {
namespace {

enum Kernel {
  kNorm,
  kNormWide,
  kNormBackward,
  kNormBackwardWide,
  kRotate,
  kRotateWide,
  kRotateBack,
  kRotateBackWide,
  kSwiGlu,
  kSwiGluBackward,
  kCrossEntropy,
  kKernels
};
constexpr const char* kNames[] = {"rms_norm", "rms_norm_wide",   "rms_norm_backward", "rms_norm_backward_wide",
                                  "rope",     "rope_wide",       "rope_back",         "rope_back_wide",
                                  "swiglu",   "swiglu_backward", "cross_entropy"};
static_assert(std::size(kNames) == kKernels);

cuda::KernelSource& Source() {
  static cuda::KernelSource source("the decoder", kSource, {std::begin(kNames), std::end(kNames)});
  return source;
}

constexpr int64_t kMostWidth = 8192;    // a row is one block of 1,024 threads at most
constexpr unsigned kNormBlocks = 1056;  // eight for each of 132 multiprocessors
constexpr unsigned kFlatBlocks = 132 * 16;

unsigned RowThreads(int64_t width) { return static_cast<unsigned>((width / 8 + 31) / 32 * 32); }

bool IsWide(const at::Tensor& x) { return x.scalar_type() == at::kFloat; }

struct Strides {
  const void* data;
  int64_t batch, token, head;
  int count;
};

Strides StridesOf(const at::Tensor& x) {
  TORCH_CHECK(x.stride(3) == 1, "the elements of a head lie apart");
  return {x.const_data_ptr(), x.stride(0), x.stride(1), x.stride(2), static_cast<int>(x.size(2))};
}

}  // namespace

bool Usable(const at::Device& device, at::ScalarType narrow, at::ScalarType wide, int64_t width) {
  if (!device.is_cuda() || (narrow != at::kBFloat16 && narrow != at::kHalf)) return false;
  if (wide != at::kFloat && wide != narrow) return false;
  return width % 8 == 0 && width <= kMostWidth && Source().Usable(device, narrow);
}

Normed Norm(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight, double epsilon, at::ScalarType type,
            bool with_sum) {
  Normed out;
  const int64_t rows = x.size(0);
  out.normed = at::empty(x.sizes(), x.options().dtype(type));
  out.inverse = at::empty({rows}, x.options().dtype(at::kFloat));
  if (with_sum && y.defined()) out.sum = at::empty_like(x);
  void *from = cuda::Address(x), *more = cuda::Address(y), *w = cuda::Address(weight), *sum = cuda::Address(out.sum),
       *normed = cuda::Address(out.normed), *inverse = cuda::Address(out.inverse);
  int width = static_cast<int>(x.size(1));
  float eps = static_cast<float>(epsilon);
  if (rows == 0) return out;
  Source().Launch(out.normed, IsWide(x) ? kNormWide : kNorm, {static_cast<unsigned>(rows), 1, RowThreads(width)},
                  {&from, &more, &w, &sum, &normed, &inverse, &width, &eps});
  return out;
}

NormGradients NormBackward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& y, const at::Tensor& inverse,
                           const at::Tensor& weight, const at::Tensor& along, bool with_narrow, bool with_normed) {
  NormGradients out;
  int rows = static_cast<int>(x.size(0)), width = static_cast<int>(x.size(1));
  const unsigned blocks = std::min<unsigned>(kNormBlocks, static_cast<unsigned>(rows));
  out.dx = at::empty_like(x);
  // Where both have one type they are one tensor.
  if (with_narrow) out.narrow = IsWide(x) ? at::empty_like(dy) : out.dx;
  if (with_normed) out.normed = at::empty_like(dy);
  const at::Tensor partial = at::empty({static_cast<int64_t>(blocks), width}, x.options().dtype(at::kFloat));
  void *d = cuda::Address(dy), *from = cuda::Address(x), *more = cuda::Address(y), *inv = cuda::Address(inverse),
       *w = cuda::Address(weight), *beside = cuda::Address(along), *dx = cuda::Address(out.dx),
       *narrow = IsWide(x) ? cuda::Address(out.narrow) : nullptr, *normed = cuda::Address(out.normed),
       *parts = cuda::Address(partial);
  if (rows > 0) {
    Source().Launch(dy, IsWide(x) ? kNormBackwardWide : kNormBackward, {blocks, 1, RowThreads(width)},
                    {&d, &from, &more, &inv, &w, &beside, &dx, &narrow, &normed, &parts, &rows, &width});
  }
  out.weight = partial.sum(0);
  return out;
}

void Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int64_t heads, int64_t size) {
  void *to = cuda::Address(x), *c = cuda::Address(cos), *s = cuda::Address(sin);
  int64_t rows = x.size(0);
  int count = static_cast<int>(heads), head = static_cast<int>(size), stride = static_cast<int>(x.stride(0)),
      table = static_cast<int>(cos.size(0));
  Source().Launch(x, IsWide(cos) ? kRotateWide : kRotate, {kFlatBlocks, 1, 256},
                  {&to, &c, &s, &rows, &count, &head, &stride, &table});
}

at::Tensor RotateBack(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const at::Tensor& cos,
                      const at::Tensor& sin) {
  Strides q = StridesOf(dq), k = StridesOf(dk), v = StridesOf(dv);
  int64_t rows = dq.size(0) * dq.size(1);
  int length = static_cast<int>(dq.size(1)), size = static_cast<int>(dq.size(3)), table = static_cast<int>(cos.size(0));
  const at::Tensor out = at::empty({rows, (q.count + k.count + v.count) * dq.size(3)}, dq.options());
  void *to = cuda::Address(out), *c = cuda::Address(cos), *s = cuda::Address(sin);
  Source().Launch(dq, IsWide(cos) ? kRotateBackWide : kRotateBack, {kFlatBlocks, 1, 256},
                  {&q, &k, &v, &to, &c, &s, &rows, &length, &size, &table});
  return out;
}

at::Tensor SwiGlu(const at::Tensor& both) {
  int64_t rows = both.size(0);
  int width = static_cast<int>(both.size(1) / 2);
  const at::Tensor out = at::empty({rows, both.size(1) / 2}, both.options());
  void *from = cuda::Address(both), *to = cuda::Address(out);
  Source().Launch(both, kSwiGlu, {kFlatBlocks, 1, 256}, {&from, &to, &rows, &width});
  return out;
}

void SwiGluBackward(const at::Tensor& both, const at::Tensor& d_out) {
  int64_t rows = both.size(0);
  int width = static_cast<int>(both.size(1) / 2);
  void *from = cuda::Address(both), *d = cuda::Address(d_out);
  Source().Launch(both, kSwiGluBackward, {kFlatBlocks, 1, 256}, {&from, &d, &rows, &width});
}

at::Tensor CrossEntropy(const at::Tensor& logits, const at::Tensor& labels, int64_t vocabulary, bool gradients) {
  const int64_t rows = logits.size(0);
  const at::Tensor out = at::empty({rows}, logits.options().dtype(at::kFloat));
  void *from = cuda::Address(logits), *label = cuda::Address(labels), *losses = cuda::Address(out);
  int width = static_cast<int>(vocabulary), stride = static_cast<int>(logits.stride(0)), wanted = gradients ? 1 : 0;
  if (rows > 0) {
    Source().Launch(logits, kCrossEntropy, {static_cast<unsigned>(rows), 1, 1024},
                    {&from, &label, &losses, &width, &stride, &wanted});
  }
  return out;
}

}  // namespace lockstep::models::decoder::kernels
