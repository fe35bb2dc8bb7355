// Who was everybody waiting for? When ranks time out in a collective, the rank to name is the one that did not. Pure.
#pragma once

#include "diagnose/diagnosis.h"
#include "diagnose/findings.h"

namespace lockstep::diagnose {

// What NCCL's watchdogs say of their collectives, put together. Ranks that wait in different collectives under one
// sequence number of one process group called different ones: that becomes a finding, a cause. And an abort after the
// watchdog's own words is how such a rank ends, no cause of its own.
void CompareCollectives(Findings* findings);

// Where the cause is a time-out, names the rank that is missing among those that report it, if that can be known.
void NameTheMissing(const Findings& findings, const LogFinding& cause, Diagnosis* out);

}  // namespace lockstep::diagnose
