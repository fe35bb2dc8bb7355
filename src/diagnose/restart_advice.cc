#include "diagnose/restart_advice.h"

#include "diagnose/exceptions.h"

namespace lockstep::diagnose {

void SetRestart(const LogFinding& finding, Diagnosis* out) {
  Policy policy = finding.policy;
  // Exceptions that only the general rules know. Before the first step they repeat themselves; later the data or the
  // moment may have been the reason, so nothing is ruled out.
  if (!finding.exception.empty() && finding.id == ExceptionId(finding.exception)) {
    if (policy == Policy::kStop && finding.marks > 0) policy = Policy::kFix;
    if (policy == Policy::kOnce && finding.marks == 0 && IsProgramError(finding.exception)) policy = Policy::kFix;
  }
  switch (policy) {
    case Policy::kSame:
    case Policy::kOnce:
    case Policy::kWait:
      out->restart = Restart::kYes;
      break;
    case Policy::kExclude:
      out->restart = Restart::kYes;
      out->exclude_node = true;
      break;
    case Policy::kFix:
      out->restart = Restart::kAfterFix;
      break;
    case Policy::kStop:
      out->restart = Restart::kNo;
      break;
    case Policy::kNone:
      out->restart = Restart::kUndecided;
  }
}

}  // namespace lockstep::diagnose
