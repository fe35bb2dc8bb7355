#include "media/interpolate.h"

#include <algorithm>

namespace lockstep::media {

int64_t InterpolatedCount(int64_t count) { return count > 0 ? 2 * count - 1 : 0; }

std::vector<double> InterpolatedTimes(const std::vector<double>& seconds) {
  std::vector<double> all;
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (i > 0) all.push_back((seconds[i - 1] + seconds[i]) / 2);
    all.push_back(seconds[i]);
  }
  return all;
}

FrameWindow FramesAround(const FrameWindow& window, int64_t between, int64_t count) {
  const int64_t begin = std::max<int64_t>(0, window.begin / 2 - (between / 2 - 1));
  const int64_t end = std::min(count, (window.end() - 1) / 2 + between / 2 + 1);
  return {begin, end - begin};
}

at::Tensor InterpolateWindow(const RestoreForward& forward, const RestoreTiles& tiles, const FrameWindow& window,
                             int64_t count, const at::Tensor& frames) {
  const int64_t first = FramesAround(window, tiles.between, count).begin;
  const auto frame = [&](int64_t number) {
    return frames.narrow(0, std::clamp<int64_t>(number, 0, count - 1) - first, 1);
  };
  std::vector<at::Tensor> made;
  for (int64_t out = window.begin; out < window.end(); ++out) {
    const int64_t left = out / 2;
    if (out % 2 == 0) {
      made.push_back(frame(left).to(at::kFloat));
      continue;
    }
    std::vector<at::Tensor> around;
    for (int64_t i = 0; i < tiles.between; ++i) around.push_back(frame(left - (tiles.between / 2 - 1) + i));
    made.push_back(RestoreFrames(forward, tiles, at::cat(around)));
  }
  return at::cat(made);
}

}  // namespace lockstep::media
