#include "diagnose/attempts.h"

#include <algorithm>
#include <set>

namespace lockstep::diagnose {
namespace {

// What belongs to one end (a cleaning up, a second exception because of the first, a summary of a logger) stands
// closer to it than this.
constexpr uint64_t kOtherAttempt = 40, kLongAfter = 100, kVeryLongAfter = 300, kManyErrors = 10;

bool Quiet(const LogFinding& finding) { return finding.level == Level::kWarning || finding.level == Level::kDebug; }
bool IsStrong(const LogFinding& finding) {
  return finding.weight >= kStrong && !Quiet(finding) && (finding.role == Role::kRoot || finding.role == Role::kKernel);
}

bool IsOfAShell(const LogFinding& finding) { return finding.id == "shell" || finding.id == "conda"; }

// Files in which more than one process may speak at a time.
std::set<uint32_t> Shared(const Findings& findings) {
  std::set<uint32_t> shared;
  for (const Stream& stream : findings.streams) {
    if (stream.rank > 0 && findings.sources[stream.source].rank != stream.rank) shared.insert(stream.source);
  }
  for (const RankEnd& end : findings.ends) {
    if (end.rank != 0) shared.insert(end.source);
  }
  for (const LogFinding& finding : findings.all) {
    const bool others = finding.role == Role::kConsequence && finding.weight >= 2;
    if (others || finding.rank > 0 || finding.local_rank > 0) shared.insert(finding.source);
  }
  return shared;
}

// Exceptions that did not end the program because another one did later: raised in a thread, raised at the same line
// again and again, or said as a grave warning.
void MarkSurvived(Findings* findings, const std::set<uint32_t>& shared) {
  for (LogFinding& finding : findings->all) {
    const bool warned = finding.level == Level::kWarning && finding.weight >= 6 && finding.role != Role::kKernel;
    const bool own = findings->streams[finding.stream].rank >= 0 || !shared.contains(finding.source);
    bool again = false;
    for (const LogFinding& other : findings->all) {
      again = again ||
              (own && &other != &finding && other.stream == finding.stream && other.id == finding.id && other.frame &&
               finding.frame && other.frame->file == finding.frame->file && other.frame->line == finding.frame->line);
    }
    // A rank that had to be stopped did not die of what it had got over before.
    const bool stopped = std::any_of(findings->ends.begin(), findings->ends.end(), [&](const RankEnd& end) {
      return end.rank == finding.rank && finding.rank >= 0 && end.after_stop;
    });
    if (again && stopped) finding.earlier = true;
    if (!finding.thread && !warned && !again) continue;
    const std::string family = finding.id.substr(0, finding.id.find('-'));
    for (const LogFinding& later : findings->all) {
      if (later.source != finding.source || later.line <= finding.line || !later.traceback || later.thread ||
          Quiet(later) || later.role != Role::kRoot) {
        continue;
      }
      const bool same_rank = later.rank < 0 || finding.rank < 0 || later.rank == finding.rank;
      if (finding.thread && same_rank && IsStrong(later)) finding.earlier = true;
      if (warned && IsStrong(later) && !later.id.starts_with(family)) finding.earlier = true;
      if (again && same_rank && later.weight >= 3 && later.id != finding.id) finding.earlier = true;
    }
  }
}

}  // namespace

void MarkEarlierAttempts(Findings* findings) {
  const std::set<uint32_t> shared = Shared(*findings);
  std::erase_if(findings->ends, [&](const RankEnd& end) {
    return end.line > 0 && !shared.contains(end.source) && findings->sources[end.source].lines > end.line + kLongAfter;
  });
  for (LogFinding& finding : findings->all) {
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
    for (const LogFinding& later : findings->all) {
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
  MarkSurvived(findings, shared);
  // A program that reports errors all along and goes on does so to its end.
  for (LogFinding& finding : findings->all) {
    if (finding.id != "error-line" || finding.count < kManyErrors) continue;
    finding.earlier = std::any_of(findings->all.begin(), findings->all.end(), [&](const LogFinding& other) {
      return other.id == finding.id && other.stream == finding.stream && other.earlier;
    });
  }
}

}  // namespace lockstep::diagnose
