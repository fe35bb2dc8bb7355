// Frames as tiles of a sheet (track/sheet.h): the step from tensors to pixels. Any device; one thread.
//
//   std::vector<ShownFrame> frames = {ShowFrame(0, output[0], target[0]), ShowFrame(11, output[11], target[11])};
//   sheet->rows.push_back(ClipRow(frames));
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "track/sheet.h"

namespace lockstep::media {

// A frame (3, height, width) of values in [0, 1]; what is larger than a tile is reduced. Not a number becomes black.
track::Picture ToPicture(const at::Tensor& frame);

// |a - b| of two such frames after rounding to 8 bits, the mean over channels, in levels of 0 to 255 (kAbsoluteError).
track::NumberMap ErrorMap(const at::Tensor& a, const at::Tensor& b);

struct ShownFrame {
  int64_t index = 0;  // in the clip
  track::Picture target, output;
  track::NumberMap error;
};
ShownFrame ShowFrame(int64_t index, const at::Tensor& output, const at::Tensor& target);

// Columns of a sheet of reconstructed clips, and the row of one: its frames in each column, their numbers as detail.
inline const std::vector<std::string> kClipColumns = {"input", "reconstruction", "error"};
track::SheetRow ClipRow(std::vector<ShownFrame> frames);

}  // namespace lockstep::media
