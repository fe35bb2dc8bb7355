// Findings -> verdict: which of all the errors is the cause, and why the others are not. Pure; any thread.
#pragma once

#include "diagnose/diagnosis.h"
#include "diagnose/findings.h"

namespace lockstep::diagnose {

Diagnosis Judge(Findings findings);

}  // namespace lockstep::diagnose
