#include "media/restore.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace lockstep::media {
namespace {

int64_t UpTo(int64_t value, int64_t multiple) { return (multiple - value % multiple) % multiple; }

// Continued by its last part, mirrored, as often as it takes.
at::Tensor Mirrored(at::Tensor x, int64_t axis, int64_t more) {
  while (more > 0) {
    const int64_t part = std::min(more, x.size(axis));
    x = at::cat({x, x.narrow(axis, x.size(axis) - part, part).flip({axis})}, axis);
    more -= part;
  }
  return x;
}

// Clips of one size, padded to what the model takes.
at::Tensor Padded(const RestoreForward& forward, const RestoreTiles& tiles, const at::Tensor& clips, int64_t down,
                  int64_t right) {
  down = std::max(down, tiles.least[1] - clips.size(3));
  right = std::max(right, tiles.least[2] - clips.size(4));
  const at::Tensor whole = Mirrored(Mirrored(clips, 3, down), 4, right);
  return forward(whole)
      .narrow(3, 0, clips.size(3) * tiles.scale)
      .narrow(4, 0, clips.size(4) * tiles.scale)
      .to(at::kFloat);
}

}  // namespace

at::Tensor RestoreFrames(const RestoreForward& forward, const RestoreTiles& tiles, const at::Tensor& window) {
  const int64_t height = window.size(2), width = window.size(3), scale = tiles.scale;
  const at::Tensor clips = window.unsqueeze(0);
  if (tiles.tile == 0) {  // as KAIR, at least one row and column of windows more
    return Padded(forward, tiles, clips, tiles.window[1] - height % tiles.window[1],
                  tiles.window[2] - width % tiles.window[2])
        .squeeze(0);
  }
  const int64_t tall = std::min(tiles.tile, height), wide = std::min(tiles.tile, width);
  const std::vector<int64_t> rows = TileStarts(height, tall, tiles.tile_overlap);
  const std::vector<int64_t> columns = TileStarts(width, wide, tiles.tile_overlap);
  std::vector<std::pair<int64_t, int64_t>> places;
  for (const int64_t y : rows) {
    for (const int64_t x : columns) places.emplace_back(y, x);
  }
  at::Tensor sum, count;
  // As KAIR: pixels of the result, not of the input, half of an odd number rounded up at the far edges.
  const int64_t near = tiles.tile_overlap / 2, far = tiles.tile_overlap - near;
  for (size_t first = 0; first < places.size(); first += static_cast<size_t>(tiles.batch)) {
    const size_t end = std::min(places.size(), first + static_cast<size_t>(tiles.batch));
    std::vector<at::Tensor> parts;
    for (size_t i = first; i < end; ++i) {
      parts.push_back(clips.narrow(3, places[i].first, tall).narrow(4, places[i].second, wide));
    }
    const at::Tensor restored =
        Padded(forward, tiles, at::cat(parts), UpTo(tall, tiles.window[1]), UpTo(wide, tiles.window[2]));
    if (!sum.defined()) {
      sum = restored.new_zeros({restored.size(1), restored.size(2), height * scale, width * scale});
      count = restored.new_zeros({height * scale, width * scale});
    }
    for (size_t i = first; i < end; ++i) {
      const auto [y, x] = places[i];
      const int64_t top = y > rows.front() ? near : 0, bottom = y < rows.back() ? far : 0;
      const int64_t left = x > columns.front() ? near : 0, right = x < columns.back() ? far : 0;
      const int64_t h = tall * scale - top - bottom, w = wide * scale - left - right;
      const at::Tensor part = restored[static_cast<int64_t>(i - first)].narrow(2, top, h).narrow(3, left, w);
      sum.narrow(2, y * scale + top, h).narrow(3, x * scale + left, w).add_(part);
      count.narrow(0, y * scale + top, h).narrow(1, x * scale + left, w).add_(1);
    }
  }
  return sum.div_(count);
}

Status RestoreTiles::Check(bool flags) const {
  const auto wrong = [&](const std::string& key, const std::string& text, const std::string& remedy = "") {
    std::string flag = "--" + key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    return Status(Code::kUsage, fmt::format("{}: {}", flags ? flag : "recipe.test." + key, text), remedy);
  };
  if (frames > 0 && frame_overlap >= frames) {
    return wrong("frame_overlap", fmt::format("expected less than frames {}, found {}", frames, frame_overlap));
  }
  if (tile > 0 && tile_overlap >= tile) {
    return wrong("tile_overlap", fmt::format("expected less than tile {}, found {}", tile, tile_overlap));
  }
  if (tile % window[1] != 0 || tile % window[2] != 0) {
    const int64_t step = std::lcm(window[1], window[2]);
    return wrong(
        "tile",
        fmt::format("expected a multiple of {} x {}, to which clips are padded, found {}", window[1], window[2], tile),
        fmt::format("use {} or {}", std::max(step, tile / step * step), (tile / step + 1) * step));
  }
  return Status::Ok();
}

std::vector<int64_t> TileStarts(int64_t size, int64_t part, int64_t overlap) {
  std::vector<int64_t> starts;
  for (int64_t at = 0; at < size - part; at += part - overlap) starts.push_back(at);
  starts.push_back(std::max<int64_t>(0, size - part));
  return starts;
}

std::vector<FrameWindow> FrameWindows(int64_t count, const RestoreTiles& tiles) {
  if (count <= 0) return {};
  std::vector<FrameWindow> windows;
  if (tiles.between > 0) {
    const int64_t step = tiles.frames == 0 ? count : std::max<int64_t>(2, tiles.frames);
    for (int64_t begin = 0; begin < count; begin += step) windows.push_back({begin, std::min(step, count - begin)});
    return windows;
  }
  const int64_t length = tiles.frames == 0 ? count : std::min(tiles.frames, count);
  for (const int64_t begin : TileStarts(count, length, tiles.frame_overlap)) windows.push_back({begin, length});
  return windows;
}

std::pair<size_t, size_t> WindowsOver(const std::vector<FrameWindow>& windows, int64_t frame) {
  const auto first = std::ranges::upper_bound(windows, frame, {}, &FrameWindow::end);
  const auto last = std::ranges::upper_bound(windows, frame, {}, &FrameWindow::begin);
  return {static_cast<size_t>(first - windows.begin()), static_cast<size_t>(last - windows.begin())};
}

FrameWindow OwnFrames(const std::vector<FrameWindow>& windows, size_t number) {
  const FrameWindow& own = windows[number];
  const int64_t begin = number == 0 ? own.begin : std::max(own.begin, windows[number - 1].end());
  const int64_t end = number + 1 == windows.size() ? own.end() : std::min(own.end(), windows[number + 1].begin);
  return {begin, std::max<int64_t>(0, end - begin)};
}

at::Tensor RestoreWindow(const RestoreForward& forward, const RestoreTiles& tiles, const at::Tensor& window) {
  const int64_t length = window.size(0);
  // As KAIR where the clip is taken whole: at least one mirrored frame more, up to a window, and none twice.
  const int64_t more = tiles.frames == 0 ? std::min(length, tiles.window[0] - length % tiles.window[0]) : 0;
  return RestoreFrames(forward, tiles, Mirrored(window, 0, std::max(more, tiles.least[0] - length)))
      .narrow(0, 0, length);
}

at::Tensor RestoreClip(const RestoreForward& forward, const RestoreTiles& tiles, const at::Tensor& clip) {
  const std::vector<FrameWindow> windows = FrameWindows(clip.size(0), tiles);
  at::Tensor sum;
  int64_t filled = 0;
  for (const FrameWindow& window : windows) {
    const at::Tensor restored = RestoreWindow(forward, tiles, clip.narrow(0, window.begin, window.length));
    if (!sum.defined()) {
      sum = at::empty({clip.size(0), restored.size(1), restored.size(2), restored.size(3)}, restored.options());
    }
    const int64_t shared = std::max<int64_t>(0, filled - window.begin);
    if (shared > 0) sum.narrow(0, window.begin, shared).add_(restored.narrow(0, 0, shared));
    const int64_t fresh = window.length - shared;
    sum.narrow(0, window.begin + shared, fresh).copy_(restored.narrow(0, shared, fresh));
    filled = window.end();
  }
  for (int64_t frame = 0; frame < clip.size(0); ++frame) {
    const auto [first, last] = WindowsOver(windows, frame);
    if (last - first > 1) sum.select(0, frame).div_(static_cast<double>(last - first));
  }
  return sum;
}

}  // namespace lockstep::media
