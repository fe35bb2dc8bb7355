// A file to which several attempts were appended (nohup, a scheduler's fixed output name, a script that goes on after a
// failed line) tells of errors that are history: the last attempt decides. Marks such findings. Owned by the judge,
// called once before it weighs; plain values, one thread.
#pragma once

#include "diagnose/findings.h"

namespace lockstep::diagnose {

// Sets `earlier` on what the same file went on after, and forgets the ends of such attempts. Only where no sign of
// several processes that speak at once is in that file: there an error that is followed by others is often the cause of
// them.
void MarkEarlierAttempts(Findings* findings);

}  // namespace lockstep::diagnose
