// Test clips of video restoration, each a sample of its own: all its frames, whole (paired_set.h; the fields are those
// of paired_clips.h). Samples of one size and length lie together. Nothing is drawn. Any thread.
#pragma once

#include <memory>

#include "data/paired_set.h"
#include "data/source.h"

namespace lockstep::data {

std::unique_ptr<Source> MakeWholeClips(std::shared_ptr<const PairedSet> set);

}  // namespace lockstep::data
