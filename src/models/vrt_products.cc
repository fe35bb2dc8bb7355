#include "models/vrt_products.h"

#include <torch/types.h>

#include <algorithm>
#include <iterator>

#include "cuda/kernel_source.h"
#include "models/vrt_product_source.h"

namespace lockstep::models::vrt::products {
namespace {

// For 1, 2, 3 and 4 groups of 32 columns; linear layers also of twice as many elements.
enum Kernel { kMlp = 0, kLinear = 4, kLinearTwice = 8, kKernels = 12 };
constexpr const char* kNames[] = {"mlp_32",          "mlp_64",          "mlp_96",          "mlp_128",
                                  "linear_32",       "linear_64",       "linear_96",       "linear_128",
                                  "linear_32_twice", "linear_64_twice", "linear_96_twice", "linear_128_twice"};
static_assert(std::size(kNames) == kKernels);

cuda::KernelSource& Source() {
  static cuda::KernelSource source("VRT's products", kProductSource, {std::begin(kNames), std::end(kNames)});
  return source;
}

constexpr int64_t kMostGroups = 4, kGroup = 32;
constexpr int64_t kBlocks = 132;  // one for each multiprocessor: weights are loaded once
constexpr int64_t kThreads = 512, kRowsOfWarp = 16;

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

int64_t GroupsOf(int64_t width) { return (width + kGroup - 1) / kGroup; }

int64_t MlpShared(int64_t width, int64_t hidden) {
  const int64_t whole = kGroup * GroupsOf(width);
  return 2 * (2 * hidden * (whole + 8) + whole * (hidden + 8)) + 4 * (2 * hidden + 3 * whole);
}

int64_t LinearShared(int64_t width, int64_t depth) {
  const int64_t whole = kGroup * GroupsOf(width);
  return 2 * whole * (kGroup * depth + 8) + 4 * whole;
}

bool Fits(const at::Tensor& x, int64_t width, int64_t shared) {
  return x.is_cuda() && width % 8 == 0 && GroupsOf(width) <= kMostGroups && shared <= cuda::MostShared(x.device());
}

unsigned BlocksFor(int64_t rows) {
  const int64_t each = kThreads / 32 * kRowsOfWarp;
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

}  // namespace lockstep::models::vrt::products
