#include "diagnose/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "base/text.h"
#include "diagnose/attempts.h"
#include "diagnose/cross_reference.h"
#include "diagnose/exceptions.h"
#include "diagnose/rank_ends.h"
#include "diagnose/restart_advice.h"
#include "diagnose/waiting.h"

namespace lockstep::diagnose {
namespace {

constexpr size_t kMaxEvidence = 8, kMaxConsequences = 12, kMaxAlternatives = 4;

// A finding as the judge sees it.
struct Candidate {
  const LogFinding* finding = nullptr;
  bool soft = false;             // said as a warning, or the rank went on afterwards
  bool recovered = false;        // the rank went on afterwards
  const RankEnd* end = nullptr;  // made from how a rank ended: its place in the file says nothing about when

  bool from_end() const { return end != nullptr; }
};

bool IsCause(const LogFinding& finding) { return finding.role == Role::kRoot || finding.role == Role::kKernel; }

// Whether a is known to have come before b. Within a file by place, else by time.
bool KnownEarlier(const Candidate& a, const Candidate& b) {
  if (a.finding->source == b.finding->source && !a.from_end() && !b.from_end())
    return a.finding->line < b.finding->line;
  if (a.finding->time > 0 && b.finding->time > 0) return a.finding->time < b.finding->time;
  return false;
}

class Court {
 public:
  explicit Court(Findings findings) : f_(std::move(findings)) {}

  Diagnosis Decide() {
    ResolveRanks();
    MarkEarlierAttempts(&f_);
    CompareCollectives(&f_);
    AddEndFindings();
    MakeCandidates();
    const Candidate* chosen = Choose();
    Diagnosis out;
    if (chosen == nullptr) {
      DecideWithoutCause(&out);
      return out;
    }
    Describe(*chosen, &out);
    return out;
  }

 private:
  // A device number is a rank when there is one node.
  void ResolveRanks() {
    std::set<std::string> nodes;
    for (const Stream& stream : f_.streams) {
      if (!stream.node.empty()) nodes.insert(stream.node);
    }
    for (const RankEnd& end : f_.ends) {
      if (!end.node.empty()) nodes.insert(end.node);
    }
    if (nodes.size() > 1) return;
    for (LogFinding& finding : f_.all) {
      if (finding.rank < 0) finding.rank = finding.local_rank;
    }
    for (RankEnd& end : f_.ends) {
      if (end.rank < 0) end.rank = end.local_rank;
    }
  }

  // The rank that ended first of those that were not told to.
  const RankEnd* FirstEnd() const {
    const RankEnd* best = nullptr;
    for (const RankEnd& end : f_.ends) {
      if (!end.failed() || end.after_stop || (end.line > 0 && WentOn(end.source, end.source_marks))) continue;
      if (best == nullptr || (end.first && !best->first) ||
          (end.first == best->first && end.time > 0 && best->time > 0 && end.time < best->time)) {
        best = &end;
      }
    }
    return best;
  }

  bool SaysSomething(int rank) const {
    return std::any_of(f_.all.begin(), f_.all.end(), [&](const LogFinding& finding) {
      return finding.rank == rank && finding.weight >= 2 && finding.role != Role::kTrigger &&
             finding.level != Level::kWarning;
    });
  }

  void AddEndFindings() {
    for (const RankEnd& end : f_.ends) {
      if (!end.failed()) continue;
      made_.push_back(EndFinding(end, SaysSomething(end.rank)));
      made_of_.push_back(&end);
    }
  }

  // Whether work went on in a file after that much progress, to a clean end: an attempt that was repeated, a rank whose
  // lines bear no tag.
  bool WentOn(uint32_t source, uint64_t marks) const {
    if (source >= f_.sources.size() || f_.sources[source].marks < marks + 3) return false;
    const uint64_t last = f_.sources[source].last_mark_line;
    for (const RankEnd& end : f_.ends) {
      if (end.source == source && end.line > last && end.failed()) return false;
    }
    return std::none_of(f_.all.begin(), f_.all.end(), [&](const LogFinding& other) {
      return other.source == source && other.line > last && other.weight >= 1 && other.level != Level::kWarning &&
             other.level != Level::kDebug && other.level != Level::kInfo;
    });
  }

  void MakeCandidates() {
    for (const LogFinding& finding : f_.all) {
      if (finding.weight <= 0) continue;
      Candidate candidate{.finding = &finding};
      const Stream& stream = f_.streams[finding.stream];
      candidate.recovered =
          finding.earlier || stream.marks >= finding.marks + 2 || WentOn(finding.source, finding.source_marks);
      const bool quiet =
          finding.level == Level::kWarning || finding.level == Level::kInfo || finding.level == Level::kDebug;
      // What a speaker says last was not got over.
      const bool final = finding.traceback && stream.last_line <= finding.line + 3 && stream.marks == finding.marks &&
                         finding.level != Level::kDebug;
      candidate.soft = candidate.recovered || (quiet && finding.weight < 6 && finding.role != Role::kKernel && !final);
      if (finding.id == "num-nan") {
        candidate.soft = stream.loss_finite;
        candidate.recovered = candidate.soft;
      }
      candidates_.push_back(candidate);
    }
    for (size_t i = 0; i < made_.size(); ++i) {
      const LogFinding& finding = made_[i];
      const bool went_on = finding.line > 0 && WentOn(finding.source, finding.source_marks);
      candidates_.push_back({.finding = &finding, .soft = went_on, .recovered = went_on, .end = made_of_[i]});
    }
  }

  // The better of two of the same kind when nothing is known about their order.
  bool Preferable(const Candidate& a, const Candidate& b, int first_rank) const {
    const bool a_first = first_rank >= 0 && a.finding->rank == first_rank;
    const bool b_first = first_rank >= 0 && b.finding->rank == first_rank;
    if (a_first != b_first) return a_first;
    if (a.finding->weight != b.finding->weight) return a.finding->weight > b.finding->weight;
    if (a.finding->traceback != b.finding->traceback) return a.finding->traceback;
    const size_t a_votes = Votes(a.finding->id), b_votes = Votes(b.finding->id);
    if (a_votes != b_votes) return a_votes < b_votes;
    if (a.finding->source != b.finding->source) return a.finding->rank < b.finding->rank;
    return a.finding->line < b.finding->line;
  }

  size_t Votes(const std::string& id) const {
    std::set<std::pair<int, uint32_t>> voters;
    for (const Candidate& candidate : candidates_) {
      if (candidate.finding->id == id) voters.insert({candidate.finding->rank, candidate.finding->source});
    }
    return voters.size();
  }

  template <typename Keep>
  const Candidate* Earliest(Keep keep) {
    const RankEnd* first_end = FirstEnd();
    const int first_rank = first_end == nullptr ? -1 : first_end->rank;
    const Candidate* best = nullptr;
    for (const Candidate& candidate : candidates_) {
      if (keep(candidate) && (best == nullptr || Preferable(candidate, *best, first_rank))) best = &candidate;
    }
    if (best == nullptr) return nullptr;
    // Order is only partly known: move to what is known to be earlier, as long as there is something.
    bool moved = true;
    for (int i = 0; moved && i < 100; ++i) {
      moved = false;
      for (const Candidate& candidate : candidates_) {
        if (&candidate != best && keep(candidate) && KnownEarlier(candidate, *best)) {
          best = &candidate;
          moved = true;
        }
      }
    }
    return best;
  }

  const Candidate* Choose() {
    // A run that ends well with a loss that is no number has failed all the same.
    const Candidate* diverged = Earliest([](const Candidate& c) { return !c.soft && c.finding->id == "num-nan"; });
    if ((f_.outcome && *f_.outcome == "succeeded") || Finished()) return diverged;
    const Candidate* decisive =
        Earliest([](const Candidate& c) { return !c.soft && IsCause(*c.finding) && c.finding->weight >= kDecisive; });
    const Candidate* strong = Earliest([](const Candidate& c) {
      return !c.soft && IsCause(*c.finding) && c.finding->weight >= kStrong && c.finding->weight < kDecisive;
    });
    if (decisive != nullptr) {
      if (strong == nullptr) return decisive;
      // A cause that is known to have come first stands; so does a program's own error against a scheduler that only
      // cleared up afterwards.
      const bool program = strong->finding->weight >= 5 && !strong->from_end();
      if (program && KnownEarlier(*strong, *decisive)) return strong;
      const bool cleared_up = decisive->finding->policy == Policy::kSame;
      return program && cleared_up && strong->finding->traceback && !KnownEarlier(*decisive, *strong) ? strong
                                                                                                      : decisive;
    }
    if (strong != nullptr) return strong;
    if (const Candidate* weak = Earliest([](const Candidate& c) {
          return !c.soft && IsCause(*c.finding) && c.finding->weight >= 2 && c.finding->weight < kStrong;
        })) {
      // Of waits and deaths the heavier first; a wait is explained by a death.
      const RankEnd* first_end = FirstEnd();
      for (const Candidate& candidate : candidates_) {
        if (!candidate.soft && IsCause(*candidate.finding) && candidate.finding->weight < kStrong &&
            candidate.finding->weight > weak->finding->weight) {
          weak = &candidate;
        }
      }
      // An abort is how a process ends that has just said why.
      if (first_end != nullptr && first_end->signal != 0 && first_end->signal != SIGABRT && !first_end->after_stop) {
        for (const Candidate& candidate : candidates_) {
          if (candidate.from_end() && candidate.finding->rank == first_end->rank && candidate.finding->weight >= 2)
            weak = &candidate;
        }
      }
      if (const Candidate* name = UnknownName(*weak)) return name;
      if (const Candidate* said = Unexplained(*weak)) return said;
      if (weak->finding->id != "error-line") return weak;
      // Words that nobody knows explain less than any that are known.
      if (const Candidate* named = Earliest([](const Candidate& c) {
            return !c.soft && !c.from_end() && IsCause(*c.finding) && c.finding->weight == 3 &&
                   c.finding->id != "error-line";
          })) {
        return named;
      }
      const Candidate* known = BestLeft();
      return known != nullptr && known->finding->weight > 1 && !known->from_end() ? known : weak;
    }
    if (const Candidate* left = BestLeft()) return left;
    // Something failed although everything that was found had been got over.
    if (Failed()) return Earliest([](const Candidate& c) { return IsCause(*c.finding) && c.finding->weight >= 2; });
    return nullptr;
  }

  // An exit code that nobody explains is explained by the last exception, even one that seemed to be dealt with.
  const Candidate* Unexplained(const Candidate& end) const {
    if (!end.from_end() || end.finding->weight > 2) return nullptr;
    const Candidate* last = nullptr;
    for (const Candidate& candidate : candidates_) {
      const LogFinding& finding = *candidate.finding;
      const bool dealt_with = candidate.soft && !candidate.recovered && finding.level == Level::kWarning;
      const bool ends = !candidate.soft && finding.role == Role::kTrigger && finding.rank == end.finding->rank;
      const bool grave = ends || (dealt_with && IsCause(finding) && finding.weight >= kStrong);
      if (grave && finding.traceback) last = &candidate;
    }
    return last;
  }

  // A host name that cannot be resolved is often only warned about; it explains that nobody was reached.
  const Candidate* UnknownName(const Candidate& weak) const {
    const std::string& id = weak.finding->id;
    if (id != "pt-store-client-to" && id != "pt-store-wait" && id != "pt-rdzv-timeout" && id != "gloo-mesh")
      return nullptr;
    for (const Candidate& candidate : candidates_) {
      if (candidate.finding->id == "pt-dns" && !candidate.recovered) return &candidate;
    }
    return nullptr;
  }

  // Consequences and triggers: better than nothing.
  const Candidate* BestLeft() const {
    const Candidate* best = nullptr;
    for (const Candidate& candidate : candidates_) {
      if (candidate.soft) continue;
      if (best == nullptr || candidate.finding->weight > best->finding->weight) best = &candidate;
    }
    return best;
  }

  bool Failed() const {
    if (f_.outcome && *f_.outcome == "failed") return true;
    for (const RankEnd& end : f_.ends) {
      if (end.failed() && !end.after_stop && !(end.line > 0 && WentOn(end.source, end.source_marks))) return true;
    }
    return false;
  }

  // Whether the run visibly came to its end: it says so, or its counter reached the total, and nothing worse than a
  // cleaning-up noise came afterwards.
  bool Finished() const {
    if (Failed()) return false;
    for (const Candidate& candidate : candidates_) {
      if (!candidate.soft && IsCause(*candidate.finding) && candidate.finding->weight >= kDecisive) return false;
    }
    return std::any_of(f_.streams.begin(), f_.streams.end(),
                       [&](const Stream& stream) { return CameToItsEnd(stream); });
  }

  bool CameToItsEnd(const Stream& stream) const {
    const bool last_word = stream.done_line > 0 && stream.done_line + 3 >= f_.sources[stream.source].lines;
    const bool said = stream.finished_line > 0 || last_word;
    const bool counted = stream.total && stream.step && *stream.step >= *stream.total && stream.marks >= 2;
    if (!said && !counted) return false;
    const uint64_t done =
        std::max({stream.finished_line, counted ? stream.last_mark_line : 0, last_word ? stream.done_line : 0});
    return std::none_of(candidates_.begin(), candidates_.end(), [&](const Candidate& candidate) {
      const LogFinding& finding = *candidate.finding;
      if (candidate.soft) return false;
      // A bar that is full may be one of many: any sign of an end that is not the program's own speaks against it.
      if (!said) return finding.source != stream.source || finding.line > done || finding.traceback;
      const bool cause = IsCause(finding) && finding.weight >= 3 && !candidate.from_end();
      return cause && (finding.source != stream.source || finding.line > done);
    });
  }

  void DecideWithoutCause(Diagnosis* out) const {
    uint64_t marks = 0;
    for (const Stream& stream : f_.streams) marks += stream.marks;
    const bool succeeded = f_.outcome && *f_.outcome == "succeeded";
    if (succeeded || Finished() || (marks >= 2 && !Failed())) {
      out->verdict = Verdict::kHealthy;
      out->cause = succeeded || Finished() ? "the run came to its end"
                                           : "the run makes progress; nothing in the logs says that it failed";
      out->confidence = succeeded ? 0.99 : Finished() ? 0.9 : 0.7;
      for (const Stream& stream : f_.streams) {
        if (stream.step && (!out->last_step || static_cast<int64_t>(*stream.step) > *out->last_step)) {
          out->last_step = static_cast<int64_t>(*stream.step);
        }
      }
      AddSoft(out);
      return;
    }
    out->verdict = Verdict::kUnknown;
    uint64_t lines = 0;
    for (const SourceInfo& source : f_.sources) lines += source.lines;
    out->cause =
        lines == 0 ? "the logs are empty" : "nothing in the logs says what happened: no error, no progress, no end";
    out->remedy = "give the logs of all ranks, stderr included, and those of the scheduler";
    AddSoft(out);
  }

  // What was got over: told, not blamed.
  void AddSoft(Diagnosis* out) const {
    std::set<std::string> seen;
    for (const Candidate& candidate : candidates_) {
      if (out->consequences.size() >= 4) break;
      if (candidate.from_end() || candidate.finding->weight < 2 || !seen.insert(candidate.finding->id).second) continue;
      out->consequences.push_back(
          {.what = candidate.finding->cause,
           .signature = candidate.finding->id,
           .ranks = RanksOf(candidate.finding->id),
           .why = candidate.recovered ? "the run went on afterwards" : "said as a warning, or when the run was over"});
    }
  }

  std::vector<int> RanksOf(const std::string& id) const {
    std::set<int> ranks;
    for (const Candidate& candidate : candidates_) {
      if (candidate.finding->id == id && candidate.finding->rank >= 0) ranks.insert(candidate.finding->rank);
    }
    return {ranks.begin(), ranks.end()};
  }

  EvidenceLine Line(const LogFinding& finding, uint64_t line, const std::string& text) const {
    return {.file = f_.sources.empty() ? "" : f_.sources[finding.source].path,
            .line = line,
            .text = Printable(text, 300),
            .rank = finding.rank,
            .node = finding.node};
  }

  void Describe(const Candidate& chosen, Diagnosis* out) {
    const LogFinding& finding = *chosen.finding;
    out->verdict = Verdict::kFailure;
    out->signature = finding.id;
    out->cause = finding.cause;
    out->remedy = finding.remedy;
    out->rank = finding.rank;
    out->node = finding.node;
    // The same said with a tag elsewhere names the rank.
    for (const Candidate& candidate : candidates_) {
      if (out->rank >= 0) break;
      if (candidate.finding->id == finding.id && !candidate.soft) out->rank = candidate.finding->rank;
    }
    if (out->rank < 0) NameFromOtherLines(f_, finding, out);
    const RankEnd* first_end = FirstEnd();
    if (out->rank < 0 && first_end != nullptr && finding.role == Role::kRoot) {
      out->rank = first_end->rank;
      if (out->node.empty()) out->node = first_end->node;
    }
    if (out->node.empty() && out->rank >= 0) {
      for (const RankEnd& end : f_.ends) {
        if (end.rank == out->rank && !end.node.empty()) out->node = end.node;
      }
    }
    if (chosen.from_end() && chosen.end->signal == 0) out->cause += LastLine(out->rank);
    NameAlike(chosen, out);
    SetRestart(finding, out);
    SetConfidence(chosen, out);
    AddEvidence(chosen, out);
    AddConsequences(chosen, out);
    AddAlternatives(chosen, out);
    NameTheMissing(f_, finding, out);
    for (const Stream& stream : f_.streams) {
      const bool same = out->rank >= 0 ? stream.rank == out->rank : true;
      if (same && stream.step && (!out->last_step || static_cast<int64_t>(*stream.step) > *out->last_step)) {
        out->last_step = static_cast<int64_t>(*stream.step);
      }
    }
    if (!out->last_step && f_.streams.size() > finding.stream && f_.streams[finding.stream].step) {
      out->last_step = static_cast<int64_t>(*f_.streams[finding.stream].step);
    }
  }

  const SourceInfo* SourceOf(int rank) const {
    const auto found = std::find_if(f_.sources.begin(), f_.sources.end(), [&](const SourceInfo& source) {
      return rank >= 0 && source.rank == rank && !source.last_words.empty();
    });
    return found == f_.sources.end() ? nullptr : &*found;
  }

  // What a rank that only its exit code speaks for wrote last: often the reason, in words that no rule knows.
  std::string LastLine(int rank) const {
    const SourceInfo* source = SourceOf(rank);
    return source == nullptr ? "" : "; its last line: " + Printable(source->last_words, 200);
  }

  // The other ranks that failed of the same. An exit code alone is the same end if the last lines are the same, too.
  void NameAlike(const Candidate& chosen, Diagnosis* out) const {
    const SourceInfo* mine = SourceOf(out->rank);
    std::set<int> ranks;
    for (const Candidate& candidate : candidates_) {
      const LogFinding& finding = *candidate.finding;
      if (candidate.soft || finding.rank < 0 || finding.rank == out->rank || out->rank < 0) continue;
      if (finding.id != chosen.finding->id || chosen.from_end() != candidate.from_end()) continue;
      const SourceInfo* other = SourceOf(finding.rank);
      const bool same = chosen.from_end()
                            ? (mine == nullptr ? other == nullptr && !candidate.end->after_stop
                                               : other != nullptr && other->last_words == mine->last_words)
                            : finding.cause == chosen.finding->cause;
      if (same) ranks.insert(finding.rank);
    }
    out->alike.assign(ranks.begin(), ranks.end());
  }

  void SetConfidence(const Candidate& chosen, Diagnosis* out) const {
    const LogFinding& finding = *chosen.finding;
    double value = 0.4;
    if (finding.weight >= kDecisive) {
      value = 0.95;
    } else if (finding.weight >= kStrong) {
      value = finding.traceback ? 0.9 : 0.85;
      if (chosen.from_end()) value = 0.6;
    } else if (IsCause(finding)) {
      value = finding.weight >= 2 ? 0.5 : 0.3;
    }
    if (chosen.soft) value *= 0.5;
    // Rivals whose order to this one is not known.
    std::set<std::string> rivals;
    for (const Candidate& candidate : candidates_) {
      if (candidate.soft || !IsCause(*candidate.finding) || candidate.finding->id == finding.id) continue;
      if (candidate.finding->weight >= kStrong && finding.weight < kDecisive && !KnownEarlier(chosen, candidate)) {
        rivals.insert(candidate.finding->id);
      }
    }
    value -= 0.1 * static_cast<double>(std::min<size_t>(rivals.size(), 4));
    out->confidence = std::clamp(value, 0.05, 0.99);
  }

  void AddEvidence(const Candidate& chosen, Diagnosis* out) const {
    const LogFinding& finding = *chosen.finding;
    if (finding.line > 0) out->evidence.push_back(Line(finding, finding.line, finding.text));
    if (finding.frame) {
      const Frame& frame = *finding.frame;
      out->evidence.push_back(Line(finding, finding.line,
                                   fmt::format("at {}:{}{}{}", frame.file, frame.line,
                                               frame.function.empty() ? "" : fmt::format(" in {}", frame.function),
                                               frame.source.empty() ? "" : fmt::format(": {}", frame.source))));
    }
    for (const auto& [line, text] : finding.more) out->evidence.push_back(Line(finding, line, text));
    // Who leaves or aborts by himself often says why in his last line; who is killed does not know.
    const bool speaks = chosen.from_end() && (chosen.end->signal == 0 || chosen.end->signal == SIGABRT);
    if (const SourceInfo* source = speaks ? SourceOf(out->rank) : nullptr) {
      out->evidence.push_back({.file = source->path,
                               .line = source->last_words_line,
                               .text = Printable(source->last_words, 300),
                               .rank = source->rank,
                               .node = source->node});
    }
    for (const Candidate& candidate : candidates_) {
      if (out->evidence.size() >= kMaxEvidence) break;
      const LogFinding& other = *candidate.finding;
      if (&other == &finding || other.line == 0 || other.line == finding.line) continue;
      const bool same_rank = other.rank == out->rank && out->rank >= 0;
      const bool near =
          other.source == finding.source && other.line + 2 >= finding.line && other.line <= finding.line + 2;
      const bool supports =
          other.id == finding.id || (near && other.role == Role::kTrigger) || (candidate.from_end() && same_rank) ||
          (same_rank && IsCause(other) && other.weight >= 3 && other.id != finding.id && !candidate.soft);
      if (supports) out->evidence.push_back(Line(other, other.line, other.text));
    }
  }

  void AddConsequences(const Candidate& chosen, Diagnosis* out) const {
    std::set<std::string> seen = {chosen.finding->id};
    for (const Candidate& candidate : candidates_) {
      const LogFinding& finding = *candidate.finding;
      if (out->consequences.size() >= kMaxConsequences) break;
      if (candidate.from_end() && !IsNews(candidate, *out)) continue;
      const bool later = KnownEarlier(chosen, candidate);
      const char* why = nullptr;
      if (candidate.recovered) {
        why = "the run went on afterwards";
      } else if (finding.role == Role::kConsequence) {
        why = "says only that another process or connection was gone";
      } else if (finding.role == Role::kTrigger) {
        why = "reports the end, not its reason";
      } else if (candidate.soft) {
        why = "said as a warning";
      } else if (finding.weight < kStrong && chosen.finding->weight >= kStrong) {
        why = "a wait or a death that the cause explains";
      } else if (later) {
        why = "came later";
      }
      if (why == nullptr || !seen.insert(finding.id).second) continue;
      out->consequences.push_back({.what = candidate.from_end() ? EndWords(*candidate.end) : finding.cause,
                                   .signature = finding.id,
                                   .ranks = candidate.from_end() ? NewsOf(finding.id, *out) : RanksOf(finding.id),
                                   .why = why});
    }
  }

  // The end of a rank is worth a line when nothing else explains it: not of the one to blame, nor of those that failed
  // alike or said themselves what ended them.
  bool IsNews(const Candidate& end, const Diagnosis& out) const {
    const int rank = end.finding->rank;
    const bool alike = std::find(out.alike.begin(), out.alike.end(), rank) != out.alike.end();
    return rank != out.rank && !alike && !SaysSomething(rank);
  }
  std::vector<int> NewsOf(const std::string& id, const Diagnosis& out) const {
    std::set<int> ranks;
    for (const Candidate& candidate : candidates_) {
      if (!candidate.from_end() || candidate.finding->id != id || candidate.finding->rank < 0) continue;
      if (IsNews(candidate, out)) ranks.insert(candidate.finding->rank);
    }
    return {ranks.begin(), ranks.end()};
  }

  void AddAlternatives(const Candidate& chosen, Diagnosis* out) const {
    std::vector<const Candidate*> others;
    std::set<std::string> seen = {chosen.finding->id};
    for (const Candidate& candidate : candidates_) {
      if (IsCause(*candidate.finding) && candidate.finding->weight >= 2 && seen.insert(candidate.finding->id).second) {
        others.push_back(&candidate);
      }
    }
    std::sort(others.begin(), others.end(), [](const Candidate* a, const Candidate* b) {
      if (a->soft != b->soft) return !a->soft;
      return a->finding->weight != b->finding->weight ? a->finding->weight > b->finding->weight : a < b;
    });
    double left = std::min(0.5, 1 - out->confidence);
    for (const Candidate* other : others) {
      if (out->alternatives.size() >= kMaxAlternatives) break;
      left /= 2;
      out->alternatives.push_back({.signature = other->finding->id,
                                   .cause = other->finding->cause,
                                   .remedy = other->finding->remedy,
                                   .confidence = std::max(0.01, left),
                                   .rank = other->finding->rank,
                                   .node = other->finding->node});
    }
  }

  Findings f_;
  std::vector<LogFinding> made_;         // from how ranks ended
  std::vector<const RankEnd*> made_of_;  // which ends
  std::vector<Candidate> candidates_;
};

}  // namespace

Diagnosis Judge(Findings findings) { return Court(std::move(findings)).Decide(); }

}  // namespace lockstep::diagnose
