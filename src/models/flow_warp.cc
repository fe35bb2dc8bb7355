#include "models/flow_warp.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "base/parallel.h"
#include "models/bilinear.h"
#include "models/warp_kernels.h"

namespace lockstep::models {
namespace {

using at::Tensor;

// A place in a frame, and how fast it moves with the flow: 0 where it was held at the border.
template <typename T>
struct Held {
  T v, moves = 1;
  // As grid_sample: what is held does not move.
  Held(T value, int64_t size, Outside outside) : v(value) {
    if (outside != Outside::kBorder) return;
    if (!(v > 0) || !(v < T(size - 1))) moves = 0;
    v = v > 0 ? (v < T(size - 1) ? v : T(size - 1)) : T(0);
  }
};
template <typename T>
struct WarpPlace : BilinearPlace<T> {
  T moves_x, moves_y;
  WarpPlace(const Held<T>& x, const Held<T>& y, int64_t height, int64_t width)
      : BilinearPlace<T>(x.v, y.v, height, width), moves_x(x.moves), moves_y(y.moves) {}
  WarpPlace(T x, T y, int64_t height, int64_t width, Outside outside)
      : WarpPlace(Held<T>(x, width, outside), Held<T>(y, height, outside), height, width) {}
};

struct WarpShape {
  int64_t count, height, width, channels;
  Outside outside;
  explicit WarpShape(const Tensor& x, Outside o)
      : count(x.size(0)), height(x.size(1)), width(x.size(2)), channels(x.size(3)), outside(o) {}
};

template <typename T>
void WarpRows(const WarpShape& s, const T* x, const T* flow, T* out, int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end; ++at) {
    const int64_t i = at / s.width % s.height, j = at % s.width, image = at / (s.height * s.width);
    const WarpPlace<T> place(T(j) + flow[2 * at], T(i) + flow[2 * at + 1], s.height, s.width, s.outside);
    const T* frame = x + image * s.height * s.width * s.channels;
    T* to = out + at * s.channels;
    for (int64_t c = 0; c < s.channels; ++c) to[c] = 0;
    for (int k = 0; k < 4; ++k) {
      if (place.row[k] < 0) continue;
      const T* from = frame + place.row[k] * s.channels;
      const T weight = place.weight[k];
      for (int64_t c = 0; c < s.channels; ++c) to[c] += weight * from[c];
    }
  }
}

// Of one frame: pixels may be read from any of its places.
template <typename T>
void WarpBackwardFrame(const WarpShape& s, const T* x, const T* flow, const T* grad, T* grad_x, T* grad_flow,
                       int64_t image) {
  const int64_t pixels = s.height * s.width;
  const T* frame = x + image * pixels * s.channels;
  T* grad_frame = grad_x == nullptr ? nullptr : grad_x + image * pixels * s.channels;
  for (int64_t p = 0; p < pixels; ++p) {
    const int64_t at = image * pixels + p;
    const int64_t i = p / s.width, j = p % s.width;
    const WarpPlace<T> place(T(j) + flow[2 * at], T(i) + flow[2 * at + 1], s.height, s.width, s.outside);
    const T* g = grad + at * s.channels;
    T along[4] = {0, 0, 0, 0};  // product of the gradient with each pixel
    for (int k = 0; k < 4; ++k) {
      if (place.row[k] < 0) continue;
      const T* from = frame + place.row[k] * s.channels;
      T sum = 0;
      for (int64_t c = 0; c < s.channels; ++c) sum += g[c] * from[c];
      along[k] = sum;
      if (grad_frame == nullptr) continue;
      T* to = grad_frame + place.row[k] * s.channels;
      const T weight = place.weight[k];
      for (int64_t c = 0; c < s.channels; ++c) to[c] += weight * g[c];
    }
    if (grad_flow == nullptr) continue;
    grad_flow[2 * at] = place.moves_x * ((along[1] - along[0]) * (1 - place.wy) + (along[3] - along[2]) * place.wy);
    grad_flow[2 * at + 1] = place.moves_y * ((along[2] - along[0]) * (1 - place.wx) + (along[3] - along[1]) * place.wx);
  }
}

struct WarpFunction : torch::autograd::Function<WarpFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& frames, const Tensor& flow,
                        int64_t outside) {
    const Tensor x = frames.contiguous(), f = flow.contiguous();
    context->save_for_backward({x, f});
    context->saved_data["outside"] = outside;
    const WarpShape shape(x, static_cast<Outside>(outside));
    Tensor out = at::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "FlowWarp", [&] {
      const auto *from = x.data_ptr<scalar_t>(), *along = f.data_ptr<scalar_t>();
      auto* to = out.mutable_data_ptr<scalar_t>();
      ParallelFor(at::get_num_threads(), 0, shape.count * shape.height * shape.width, 1024,
                  [&](int64_t begin, int64_t end) { WarpRows(shape, from, along, to, begin, end); });
    });
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &f = saved[1], g = gradients[0].contiguous();
    const WarpShape shape(x, static_cast<Outside>(context->saved_data["outside"].toInt()));
    Tensor grad_x, grad_flow;
    if (context->needs_input_grad(0)) grad_x = at::zeros_like(x);
    if (context->needs_input_grad(1)) grad_flow = at::empty_like(f);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "FlowWarpBackward", [&] {
      const auto *from = x.data_ptr<scalar_t>(), *along = f.data_ptr<scalar_t>(), *grad = g.data_ptr<scalar_t>();
      auto* to_x = grad_x.defined() ? grad_x.mutable_data_ptr<scalar_t>() : nullptr;
      auto* to_flow = grad_flow.defined() ? grad_flow.mutable_data_ptr<scalar_t>() : nullptr;
      ParallelFor(at::get_num_threads(), 0, shape.count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) WarpBackwardFrame(shape, from, along, grad, to_x, to_flow, n);
      });
    });
    return {grad_x, grad_flow, Tensor()};
  }
};

// The same by kernels; flows are float32.
struct WarpGpuFunction : torch::autograd::Function<WarpGpuFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& frames, const Tensor& flow,
                        bool border) {
    const Tensor x = frames.contiguous(), f = flow.contiguous();
    context->save_for_backward({x, f});
    context->saved_data["border"] = border;
    return warp::Warp(x, f, border);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor g = gradients[0].contiguous();
    warp::FrameSums d_frames;
    if (context->needs_input_grad(0)) d_frames = warp::FrameSums(saved[0], [&] { return g.abs().amax(); });
    const Tensor d_flow = context->needs_input_grad(1) ? at::empty_like(saved[1]) : Tensor();
    warp::WarpBackward(saved[0], saved[1], context->saved_data["border"].toBool(), g, d_frames, d_flow);
    return {d_frames.Result(saved[0].scalar_type()), d_flow, Tensor()};
  }
};

struct Nearest4GpuFunction : torch::autograd::Function<Nearest4GpuFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& frames, const Tensor& flow) {
    const Tensor f = flow.contiguous();
    context->save_for_backward({frames, f});
    return warp::Nearest4(frames.contiguous(), f);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    if (!context->needs_input_grad(0)) return {Tensor(), Tensor()};
    const auto saved = context->get_saved_variables();
    const Tensor g = gradients[0].contiguous();
    const warp::FrameSums d_frames(saved[0], [&] { return g.abs().amax(); });
    warp::Nearest4Backward(saved[1], g, d_frames);
    return {d_frames.Result(saved[0].scalar_type()), Tensor()};
  }
};

bool WarpsOnGpu(const Tensor& frames) {
  return frames.is_cuda() && frames.numel() < int64_t{1} << 31 && warp::Usable(frames.device(), frames.scalar_type());
}

// x and y of every pixel, [h, w, 2].
Tensor PixelGrid(int64_t height, int64_t width, const at::TensorOptions& options) {
  const auto grid = at::meshgrid({at::arange(height, options), at::arange(width, options)}, "ij");
  return at::stack({grid[1], grid[0]}, 2);
}

}  // namespace

Tensor FlowWarp(const Tensor& frames, const Tensor& flow, Outside outside) {
  TORCH_CHECK(frames.dim() == 4 && flow.dim() == 4 && flow.size(3) == 2 &&
                  frames.sizes().slice(0, 3) == flow.sizes().slice(0, 3),
              "frames are [n, h, w, c] and flows [n, h, w, 2], found ", frames.sizes(), " and ", flow.sizes());
  const bool own = frames.is_cpu() && (frames.scalar_type() == at::kFloat || frames.scalar_type() == at::kDouble);
  if (own) return WarpFunction::apply(frames, flow.to(frames.scalar_type()), static_cast<int64_t>(outside));
  if (WarpsOnGpu(frames)) return WarpGpuFunction::apply(frames, flow.to(at::kFloat), outside == Outside::kBorder);
  const at::ScalarType type = frames.scalar_type();
  const int64_t height = frames.size(1), width = frames.size(2);
  const Tensor scale =
      at::stack({at::scalar_tensor(2.0 / std::max<int64_t>(width - 1, 1), flow.options().dtype(at::kFloat)),
                 at::scalar_tensor(2.0 / std::max<int64_t>(height - 1, 1), flow.options().dtype(at::kFloat))});
  const Tensor places = (PixelGrid(height, width, flow.options().dtype(at::kFloat)) + flow.to(at::kFloat)) * scale - 1;
  return at::grid_sampler_2d(frames.to(at::kFloat).permute({0, 3, 1, 2}), places, /*bilinear*/ 0,
                             outside == Outside::kBorder ? 1 : 0, /*align_corners=*/true)
      .permute({0, 2, 3, 1})
      .to(type);
}

Tensor FlowWarpNearest4(const Tensor& frames, const Tensor& flow) {
  if (WarpsOnGpu(frames)) return Nearest4GpuFunction::apply(frames, flow.detach().to(at::kFloat));
  const int64_t count = frames.size(0), height = frames.size(1), width = frames.size(2), channels = frames.size(3);
  Tensor begin, x[2], y[2];
  {
    const at::NoGradGuard no_grad;
    const Tensor place = PixelGrid(height, width, flow.options()) + flow.detach();
    const Tensor px = place.select(3, 0), py = place.select(3, 1);
    x[0] = at::floor(px), x[1] = at::ceil(px), y[0] = at::floor(py), y[1] = at::ceil(py);
    begin = at::arange(count, flow.options().dtype(at::kLong)).view({count, 1, 1}) * (height * width);
  }
  const Tensor rows = frames.reshape({count * height * width, channels});
  std::vector<Tensor> corners;
  for (int k = 0; k < 4; ++k) {
    Tensor index, inside;
    {
      const at::NoGradGuard no_grad;
      const Tensor &cx = x[k / 2], &cy = y[k % 2];
      const Tensor within = cx.ge(0).logical_and(cx.lt(width)).logical_and(cy.ge(0)).logical_and(cy.lt(height));
      index = begin + (cy.clamp(0, height - 1) * width + cx.clamp(0, width - 1)).nan_to_num(0).to(at::kLong);
      inside = within.to(frames.scalar_type()).unsqueeze(3);
    }
    corners.push_back(at::index_select(rows, 0, index.flatten()).view({count, height, width, channels}) * inside);
  }
  return at::cat(corners, 3);
}

}  // namespace lockstep::models
