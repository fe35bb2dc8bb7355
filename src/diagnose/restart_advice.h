// Whether trying again can help, from the policy of the finding that was chosen as the cause. Pure; any thread.
#pragma once

#include "diagnose/diagnosis.h"
#include "diagnose/findings.h"

namespace lockstep::diagnose {

void SetRestart(const LogFinding& finding, Diagnosis* out);

}  // namespace lockstep::diagnose
