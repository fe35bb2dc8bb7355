// Where parameters lie in the flat buffers: plan/layout.h, by the engine's names.
#pragma once

#include "plan/layout.h"

namespace lockstep::engine {

using plan::Buffer;
using plan::FlatRange;
using plan::IsSharded;
using plan::kFlatAlignment;
using plan::Layout;
using plan::Segment;
using plan::SegmentsOf;
using plan::Stage;
using plan::TotalSize;

}  // namespace lockstep::engine
