// GPUs of this machine that a training on the CPU leaves idle. Called by rank 0's main thread, before anything trains.
#pragma once

#include <string>

namespace lockstep::cli {

// Why they are not used and what to do, for the first lines of a training; "" where the environment shows none.
std::string UnusedGpus();

}  // namespace lockstep::cli
