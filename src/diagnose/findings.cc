#include "diagnose/findings.h"

#include <fmt/format.h>

namespace lockstep::diagnose {

void Findings::Add(LogFinding finding) {
  const std::string key = fmt::format("{}\x1f{}\x1f{}\x1f{}\x1f{}", finding.id, finding.rank, finding.node,
                                      finding.source, finding.traceback);
  if (all.size() >= kMost && kept_.find(key) == kept_.end()) return;
  Kept& kept = kept_[key];
  ++kept.count;
  if (kept.count <= kFirst + 1) {
    kept.last = all.size();
    all.push_back(std::move(finding));
    return;
  }
  finding.count = kept.count - kFirst;
  all[kept.last] = std::move(finding);
}

void Findings::AddEnd(RankEnd end) {
  if (ends.size() < kMostEnds) ends.push_back(std::move(end));
}

}  // namespace lockstep::diagnose
