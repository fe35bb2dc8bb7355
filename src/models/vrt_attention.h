// Attention inside windows of a clip, as VRT has it. Tokens of a clip lie [b, d, h, w, c]. What depends on shapes alone
// (which token belongs to which window, masks of shifted windows, position codes) is computed once per shape and kept.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

namespace lockstep::models::vrt {

using Size3 = std::array<int64_t, 3>;  // frames, height, width

// How the tokens of clips of one size are divided into windows.
struct WindowPlan {
  Size3 window{};       // an axis that is not longer than the window is one window
  int64_t windows = 0;  // of a clip
  int64_t tokens = 0;   // of a window
  at::Tensor gather;    // [b * windows * tokens]: row of [b * d * h * w, c]; 0 where the window reaches past the clip
  at::Tensor padding;   // positions in `gather` that reach past the clip and are zeros; undefined where none does
  at::Tensor scatter;   // [b * d * h * w]: where each row lies in the windows
  // [windows, tokens, tokens]: -100 between tokens that are neighbours only because the clip was rolled; undefined
  // where nothing is shifted.
  at::Tensor mask;
  at::Tensor mutual_mask;  // [2 * windows, tokens / 2, tokens / 2]: the mask of both frames of a mutual window
};

// Everything that follows from shapes, made when first asked for and kept. Shared by the blocks of a model; any thread.
class WindowTables {
 public:
  std::shared_ptr<const WindowPlan> Plan(int64_t batch, const Size3& size, const Size3& window, const Size3& shift,
                                         at::Device device);
  // Row of the table of relative positions for each pair of the first `tokens` tokens of a window, flat.
  at::Tensor PositionIndex(const Size3& window, int64_t tokens, at::Device device);
  // [1, 2 * h * w, width]: the sine code of a frame of the window, for both frames.
  at::Tensor SineCode(const Size3& window, int64_t width, at::Device device);

 private:
  using PlanKey = std::tuple<int64_t, Size3, Size3, Size3, std::pair<int, int>>;
  using TableKey = std::tuple<Size3, int64_t, std::pair<int, int>>;
  std::mutex mutex_;
  std::map<PlanKey, std::shared_ptr<const WindowPlan>> plans_;
  std::map<TableKey, at::Tensor> positions_, codes_;
};

// The tables themselves, as upstream's buffers `relative_position_index` [tokens, tokens] and `position_bias`
// [1, h * w, width].
at::Tensor RelativePositionIndex(const Size3& window);
at::Tensor SinePositionCode(int64_t height, int64_t width, int64_t channels);

// [b, d, h, w, c] -> [b * windows, tokens, c], and back.
at::Tensor ToWindows(const at::Tensor& x, const WindowPlan& plan);
at::Tensor FromWindows(const at::Tensor& windows, const WindowPlan& plan, at::IntArrayRef sizes);

// Of a table [positions, heads] the rows that PositionIndex gave: [heads, tokens, tokens].
at::Tensor PositionBias(const at::Tensor& table, const at::Tensor& index, int64_t tokens);

// softmax(scale q k' + bias + mask) v, [W, heads, n, size] each. `bias` [heads, n, n], with a gradient, and `mask`
// [m, n, n] may be undefined; window i has mask i % m. The matrix of attention exists for some windows at a time, in
// backward too (where it is computed again).
at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
                  const at::Tensor& mask, double scale);

}  // namespace lockstep::models::vrt
