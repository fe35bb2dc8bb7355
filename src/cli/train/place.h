// Who this rank is. A launcher says it with RANK, WORLD_SIZE and friends; srun and mpirun say it in words of their own,
// which place/ understands. Nothing said: a world of one. Called once, by the main thread, before anything connects.
#pragma once

#include "base/status.h"
#include "comm/communicator.h"

namespace lockstep::cli {

Result<comm::Bootstrap> FindIdentity();

}  // namespace lockstep::cli
