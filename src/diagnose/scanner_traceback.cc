// The end of a traceback: which exception of its chain speaks, and what the table knows about its message.
#include <algorithm>

#include "base/text.h"
#include "diagnose/exceptions.h"
#include "diagnose/scanner.h"

namespace lockstep::diagnose {
namespace {

// Words of a scheduler or launcher that follow a traceback do not belong to its message.
bool BelongsToMessage(const Signature& row) {
  if (row.role == Role::kTrigger || row.role == Role::kAdvice || row.weight == 0) return false;
  for (const char* domain : {"slurm", "k8s", "proc", "mpi", "hw", "shell"}) {
    if (row.domain == domain) return false;
  }
  return true;
}

// Whether a match stands inside quotes of a message about a value: words of the data, not of an error.
bool OnlyQuoted(const Raised& raised, size_t begin) {
  static constexpr std::string_view kOfValues[] = {"ValueError", "KeyError",       "TypeError",     "IndexError",
                                                   "NameError",  "AssertionError", "AttributeError"};
  if (std::find(std::begin(kOfValues), std::end(kOfValues), raised.type) == std::end(kOfValues)) return false;
  const std::string_view before = std::string_view(raised.text).substr(0, begin);
  return std::count(before.begin(), before.end(), '\'') % 2 == 1 ||
         std::count(before.begin(), before.end(), '"') % 2 == 1;
}

}  // namespace

// A traceback inside one line of JSON or of a printed string, its line ends written as \n.
bool Scanner::ReadEscaped(const Line& line, Speaker& speaker) {
  const size_t begin = line.origin.text.find("Traceback (most recent call last)");
  if (begin == std::string_view::npos) return false;
  const std::string_view rest = line.origin.text.substr(begin);
  const size_t first = rest.find("\\n");
  if (first == std::string_view::npos) return false;
  speaker.traceback = std::make_unique<Traceback>(rest.substr(0, first), line.number);
  speaker.traceback_time = line.time;
  speaker.traceback_exact = line.exact;
  speaker.traceback_level = line.origin.level == Level::kError ? Level::kNone : line.origin.level;
  speaker.traceback_rank = line.origin.rank;
  speaker.traceback_node = std::string(line.origin.node);
  ++open_;
  std::string one;
  for (size_t i = first + 2; i <= rest.size(); ++i) {
    const bool escaped = i + 1 < rest.size() && rest[i] == '\\';
    if (i == rest.size() || rest[i] == '"' || (escaped && rest[i + 1] == 'n')) {
      if (!one.empty() && speaker.traceback->Feed(one, line.number, false) == Traceback::Verdict::kEnded) break;
      one.clear();
      if (i == rest.size() || rest[i] == '"') break;
      ++i;
    } else {
      if (escaped) ++i;
      one += rest[i];
    }
  }
  CloseTraceback(speaker);
  return true;
}

void Scanner::CloseTraceback(Speaker& speaker) {
  const std::unique_ptr<Traceback> traceback = std::move(speaker.traceback);
  --open_;
  Line line;
  line.number = traceback->line();
  line.time = speaker.traceback_time;
  line.exact = speaker.traceback_exact;
  line.origin.rank = speaker.traceback_rank;
  line.origin.node = speaker.traceback_node;
  line.origin.level = speaker.traceback_level;
  LogFinding finding = NewFinding(line, speaker);
  finding.traceback = true;
  finding.thread = speaker.traceback_thread;
  if (traceback->raised().empty()) {
    // A first line alone, its frames under another tag, says nothing.
    if (traceback->frames() > 0) {
      finding.id = "py-exception";
      finding.role = Role::kRoot;
      finding.weight = 4;
      finding.policy = Policy::kOnce;
      finding.text = "Traceback (most recent call last):";
      finding.cause = "a Python exception; the log does not show which";
      finding.remedy = "look at the whole output of this rank";
      findings_->Add(std::move(finding));
    }
    return;
  }
  // Of a chain, the exception that explains most.
  const std::vector<Raised>& raised = traceback->raised();
  int chosen = -1, best_score = -1;
  LogFinding best;
  for (size_t i = 0; i < raised.size(); ++i) {
    const Raised& one = raised[i];
    if (!one.complete && one.innermost.line == 0) continue;
    LogFinding candidate = finding;
    const ExceptionRule& rule = RuleFor(one.type, one.message);
    candidate.id = one.complete ? ExceptionId(one.type) : "py-exception";
    candidate.role = rule.role;
    candidate.weight = rule.weight;
    candidate.policy = rule.policy;
    candidate.cause = one.complete ? FillException(rule.cause, one) : "a Python exception; the log does not show which";
    candidate.remedy = rule.remedy;
    int row = -1;
    Match match;
    const bool silent = IsInterruption(one.type);
    for (size_t k = 0; k <= (silent ? 0 : one.after.size()); ++k) {
      Match found;
      const int here = BestRow(k == 0 ? std::string_view(one.text) : std::string_view(one.after[k - 1].second), &found);
      if (here < 0 || !BelongsToMessage(rows_[static_cast<size_t>(here)])) continue;
      if (k == 0 && OnlyQuoted(one, found.begin)) continue;
      if (row < 0 || rows_[static_cast<size_t>(here)].weight > rows_[static_cast<size_t>(row)].weight) {
        row = here;
        match = std::move(found);
      }
    }
    if (row >= 0) {
      FillFromRow(row, match, &candidate);
    }
    // Of equal weight, a message that is known says more than a class. A signal that came first explains all that
    // was raised while it was handled.
    const bool told = i == 0 && IsInterruption(one.type);
    const int score = told ? 100 : candidate.weight * 2 + (row >= 0 ? 1 : 0);
    // What was raised from another on purpose explains more than what went wrong while it was handled.
    const bool on_purpose = chosen >= 0 && raised[static_cast<size_t>(chosen)].link == Link::kDirectCause;
    const bool later = one.link == Link::kOriginal || (one.link == Link::kDuringHandling && !on_purpose);
    if (score > best_score || (score == best_score && later)) {
      best_score = score;
      chosen = static_cast<int>(i);
      best = std::move(candidate);
    }
  }
  if (chosen < 0) return;
  const Raised& main = raised[static_cast<size_t>(chosen)];
  best.exception = main.type;
  if (main.complete) {
    best.line = main.line;
    best.text = main.text;
  } else {
    best.text = "Traceback (most recent call last):";
  }
  const Frame* frame = main.user.line > 0 ? &main.user : nullptr;
  for (const Raised& one : raised) {
    if (frame == nullptr && one.user.line > 0) frame = &one.user;
  }
  if (frame == nullptr && main.innermost.line > 0) frame = &main.innermost;
  if (frame != nullptr) best.frame = *frame;
  for (const auto& after : main.after) {
    if (best.more.size() < 3) best.more.push_back(after);
  }
  findings_->Add(std::move(best));
}

}  // namespace lockstep::diagnose
