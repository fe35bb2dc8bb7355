// Samples of several shapes as one source: buckets. Those of one shape lie together, so that the sampler can make every
// batch of one of them (Sampler::CreateBucketed). A video or picture belongs to the bucket whose aspect ratio is
// nearest to its own, whatever the rank and the order of files. Any thread, as every Source.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/image.h"
#include "data/source.h"

namespace lockstep::data {

// "288x512": height x width. Errors: anything else, sides outside 8 to 8192, one size twice.
Result<std::vector<ImageSize>> ParseSizes(const std::vector<std::string>& texts);

// The bucket of a picture: nearest in the logarithm of the aspect ratio; of several such, the largest that the picture
// fills, or the smallest. A picture of unknown size (0x0) is of the first.
size_t ChooseBucket(const std::vector<ImageSize>& buckets, const ImageSize& picture);

// The parts one after the other, each of one shape. For Describe(): `sizes[i]` is that of part i, `what` where all are
// from.
std::unique_ptr<Source> JoinBuckets(std::vector<std::shared_ptr<const Source>> parts,
                                    const std::vector<ImageSize>& sizes, std::string what);

}  // namespace lockstep::data
