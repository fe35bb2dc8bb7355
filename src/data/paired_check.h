// Checks of PairedSet: the numbers in frames' names, the sizes of pictures by their headers, and what a configuration
// asks for. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "data/paired_set.h"

namespace lockstep::data {

// 47 of "000047", 3 of "im3"; nothing where no digit is at the end.
std::optional<int64_t> NumberOfFrame(std::string_view stem);

// Values that contradict each other, before any file is looked at.
Status CheckPairedConfig(const PairedConfig& config);

// Sizes of a clip's frames into the clip. Errors: frames of mixed size, an input that is not target / scale, a crop
// that does not fit. Headers of pictures are read.
Status CheckClipSizes(const PairedConfig& config, const std::string& target_file, const std::string& input_file,
                      const PartReader& parts, PairedClip* clip);

}  // namespace lockstep::data
