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
  const int64_t edge = tiles.tile_overlap / 2 * scale;
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
      const int64_t top = y > rows.front() ? edge : 0, bottom = y < rows.back() ? edge : 0;
      const int64_t left = x > columns.front() ? edge : 0, right = x < columns.back() ? edge : 0;
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

void RestoreStream::Run(int64_t begin, int64_t length) {
  at::Tensor window = held_.narrow(0, begin - held_from_, length);
  if (tiles_.frames == 0) window = Mirrored(window, 0, tiles_.window[0] - length % tiles_.window[0]);
  window = Mirrored(window, 0, tiles_.least[0] - window.size(0));
  const at::Tensor restored = RestoreFrames(forward_, tiles_, window).narrow(0, 0, length);
  const int64_t shared = sum_.defined() ? written_ + sum_.size(0) - begin : 0;
  if (shared > 0) sum_.narrow(0, begin - written_, shared).add_(restored.narrow(0, 0, shared));
  const at::Tensor fresh = restored.narrow(0, shared, length - shared);
  sum_ = sum_.defined() ? at::cat({sum_, fresh}) : fresh;
  counts_.resize(static_cast<size_t>(sum_.size(0)), 0);
  for (int64_t frame = begin - written_; frame < sum_.size(0); ++frame) ++counts_[static_cast<size_t>(frame)];
}

Status RestoreStream::Emit(int64_t until) {
  const int64_t done = until - written_;
  if (done <= 0) return Status::Ok();
  const at::Tensor counts =
      at::tensor(std::vector<int64_t>(counts_.begin(), counts_.begin() + done), at::kFloat).to(sum_.device());
  LOCKSTEP_RETURN_IF_ERROR(write_(sum_.narrow(0, 0, done) / counts.view({-1, 1, 1, 1})));
  sum_ = sum_.narrow(0, done, sum_.size(0) - done).clone();
  counts_.erase(counts_.begin(), counts_.begin() + done);
  written_ = until;
  return Status::Ok();
}

Status RestoreStream::Push(const at::Tensor& frames) {
  held_ = held_.defined() ? at::cat({held_, frames}) : frames;
  if (tiles_.frames == 0) return Status::Ok();
  while (next_ + tiles_.frames < end()) {
    Run(next_, tiles_.frames);
    next_ += tiles_.frames - tiles_.frame_overlap;
    // The last window begins at least here.
    const int64_t last = end() - tiles_.frames;
    LOCKSTEP_RETURN_IF_ERROR(Emit(std::min(next_, last)));
    const int64_t drop = std::min(next_, last) - held_from_;
    if (drop > 0) held_ = held_.narrow(0, drop, held_.size(0) - drop).clone();
    held_from_ += std::max<int64_t>(drop, 0);
  }
  return Status::Ok();
}

Status RestoreStream::Finish() {
  if (!held_.defined()) return Status::Ok();
  const int64_t length = tiles_.frames == 0 ? end() : std::min(tiles_.frames, end());
  Run(end() - length, length);
  return Emit(end());
}

at::Tensor RestoreClip(const RestoreForward& forward, const RestoreTiles& tiles, const at::Tensor& clip) {
  std::vector<at::Tensor> parts;
  RestoreStream stream(forward, tiles, [&](const at::Tensor& frames) {
    parts.push_back(frames);
    return Status::Ok();
  });
  Status restored = stream.Push(clip);
  if (restored.ok()) restored = stream.Finish();
  TORCH_CHECK(restored.ok(), restored.message());
  return at::cat(parts);
}

}  // namespace lockstep::media
