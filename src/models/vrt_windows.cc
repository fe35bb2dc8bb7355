// Windows of clips and the tables that follow from shapes.
#include <cmath>
#include <numbers>

#include "models/vrt_attention.h"

namespace lockstep::models::vrt {
namespace {

using at::Tensor;

std::pair<int, int> DeviceKey(at::Device device) {
  return {static_cast<int>(device.type()), static_cast<int>(device.index())};
}

// Which of the three parts of a rolled axis a place belongs to: the body, the rest of its last window, what was rolled
// in. An axis without a shift has one.
int64_t PartOf(int64_t at, int64_t length, int64_t window, int64_t shift) {
  if (shift == 0) return 0;
  return at < length - window ? 0 : at < length - shift ? 1 : 2;
}

// [windows, tokens] -> -100 where two tokens of a window have another part.
Tensor MaskOf(const Tensor& parts) {
  const Tensor differs = parts.unsqueeze(1).ne(parts.unsqueeze(2));
  return at::zeros(differs.sizes()).masked_fill_(differs, -100.0);
}

std::shared_ptr<const WindowPlan> MakePlan(int64_t batch, const Size3& size, const Size3& window, Size3 shift,
                                           at::Device device) {
  auto plan = std::make_shared<WindowPlan>();
  Size3 count{}, padded{};
  for (size_t i = 0; i < 3; ++i) {
    plan->window[i] = std::min(size[i], window[i]);
    if (size[i] <= window[i]) shift[i] = 0;
    count[i] = (size[i] + plan->window[i] - 1) / plan->window[i];
    padded[i] = count[i] * plan->window[i];
  }
  const Size3& w = plan->window;
  plan->windows = count[0] * count[1] * count[2];
  plan->tokens = w[0] * w[1] * w[2];
  const int64_t rows = size[0] * size[1] * size[2], all = plan->windows * plan->tokens;
  const bool shifted = shift[0] + shift[1] + shift[2] > 0;
  Tensor gather = at::zeros({batch, all}, at::kLong), scatter = at::zeros({batch, rows}, at::kLong);
  Tensor parts = at::zeros({plan->windows, plan->tokens}, at::kLong);
  auto *from = gather.mutable_data_ptr<int64_t>(), *to = scatter.mutable_data_ptr<int64_t>(),
       *part = parts.mutable_data_ptr<int64_t>();
  std::vector<int64_t> padding;
  for (int64_t i = 0; i < all; ++i) {
    const int64_t inside = i % plan->tokens, outside = i / plan->tokens;
    const Size3 at_window{outside / (count[1] * count[2]), outside / count[2] % count[1], outside % count[2]};
    const Size3 in_window{inside / (w[1] * w[2]), inside / w[2] % w[1], inside % w[2]};
    Size3 source{};
    int64_t code = 0;
    bool real = true;
    for (size_t axis = 0; axis < 3; ++axis) {
      const int64_t rolled = at_window[axis] * w[axis] + in_window[axis];
      code = 3 * code + PartOf(rolled, padded[axis], w[axis], shift[axis]);
      source[axis] = (rolled + shift[axis]) % padded[axis];
      real = real && source[axis] < size[axis];
    }
    part[i] = code;
    const int64_t row = (source[0] * size[1] + source[1]) * size[2] + source[2];
    for (int64_t b = 0; b < batch; ++b) {
      if (real) {
        from[b * all + i] = b * rows + row;
        to[b * rows + row] = b * all + i;
      } else {
        padding.push_back(b * all + i);
      }
    }
  }
  plan->gather = gather.flatten().to(device);
  plan->scatter = scatter.flatten().to(device);
  if (!padding.empty()) plan->padding = at::tensor(padding, at::kLong).to(device);
  if (shifted) {
    plan->mask = MaskOf(parts).to(device);
    const int64_t half = plan->tokens / 2;
    plan->mutual_mask = plan->mask.narrow(1, 0, half).narrow(2, 0, half).repeat_interleave(2, /*dim=*/0).contiguous();
  }
  return plan;
}

// The keys of a map whose values are expensive.
template <typename Map, typename Make>
auto Kept(std::mutex& mutex, Map& map, const typename Map::key_type& key, const Make& make) {
  const std::lock_guard lock(mutex);
  auto found = map.find(key);
  if (found == map.end()) {
    const at::NoGradGuard no_grad;
    found = map.emplace(key, make()).first;
  }
  return found->second;
}

}  // namespace

Tensor RelativePositionIndex(const Size3& window) {
  const auto axes = at::meshgrid({at::arange(window[0]), at::arange(window[1]), at::arange(window[2])}, "ij");
  Tensor index;
  for (size_t i = 0; i < 3; ++i) {
    const Tensor at = axes[i].flatten();
    const Tensor apart = at.unsqueeze(1) - at.unsqueeze(0) + (window[i] - 1);
    index = index.defined() ? index * (2 * window[i] - 1) + apart : apart;
  }
  return index.to(at::kLong).contiguous();
}

// In float32 and in this order, as upstream: its weights were trained with these values, to the last bit.
Tensor SinePositionCode(int64_t height, int64_t width, int64_t channels) {
  const int64_t half = channels / 2;
  const Tensor i = at::arange(half, at::kFloat);
  const Tensor wavelength = at::pow(10000.0, 2 * at::div(i, 2, "floor") / static_cast<double>(half));
  const auto along = [&](int64_t size) {  // [size, half]
    const Tensor place = at::arange(1, size + 1, at::kFloat);
    const Tensor angle =
        (place / (place.select(0, size - 1) + 1e-6) * (2 * std::numbers::pi)).unsqueeze(1) / wavelength;
    return at::where(i.remainder(2).eq(0), angle.sin(), angle.cos());
  };
  const Tensor y = along(height).unsqueeze(1).expand({height, width, half});
  const Tensor x = along(width).unsqueeze(0).expand({height, width, half});
  return at::cat({y, x}, 2).view({1, height * width, 2 * half}).contiguous();
}

std::shared_ptr<const WindowPlan> WindowTables::Plan(int64_t batch, const Size3& size, const Size3& window,
                                                     const Size3& shift, at::Device device) {
  return Kept(mutex_, plans_, {batch, size, window, shift, DeviceKey(device)},
              [&] { return MakePlan(batch, size, window, shift, device); });
}

Tensor WindowTables::PositionIndex(const Size3& window, int64_t tokens, at::Device device) {
  return Kept(mutex_, positions_, {window, tokens, DeviceKey(device)}, [&] {
    const Tensor index = RelativePositionIndex(window);
    return index.narrow(0, 0, tokens).narrow(1, 0, tokens).flatten().to(device);
  });
}

Tensor WindowTables::SineCode(const Size3& window, int64_t width, at::Device device) {
  return Kept(mutex_, codes_, {window, width, DeviceKey(device)},
              [&] { return SinePositionCode(window[1], window[2], width).repeat({1, 2, 1}).to(device); });
}

}  // namespace lockstep::models::vrt
