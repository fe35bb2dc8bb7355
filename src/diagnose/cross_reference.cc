#include "diagnose/cross_reference.h"

#include <string>

namespace lockstep::diagnose {

void NameFromOtherLines(const Findings& findings, const LogFinding& finding, Diagnosis* out) {
  const std::string family = finding.id.substr(0, finding.id.find('-') + 1);
  if (finding.role != Role::kKernel || family.empty()) return;
  const LogFinding* found = nullptr;
  for (const LogFinding& other : findings.all) {
    if (other.rank < 0 || other.role != Role::kKernel || !other.id.starts_with(family)) continue;
    if (found != nullptr && found->rank != other.rank) return;  // several: not one of them
    found = &other;
  }
  if (found == nullptr) return;
  out->rank = found->rank;
  if (out->node.empty()) out->node = found->node;
}

}  // namespace lockstep::diagnose
