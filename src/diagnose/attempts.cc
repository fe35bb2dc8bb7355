#include "diagnose/attempts.h"

#include <algorithm>
#include <set>

namespace lockstep::diagnose {
namespace {

// What belongs to one end (a cleaning up, a second exception because of the first, a summary of a logger) stands
// closer to it than this.
constexpr uint64_t kOtherAttempt = 40, kLongAfter = 100, kVeryLongAfter = 300, kManyErrors = 10;
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
  for (const RankEnd& end : findings.ends) {
    if (end.rank != 0) shared.insert(end.source);
  }
  for (const Finding& finding : findings.all) {
    const bool others = finding.role == Role::kConsequence && finding.weight >= 2;
    if (others || finding.rank > 0 || finding.local_rank > 0) shared.insert(finding.source);
  }
  return shared;
}

}  // namespace

void MarkEarlierAttempts(Findings* findings) {
  const std::set<uint32_t> shared = Shared(*findings);
  std::erase_if(findings->ends, [&](const RankEnd& end) {
    return end.line > 0 && !shared.contains(end.source) && findings->sources[end.source].lines > end.line + kLongAfter;
  });
  for (Finding& finding : findings->all) {
    if (finding.weight >= kDecisive || finding.role == Role::kKernel) continue;
    const uint64_t lines = findings->sources[finding.source].lines;
    const bool alone = !shared.contains(finding.source);
    // A shell goes on after a line that failed; what came afterwards tells more.
    const bool shell = IsOfAShell(finding);
    if (shell && findings->streams[finding.stream].marks > finding.marks) finding.earlier = true;
    if (!shell && !alone) continue;
    const bool ended = finding.traceback || finding.role == Role::kTrigger;
    if (alone && lines > finding.line + (ended ? kLongAfter : kVeryLongAfter)) finding.earlier = true;
    if (!IsStrong(finding)) continue;
    for (const Finding& later : findings->all) {
      if (finding.earlier) break;
      if (later.source != finding.source || later.line <= finding.line || IsOfAShell(later) || Quiet(later)) continue;
      const bool same_rank = later.rank < 0 || finding.rank < 0 || later.rank == finding.rank;
      const bool as_heavy = IsStrong(later) && later.weight >= finding.weight;
      // The last word of the file, be it only that somebody interrupted it.
      const bool last = later.traceback && later.line + 3 >= lines;
      const bool other_attempt = alone && later.line > finding.line + kOtherAttempt &&
                                 !finding.text.starts_with(later.text) &&
                                 (last || (as_heavy && (later.traceback || later.weight >= kDecisive)));
      finding.earlier = (shell && same_rank && IsStrong(later)) || other_attempt;
    }
  }
  // A program that reports errors all along and goes on does so to its end.
  for (Finding& finding : findings->all) {
    if (finding.id != "error-line" || finding.count < kManyErrors) continue;
    finding.earlier = std::any_of(findings->all.begin(), findings->all.end(), [&](const Finding& other) {
      return other.id == finding.id && other.stream == finding.stream && other.earlier;
    });
  }
}

}  // namespace lockstep::diagnose
