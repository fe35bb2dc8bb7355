// What one line leaves open and another one knows. Pure; any thread.
#pragma once

#include "diagnose/diagnosis.h"
#include "diagnose/findings.h"

namespace lockstep::diagnose {

// Rank and node of a kernel's or scheduler's word that names nobody (oom-slurm), from another witness of the same kind
// of death (oom-srun), if all of those agree on one rank.
void NameByWitness(const Findings& findings, const LogFinding& finding, Diagnosis* out);

}  // namespace lockstep::diagnose
