#include "models/vrt_products.h"

#include <torch/types.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "cuda/kernel_source.h"
#include "models/vrt_kernels.h"
#include "models/vrt_mlp_source.h"
#include "models/vrt_product_source.h"

namespace lockstep::models::vrt::products {
namespace {

// For 1, 2, 3 and 4 groups of 32 columns; linear layers also of twice as many elements.
enum Kernel {
  kMlp = 0,
  kLinear = 4,
  kLinearTwice = 8,
  kMlpGradient = 12,
  kLinearGradient = 16,
  kBehindNorm = 20,
  kKernels
};
#define LOCKSTEP_NAMES(NAME, MORE) NAME "32" MORE, NAME "64" MORE, NAME "96" MORE, NAME "128" MORE
constexpr const char* kNames[] = {
    LOCKSTEP_NAMES("mlp_", ""),          LOCKSTEP_NAMES("linear_", ""),          LOCKSTEP_NAMES("linear_", "_twice"),
    LOCKSTEP_NAMES("mlp_gradient_", ""), LOCKSTEP_NAMES("linear_gradient_", ""), "behind_norm"};
#undef LOCKSTEP_NAMES
static_assert(std::size(kNames) == kKernels);

cuda::KernelSource& Source() {
  static const std::string text = std::string(kProductSource) + kMlpGradientSource;
  static cuda::KernelSource source("VRT's products", text.c_str(), {std::begin(kNames), std::end(kNames)});
  return source;
}

constexpr int64_t kMostGroups = 4, kGroup = 32;
constexpr int64_t kBlocks = 132;  // one for each multiprocessor: weights are loaded once
constexpr int64_t kThreads = 512, kGradientThreads = 384, kRowsOfWarp = 16;

// As the structs of the source.
struct MlpArgs {
  const void *x, *norm, *norm_bias, *gate, *gate_bias, *value, *value_bias, *down, *down_bias, *factor;
  void* to;
  int64_t rows, rows_of_clip;
  int width, hidden;
  float epsilon;
};
struct LinearArgs {
  const void *x, *in, *weight, *bias, *factor;
  void* to;
  int64_t rows, rows_of_clip;
  int width, elements;
};
struct MlpGradientArgs {
  const void *x, *d, *norm, *norm_bias, *both, *both_bias, *down, *factor;
  void *d_both, *given, *plain, *dx;
  int64_t rows, rows_of_clip;
  int width, hidden;
  float epsilon;
};
struct LinearGradientArgs {
  const void *x, *d, *d_linear, *weight, *norm, *factor;
  void *plain, *dx, *along;
  int64_t rows, rows_of_clip;
  int width, columns;
  float epsilon;
};

int64_t GroupsOf(int64_t width) { return (width + kGroup - 1) / kGroup; }

int64_t MlpShared(int64_t width, int64_t hidden) {
  const int64_t whole = kGroup * GroupsOf(width);
  return 2 * (2 * hidden * (whole + 8) + whole * (hidden + 8)) + 4 * (2 * hidden + 3 * whole);
}

int64_t LinearShared(int64_t width, int64_t depth) {
  const int64_t whole = kGroup * GroupsOf(width);
  return 2 * whole * (kGroup * depth + 8) + 4 * whole;
}

int64_t MlpGradientShared(int64_t width, int64_t hidden) {
  const int64_t whole = kGroup * GroupsOf(width);
  return 2 * (2 * hidden * (whole + 8) + whole * (hidden + 8)) + 4 * (2 * hidden + 2 * whole);
}

int64_t LinearGradientShared(int64_t width, int64_t columns) {
  const int64_t whole = kGroup * GroupsOf(width);
  return 2 * kGroup * GroupsOf(columns) * (whole + 8) + 4 * whole * (1 + kGradientThreads / 32);
}

bool Fits(const at::Tensor& x, int64_t width, int64_t shared) {
  return x.is_cuda() && width % 8 == 0 && GroupsOf(width) <= kMostGroups && shared <= cuda::MostShared(x.device());
}

unsigned BlocksFor(int64_t rows, int64_t threads = kThreads) {
  const int64_t each = threads / 32 * kRowsOfWarp;
  return static_cast<unsigned>(std::min(kBlocks, (rows + each - 1) / each));
}

int64_t RowsOfClip(const at::Tensor& x, const at::Tensor& factor) {
  return factor.defined() ? x.size(0) / factor.numel() : x.size(0);
}

}  // namespace

bool FitsLinear(const at::Tensor& x, int64_t in, int64_t out) {
  const int64_t groups = GroupsOf(out), depth = GroupsOf(in);
  return in % 8 == 0 && depth <= 2 * groups && Fits(x, out, LinearShared(out, 2 * groups)) &&
         Source().Usable(x.device(), x.scalar_type());
}

at::Tensor AddLinear(const at::Tensor& x, const at::Tensor& in, const LinearParameters& linear,
                     const at::Tensor& factor) {
  const at::Tensor out = at::empty_like(x);
  if (x.numel() == 0) return out;
  const int64_t groups = GroupsOf(x.size(1));
  const bool twice = GroupsOf(in.size(1)) > groups;
  LinearArgs a{cuda::Address(x),
               cuda::Address(in),
               cuda::Address(linear.weight),
               cuda::Address(linear.bias),
               cuda::Address(factor),
               cuda::Address(out),
               x.size(0),
               RowsOfClip(x, factor),
               static_cast<int>(x.size(1)),
               static_cast<int>(in.size(1))};
  Source().Launch(
      x, static_cast<int>((twice ? kLinearTwice : kLinear) + groups - 1),
      {BlocksFor(a.rows), 1, kThreads, 1, static_cast<unsigned>(LinearShared(a.width, twice ? 2 * groups : groups))},
      {&a});
  return out;
}

bool FitsMlp(const at::Tensor& x, int64_t width, int64_t hidden) {
  return hidden % 16 == 0 && Fits(x, width, MlpShared(width, hidden)) && Source().Usable(x.device(), x.scalar_type());
}

at::Tensor AddMlp(const at::Tensor& x, const MlpParameters& mlp, const at::Tensor& factor, double epsilon) {
  const at::Tensor out = at::empty_like(x);
  if (x.numel() == 0) return out;
  MlpArgs a{cuda::Address(x),
            cuda::Address(mlp.norm),
            cuda::Address(mlp.norm_bias),
            cuda::Address(mlp.gate.weight),
            cuda::Address(mlp.gate.bias),
            cuda::Address(mlp.value.weight),
            cuda::Address(mlp.value.bias),
            cuda::Address(mlp.down.weight),
            cuda::Address(mlp.down.bias),
            cuda::Address(factor),
            cuda::Address(out),
            x.size(0),
            RowsOfClip(x, factor),
            static_cast<int>(x.size(1)),
            static_cast<int>(mlp.gate.weight.size(0)),
            static_cast<float>(epsilon)};
  Source().Launch(x, static_cast<int>(kMlp + GroupsOf(a.width) - 1),
                  {BlocksFor(a.rows), 1, kThreads, 1, static_cast<unsigned>(MlpShared(a.width, a.hidden))}, {&a});
  return out;
}

bool FitsLinearGradient(const at::Tensor& x, int64_t width, int64_t columns) {
  return columns % 8 == 0 && Fits(x, width, LinearGradientShared(width, columns)) &&
         Source().Usable(x.device(), x.scalar_type());
}

NormGradient LinearBackward(const at::Tensor& d_linear, const at::Tensor& x, const at::Tensor& d,
                            const at::Tensor& weight, const at::Tensor& norm, const at::Tensor& factor,
                            double epsilon) {
  const int64_t rows = x.size(0), width = x.size(1);
  const unsigned blocks = BlocksFor(rows, kGradientThreads);
  NormGradient out{at::empty_like(x), at::empty({rows, width + 8}, x.options()), {}};
  const at::Tensor along = at::empty({blocks, width}, x.options().dtype(at::kFloat));
  LinearGradientArgs a{cuda::Address(x),
                       cuda::Address(d),
                       cuda::Address(d_linear),
                       cuda::Address(weight),
                       cuda::Address(norm),
                       cuda::Address(factor),
                       cuda::Address(out.plain),
                       cuda::Address(out.dx),
                       cuda::Address(along),
                       rows,
                       RowsOfClip(x, factor),
                       static_cast<int>(width),
                       static_cast<int>(weight.size(0)),
                       static_cast<float>(epsilon)};
  Source().Launch(x, static_cast<int>(kLinearGradient + GroupsOf(width) - 1),
                  {blocks, 1, kGradientThreads, 1, static_cast<unsigned>(LinearGradientShared(width, a.columns))},
                  {&a});
  out.along = kernels::SumParts(x, along);
  return out;
}

bool FitsMlpGradient(const at::Tensor& x, int64_t width, int64_t hidden) {
  return hidden % 16 == 0 && Fits(x, width, MlpGradientShared(width, hidden)) &&
         Source().Usable(x.device(), x.scalar_type());
}

MlpGradient MlpBackward(const at::Tensor& x, const at::Tensor& d, const at::Tensor& norm, const at::Tensor& norm_bias,
                        const MlpMatrices& mlp, const at::Tensor& factor, double epsilon) {
  const int64_t rows = x.size(0), width = x.size(1), hidden = mlp.down.size(1);
  MlpGradient out{{at::empty_like(x), at::empty({rows, width + 8}, x.options()), {}},
                  at::empty({rows, 2 * hidden}, x.options()),
                  at::empty({rows, hidden + 8}, x.options())};
  MlpGradientArgs a{cuda::Address(x),
                    cuda::Address(d),
                    cuda::Address(norm),
                    cuda::Address(norm_bias),
                    cuda::Address(mlp.both),
                    cuda::Address(mlp.both_bias),
                    cuda::Address(mlp.down),
                    cuda::Address(factor),
                    cuda::Address(out.d_both),
                    cuda::Address(out.given),
                    cuda::Address(out.norm.plain),
                    cuda::Address(out.norm.dx),
                    rows,
                    RowsOfClip(x, factor),
                    static_cast<int>(width),
                    static_cast<int>(hidden),
                    static_cast<float>(epsilon)};
  Source().Launch(x, static_cast<int>(kMlpGradient + GroupsOf(width) - 1),
                  {BlocksFor(rows, kGradientThreads), 1, kGradientThreads, 1,
                   static_cast<unsigned>(MlpGradientShared(width, hidden))},
                  {&a});
  return out;
}

BehindNorm GradientsBehindNorm(const at::Tensor& product, const at::Tensor& weight, const at::Tensor& norm,
                               const at::Tensor& norm_bias) {
  int columns = static_cast<int>(weight.size(0)), width = static_cast<int>(weight.size(1));
  BehindNorm out{at::empty(weight.sizes(), product.options()), at::empty({columns}, product.options()),
                 at::empty({width}, product.options()), at::empty({width}, product.options())};
  void *from = cuda::Address(product), *w = cuda::Address(weight), *n = cuda::Address(norm),
       *b = cuda::Address(norm_bias), *d_weight = cuda::Address(out.weight), *d_bias = cuda::Address(out.bias),
       *d_norm = cuda::Address(out.norm), *d_norm_bias = cuda::Address(out.norm_bias);
  Source().Launch(weight, kBehindNorm, {static_cast<unsigned>(width / 8), 1, 256},
                  {&from, &w, &n, &b, &d_weight, &d_bias, &d_norm, &d_norm_bias, &columns, &width});
  return out;
}

}  // namespace lockstep::models::vrt::products
