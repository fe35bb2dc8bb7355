#include "media/tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lockstep::media {
namespace {

constexpr int64_t kLargest = 480;  // side of a tile that is kept; sheets show less

at::Tensor Levels(const at::Tensor& frame) { return frame.detach().to(at::kFloat).clamp(0, 1).mul(255).round(); }

// (channels, height, width), on the device where it lies: a large frame need not travel whole.
at::Tensor Reduced(const at::Tensor& planes) {
  const int64_t side = std::max(planes.size(1), planes.size(2));
  if (side <= kLargest) return planes;
  const auto fit = [&](int64_t size) { return std::max<int64_t>(1, size * kLargest / side); };
  return at::_upsample_bilinear2d_aa(planes.unsqueeze(0), {fit(planes.size(1)), fit(planes.size(2))}, false)[0];
}

}  // namespace

track::Picture ToPicture(const at::Tensor& frame) {
  const at::Tensor bytes = Reduced(Levels(frame.nan_to_num(0)))
                               .round()
                               .to(at::kByte)
                               .permute({1, 2, 0})
                               .to(at::kCPU)
                               .contiguous();  // rows of pixels
  track::Picture picture{static_cast<int>(bytes.size(1)), static_cast<int>(bytes.size(0)), {}};
  const auto* first = static_cast<const uint8_t*>(bytes.const_data_ptr());
  picture.rgb.assign(first, first + bytes.numel());
  return picture;
}

track::NumberMap ErrorMap(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor error = (Levels(a) - Levels(b)).abs().mean(0, /*keepdim=*/true);
  const at::Tensor values = Reduced(error)[0].to(at::kCPU).contiguous();
  track::NumberMap map{static_cast<int>(values.size(1)), static_cast<int>(values.size(0)), {}};
  const auto* first = static_cast<const float*>(values.const_data_ptr());
  map.values.assign(first, first + values.numel());
  return map;
}

ShownFrame ShowFrame(int64_t index, const at::Tensor& output, const at::Tensor& target) {
  return {index, ToPicture(target), ToPicture(output), ErrorMap(output, target)};
}

track::SheetRow ClipRow(std::vector<ShownFrame> frames) {
  track::SheetRow row;
  row.cells.resize(kClipColumns.size());
  for (ShownFrame& frame : frames) {
    row.detail +=
        fmt::format("{}{}", row.detail.empty() ? frames.size() > 1 ? "frames " : "frame " : " and ", frame.index);
    row.cells[0].emplace_back(std::move(frame.target));
    row.cells[1].emplace_back(std::move(frame.output));
    row.cells[2].emplace_back(std::move(frame.error));
  }
  return row;
}

}  // namespace lockstep::media
