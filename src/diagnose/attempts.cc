#include "diagnose/attempts.h"

#include <algorithm>
#include <set>

namespace lockstep::diagnose {
namespace {

// What belongs to one end (a cleaning up, a second exception because of the first, a summary of a logger) stands
// closer to it than this.
constexpr uint64_t kOtherAttempt = 40, kLongAfter = 100;
constexpr int kStrong = 4, kDecisive = 8;

bool Quiet(const Finding& finding) { return finding.level == Level::kWarning || finding.level == Level::kDebug; }
bool IsStrong(const Finding& finding) {
  return finding.weight >= kStrong && !Quiet(finding) && (finding.role == Role::kRoot || finding.role == Role::kKernel);
}

bool IsOfAShell(const Finding& finding) { return finding.id == "shell" || finding.id == "conda"; }

// Files in which more than one process may speak at a time.
std::set<uint32_t> Shared(const Findings& findings) {
  std::set<uint32_t> shared;
  for (const Stream& stream : findings.streams) {
    if (stream.rank > 0 && findings.sources[stream.source].rank != stream.rank) shared.insert(stream.source);
  }
  for (const RankEnd& end : findings.ends) shared.insert(end.source);
  for (const Finding& finding : findings.all) {
    const bool others = finding.role == Role::kConsequence && finding.weight >= 2;
    if (others || finding.rank > 0 || finding.local_rank > 0 || finding.id == "pt-childfailed")
      shared.insert(finding.source);
  }
  return shared;
}

}  // namespace

void MarkEarlierAttempts(Findings* findings) {
  const std::set<uint32_t> shared = Shared(*findings);
  for (Finding& finding : findings->all) {
    if (finding.weight >= kDecisive) continue;
    const bool alone = !shared.contains(finding.source);
    // A shell goes on after a line that failed; what came afterwards tells more.
    const bool shell = IsOfAShell(finding);
    if (shell && findings->streams[finding.stream].marks > finding.marks) finding.earlier = true;
    if (!shell && (!finding.traceback || !alone)) continue;
    if (alone && findings->sources[finding.source].lines > finding.line + kLongAfter) finding.earlier = true;
    if (!IsStrong(finding)) continue;
    for (const Finding& later : findings->all) {
      if (finding.earlier) break;
      if (later.source != finding.source || later.line <= finding.line || !IsStrong(later) || IsOfAShell(later))
        continue;
      const bool same_rank = later.rank < 0 || finding.rank < 0 || later.rank == finding.rank;
      const bool other_attempt = alone && later.line > finding.line + kOtherAttempt && later.text != finding.text &&
                                 later.weight >= finding.weight && (later.traceback || later.weight >= kDecisive);
      finding.earlier = (shell && same_rank) || other_attempt;
    }
  }
}

}  // namespace lockstep::diagnose
