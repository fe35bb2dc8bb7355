// Who was everybody waiting for? When ranks time out in a collective, the rank to name is the one that did not. Pure.
#pragma once

#include "diagnose/diagnosis.h"
#include "diagnose/findings.h"

namespace lockstep::diagnose {

// Where the cause is a time-out, names the rank that is missing among those that report it, if that can be known.
void NameTheMissing(const Findings& findings, const Finding& cause, Diagnosis* out);

}  // namespace lockstep::diagnose
