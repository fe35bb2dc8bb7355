#include "models/fused_kernels.h"

#include <torch/types.h>

#include <algorithm>
#include <iterator>

#include "cuda/kernel_source.h"
#include "models/fused_source.h"

namespace lockstep::models::fused::kernels {

namespace {

enum Kernel { kEpilogue, kEpiloguePhases, kMaskSums, kCollect, kCollectPhases, kTotal, kPack, kUnpack, kKernels };
constexpr const char* kNames[] = {"epilogue",       "epilogue_phases", "mask_sums", "collect",
                                  "collect_phases", "total",           "pack",      "unpack"};
static_assert(std::size(kNames) == kKernels);

cuda::KernelSource& Source() {
  static cuda::KernelSource source("TAEHV", kSource, {std::begin(kNames), std::end(kNames)});
  return source;
}

struct Size {
  int frames, height, width, channels;
  unsigned rows;
};

Size SizeOf(const Shape& shape) {
  return {int(shape.frames), int(shape.height), int(shape.width), int(shape.channels),
          unsigned(shape.Count() * shape.height * shape.width)};
}

void Launch(const at::Tensor& like, Kernel kernel, unsigned blocks, unsigned rows, unsigned threads,
            std::vector<void*> arguments, unsigned thread_rows = 1) {
  Source().Launch(like, kernel, {blocks, rows, threads, thread_rows}, std::move(arguments));
}

unsigned Threads(int64_t channels) { return unsigned(256 / (channels / 8) * (channels / 8)); }

constexpr unsigned kItems = 32;
struct Item {
  void *wide, *narrow;
  int in, taps, count, unused;
};
struct Items {
  Item item[kItems];
};

void Repack(Kernel kernel, const std::vector<at::Tensor>& wide, const std::vector<at::Tensor>& narrow) {
  for (size_t begin = 0; begin < wide.size(); begin += kItems) {
    Items items{};
    unsigned count = unsigned(std::min<size_t>(kItems, wide.size() - begin));
    for (unsigned i = 0; i < count; ++i) {
      const at::Tensor& w = wide[begin + i];
      bool weight = w.dim() == 4;
      items.item[i] = {cuda::Address(w),
                       cuda::Address(narrow[begin + i]),
                       int(w.size(weight ? 1 : 0)),
                       weight ? int(w.size(2) * w.size(3)) : 1,
                       int(w.numel()),
                       0};
    }
    Launch(narrow[begin], kernel, 64, count, 256, {&items});
  }
}

}  // namespace

bool Usable(const at::Tensor& x, int64_t channels) {
  if (channels % 8 != 0 || channels > 2048 || x.numel() / 8 >= (int64_t(1) << 31)) return false;
  return Source().Usable(x.device(), x.scalar_type());
}

int64_t SumBlocks() { return 132 * 6; }

void Epilogue(const at::Tensor& z, Layout layout, const Shape& shape, const After& after, const at::Tensor& first,
              const at::Tensor& cat, const at::Tensor& out, int64_t out_group) {
  Size size = SizeOf(shape);
  void *from = cuda::Address(z), *bias = cuda::Address(after.bias), *residual = cuda::Address(after.residual),
       *past = cuda::Address(first), *to_cat = cuda::Address(cat), *to_out = cuda::Address(out);
  int group = int(layout.group), relu = after.relu, to_group = int(out_group);
  unsigned threads = Threads(shape.channels), step = threads / unsigned(shape.channels / 8);
  unsigned blocks = std::min<unsigned>((size.rows + step - 1) / step, 132 * 16);
  Launch(z, layout.phases ? kEpiloguePhases : kEpilogue, blocks, 1, threads,
         {&from, &group, &bias, &residual, &relu, &past, &to_cat, &to_out, &to_group, &size});
}

void Collect(const Arriving& from, const Shape& shape, Layout layout, const at::Tensor& into, const at::Tensor& sums) {
  Size size = SizeOf(shape);
  void *direct = cuda::Address(from.direct), *both = cuda::Address(from.both), *active = cuda::Address(from.active),
       *to = cuda::Address(into), *total = cuda::Address(sums);
  int direct_group = int(from.direct_group), active_group = int(from.active_group), past = from.active_with_past,
      group = int(layout.group);
  unsigned threads = Threads(shape.channels), blocks = unsigned(SumBlocks());
  bool dense = direct != nullptr && active != nullptr && both == nullptr && !past && !layout.phases &&
               direct_group == 1 && active_group == 1 && group == 1;
  if (dense && total != nullptr) {
    Launch(into, kMaskSums, blocks, 1, threads, {&direct, &active, &to, &total, &size});
    return;
  }
  Launch(into, layout.phases ? kCollectPhases : kCollect, blocks, 1, threads,
         {&direct, &direct_group, &both, &active, &active_group, &past, &to, &group, &total, &size});
}

at::Tensor Total(const at::Tensor& sums, const at::Tensor& like) {
  at::Tensor out = at::empty({sums.size(0), sums.size(2)}, sums.options());
  void *from = cuda::Address(sums), *to = cuda::Address(out);
  int blocks = int(sums.size(1)), channels = int(sums.size(2));
  Launch(like, kTotal, unsigned(channels + 31) / 32, unsigned(sums.size(0)), 32, {&from, &to, &blocks, &channels}, 32);
  return out;
}

void Pack(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& into) {
  Repack(kPack, parameters, into);
}

void Unpack(const std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& into) {
  Repack(kUnpack, into, gradients);
}

}  // namespace lockstep::models::fused::kernels
