// What one line leaves open and another one knows. Pure; any thread.
#pragma once

#include "diagnose/diagnosis.h"
#include "diagnose/findings.h"

namespace lockstep::diagnose {

// Rank and node of a finding whose line names neither (oom-slurm), from findings of the same kind of end that do
// (oom-srun), if all of those agree on one rank.
void NameFromOtherLines(const Findings& findings, const LogFinding& finding, Diagnosis* out);

}  // namespace lockstep::diagnose
