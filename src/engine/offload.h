// Updates of parameters whose float32 master and optimizer state lie in host memory while the model is on a device:
// gradients are copied down in chunks, one fused pass on the CPU updates moments and master, and the parameters go back
// in the type the model computes with. Copies and passes overlap; a thread of its own does all of it, so that the next
// forward can begin with the parameters that are back already: chunks go in the order of the forward pass.
//
// Nothing is approximated: the norm of the whole gradient is known before the first chunk.
#pragma once

#include <memory>

#include "engine/updater.h"

namespace lockstep::engine {

// `flat` must outlive the updater; its own values are in host memory, its gradients on the device.
std::unique_ptr<Updater> MakeOffloadUpdater(const UpdaterConfig& config, FlatParameters* flat,
                                            ParallelStrategy* strategy);

}  // namespace lockstep::engine
