// Seconds of a collective over `ranks` GPUs: ring (Patarasuk and Yuan 2009: every link carries (n - 1) / n of the
// bytes) and double binary tree (Sanders, Speck, Traff 2009; NCCL 2.4), with nodes of several GPUs. Pure, any thread.
#pragma once

#include <cstdint>

#include "plan/machine.h"

namespace lockstep::plan {

enum class Algorithm { kRing, kTree };
enum class Collective { kAllReduce, kReduceScatter, kAllGather };

// `bytes`: of the whole buffer.
double SecondsOf(Collective collective, Algorithm algorithm, double bytes, int ranks, const Links& links);
// The faster one; a tree exists for all-reduce only.
double BestSecondsOf(Collective collective, double bytes, int ranks, const Machine& machine,
                     Algorithm* chosen = nullptr);

}  // namespace lockstep::plan
