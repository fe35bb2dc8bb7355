// Samples that stay in memory once they were read: for data that fit, read without augmentation, so that every epoch
// shows the same. Any thread; the memory belongs to this process alone.
#pragma once

#include <cstdint>
#include <memory>

#include "data/source.h"

namespace lockstep::data {

// The first samples read stay, as many as fit into `bytes`; the others are read each time. A draw with augmentation is
// never kept.
std::unique_ptr<Source> Cached(std::shared_ptr<const Source> source, uint64_t bytes);

}  // namespace lockstep::data
