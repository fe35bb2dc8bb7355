// Clips that validate frame interpolation, as a Source: every second frame, whole, and the frame in their middle.
//
//   input   U8 [T, 3, h, w]     frames s, s + 2, ..., s + 2 (T - 1) of a clip
//   target  U8 [1, 3, h, w]     frame s + T - 1
//
// s is 0, 2, 4, ... while the frames are there: one sample of a septuplet of Vimeo90K. With PairedConfig::repeat_ends s
// begins before the clip and ends behind it, and frames there are its first and last one: every second frame of the
// clip is a target once. With PairedConfig::center the part of frames in the middle. Sizes of clips may differ. Any
// thread.
#pragma once

#include <memory>

#include "data/paired_set.h"
#include "data/source.h"

namespace lockstep::data {

std::unique_ptr<Source> MakeInterpolationClips(std::shared_ptr<const PairedSet> set);

}  // namespace lockstep::data
