#include "diagnose/scanner.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/digits.h"
#include "base/text.h"
#include "diagnose/exceptions.h"
#include "diagnose/line_text.h"
#include "diagnose/progress_words.h"
#include "diagnose/xid.h"

namespace lockstep::diagnose {
namespace {

// The scanner's own patterns, behind the table's rows.
enum Marker : uint32_t { kTracebackMark, kProgressMark, kFinishedMark, kErrorMark, kEndMark, kMarkers };

const char* const kMarkerPatterns[kMarkers] = {
    R"(Traceback \(most recent call last\)|Fatal Python error: )",
    R"(it/s|s/it|(?i:\b(step|iter|iteration)s?['\" :=#\[]{1,4}\d)|['"]epoch['"]: |(?i:\b(epoch|train)s?:? ?\[?\d)|(Epoch|Iter)\(train\) {1,2}\[|\] (train_)?loss)",
    R"((?i)(training (is |has )?(complete|completed|finished|done|succeeded)\b|finished training|training successfully|train_runtime)"
    R"(|trainer\.fit. stopped|exits successfully|all ranks (succeeded|finished)|\bmax_(steps|epochs)=\d+. reached)"
    R"(|(job|run|training job)[ _](completed|finished|succeeded)( successfully)?\b|completed successfully|^status:\s+succeeded|\ball done\b|finished successfully|exiting program after)|^(done|finished|completed|success)[.! ]*$)",
    R"(\b(ERROR|FATAL|CRITICAL|[Ee]rror|[Ee]xception|[Ff]atal|panic|PANIC)\b|[A-Za-z_](Error|Exception)\b)",
    nullptr,  // kEndLines
};

constexpr size_t kMaxLine = 64 << 10;  // of a longer line, the part around what was found
constexpr size_t kMaxSpeakers = 4096;

std::string Fill(const std::string& pattern, const Match& match) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '{' && i + 2 < pattern.size() && pattern[i + 1] >= '0' && pattern[i + 1] <= '9' &&
        pattern[i + 2] == '}') {
      const size_t group = static_cast<size_t>(pattern[i + 1] - '0');
      if (group < match.groups.size()) out += Printable(match.groups[group], 160);
      i += 2;
    } else {
      out += pattern[i];
    }
  }
  return out;
}

void RemoveColours(std::string_view text, std::string* out) {
  out->clear();
  while (!text.empty()) {
    const size_t escape = std::min(text.find('\x1b'), text.size());
    out->append(text.substr(0, escape));
    text.remove_prefix(escape);
    if (text.empty()) break;
    size_t end = 1;
    if (text.size() > 1 && text[1] == '[') {
      for (end = 2; end < text.size() && (text[end] < '@' || text[end] > '~') && text[end] != '\n'; ++end) {
      }
      if (end < text.size() && text[end] != '\n') ++end;
    }
    text.remove_prefix(std::min(end, text.size()));
  }
}

// Rows for whole families of messages.
bool IsGeneral(const Signature& row) { return row.domain == "general" || row.domain == "shell"; }

// "SomeError: words" at the start of a line.
bool LooksLikeException(std::string_view text, std::string* type, std::string* message) {
  size_t at = 0;
  while (at < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_' || text[at] == '.'))
    ++at;
  if (at < 5 || at + 1 >= text.size() || text[at] != ':' || text[at + 1] != ' ') return false;
  const std::string_view name = text.substr(0, at);
  if (!name.ends_with("Error") && !name.ends_with("Exception")) return false;
  if (name == "Error") return false;
  *type = name;
  *message = std::string(Trim(text.substr(at + 1)).substr(0, kMaxText));
  return true;
}

}  // namespace

Result<std::unique_ptr<Matcher>> CompilePatterns(const std::vector<Signature>& rows, Matcher::Engine engine) {
  std::vector<NamedPattern> patterns;
  for (const Signature& row : rows) patterns.push_back({row.id, row.regex});
  for (uint32_t i = 0; i < kMarkers; ++i) {
    patterns.push_back({fmt::format("marker {}", i), i == kEndMark ? kEndLines : kMarkerPatterns[i]});
  }
  return Matcher::Create(std::move(patterns), engine);
}

Scanner::Scanner(Matcher& matcher, const std::vector<Signature>& rows, Findings* findings)
    : matcher_(matcher), rows_(rows), findings_(findings) {}

void Scanner::Begin(uint32_t source, int year, uint64_t first_line) {
  source_ = source;
  year_ = year;
  styled_ = false;
  style_ = LineStyle();
  lines_ = first_line == 0 ? 0 : first_line - 1;
  open_ = 0;
  speakers_.clear();
  ends_ = RankEndReader();
}

void Scanner::Feed(std::string_view chunk) {
  if (chunk.empty()) return;
  if (!styled_) {
    style_ = LearnStyle(chunk.substr(0, 256 << 10));
    styled_ = true;
  }
  // Colours stick to words; without them patterns see words as they are. Lines stay as many as they were.
  if (std::memchr(chunk.data(), '\x1b', chunk.size()) != nullptr) {
    RemoveColours(chunk, &uncoloured_);
    chunk = uncoloured_;
  }
  matcher_.Scan(chunk, &candidates_);
  size_t counted = 0;            // newlines up to here are in `number`
  uint64_t number = lines_ + 1;  // of the line at `counted`
  size_t next = 0;               // candidate
  size_t at = 0;                 // start of the first line not yet seen
  std::vector<uint32_t> patterns;
  const std::vector<Matcher::Candidate> candidates = std::move(candidates_);
  while (at < chunk.size()) {
    size_t begin = at;
    if (open_ == 0) {
      if (next >= candidates.size()) break;
      const size_t hit = candidates[next].at;
      const void* before = hit > at ? memrchr(chunk.data() + at, '\n', hit - at) : nullptr;
      begin = before == nullptr ? at : static_cast<size_t>(static_cast<const char*>(before) - chunk.data()) + 1;
    }
    const void* newline = std::memchr(chunk.data() + begin, '\n', chunk.size() - begin);
    const size_t end =
        newline == nullptr ? chunk.size() : static_cast<size_t>(static_cast<const char*>(newline) - chunk.data());
    number += static_cast<uint64_t>(std::count(chunk.begin() + static_cast<ptrdiff_t>(counted),
                                               chunk.begin() + static_cast<ptrdiff_t>(begin), '\n'));
    counted = begin;
    patterns.clear();
    size_t hit = begin;
    for (; next < candidates.size() && candidates[next].at <= end; ++next) {
      if (candidates[next].at < begin) continue;
      if (patterns.empty() || candidates[next].pattern < rows_.size()) hit = candidates[next].at;
      patterns.push_back(candidates[next].pattern);
    }
    findings_->sources[source_].lines = number;  // for Visit
    Visit(chunk, begin, end, hit, patterns);
    at = end + 1;
  }
  number += static_cast<uint64_t>(std::count(chunk.begin() + static_cast<ptrdiff_t>(counted), chunk.end(), '\n'));
  lines_ = number - 1;
  findings_->sources[source_].lines = lines_;
  KeepLastWords(chunk);
  candidates_ = candidates;
  candidates_.clear();
}

// What a rank that ends silently said last is the only trace it leaves.
void Scanner::KeepLastWords(std::string_view chunk) {
  const size_t last = chunk.find_last_not_of(" \t\r\n");
  if (last == std::string_view::npos) return;
  const size_t before = chunk.rfind('\n', last);
  const size_t begin = before == std::string_view::npos ? 0 : before + 1;
  SourceInfo& source = findings_->sources[source_];
  std::string buffer;
  source.last_words =
      Trim(CleanLine(chunk.substr(begin, std::min<size_t>(last + 1 - begin, 2000)), last - begin, &buffer));
  const auto after = std::count(chunk.begin() + static_cast<ptrdiff_t>(last), chunk.end(), '\n');
  source.last_words_line = lines_ - static_cast<uint64_t>(after) + 1;
}

void Scanner::End() {
  for (auto& [key, speaker] : speakers_) {
    if (speaker.traceback) CloseTraceback(speaker);
  }
}

Scanner::Speaker& Scanner::SpeakerOf(const Origin& origin) {
  std::string key;
  if (origin.rank >= 0) {
    key = 'r' + std::to_string(origin.rank);
  } else if (!origin.node.empty()) {
    key = 'n' + std::string(origin.node);
  }
  auto found = speakers_.find(key);
  if (found != speakers_.end()) return found->second;
  if (speakers_.size() >= kMaxSpeakers) return speakers_.begin()->second;
  Speaker& speaker = speakers_[key];
  speaker.stream = static_cast<uint32_t>(findings_->streams.size());
  Stream stream;
  const SourceInfo& source = findings_->sources[source_];
  stream.source = source_;
  stream.rank = origin.rank >= 0 ? origin.rank : source.rank;
  stream.node = origin.node.empty() ? source.node : std::string(origin.node);
  findings_->streams.push_back(std::move(stream));
  return speaker;
}

double Scanner::TimeBefore(std::string_view chunk, size_t begin) const {
  std::string buffer;
  for (int i = 0; i < 30 && begin > 0; ++i) {
    const size_t end = begin - 1;
    const void* before = end > 0 ? memrchr(chunk.data(), '\n', end) : nullptr;
    begin = before == nullptr ? 0 : static_cast<size_t>(static_cast<const char*>(before) - chunk.data()) + 1;
    const std::string_view line = chunk.substr(begin, std::min<size_t>(end - begin, 400));
    const Origin origin = ReadOrigin(CleanLine(line, 0, &buffer), style_, year_);
    if (origin.time != 0) return origin.time;
  }
  return 0;
}

void Scanner::Visit(std::string_view chunk, size_t begin, size_t end, size_t at,
                    const std::vector<uint32_t>& patterns) {
  Line line;
  line.number = findings_->sources[source_].lines;
  size_t from = begin, to = end;
  if (end - begin > kMaxLine) {
    // Inside a traceback the front of a line matters: the class of the exception.
    from = open_ == 0 && at - begin > kMaxLine / 4 ? at - kMaxLine / 4 : begin;
    to = std::min(end, from + kMaxLine);
  }
  line.raw = chunk.substr(from, to - from);
  const std::string_view clean = CleanLine(line.raw, at - from, &clean_);
  line.origin = ReadOrigin(clean, style_, year_);
  line.time = line.origin.time;
  line.exact = line.time != 0;
  Speaker& speaker = SpeakerOf(line.origin);
  findings_->streams[speaker.stream].last_line = line.number;

  bool progress = false, interesting = false, begins = false, open_here = speaker.traceback != nullptr;
  for (uint32_t pattern : patterns) {
    if (pattern == rows_.size() + kProgressMark) {
      progress = true;
    } else {
      interesting = true;
      begins = begins || pattern == rows_.size() + kTracebackMark;
    }
  }
  if (!line.exact && interesting) line.time = TimeBefore(chunk, begin);

  if (open_here) {
    const bool was_stamped = speaker.traceback_exact;
    const Traceback::Verdict verdict =
        speaker.traceback->Feed(line.origin.text, line.number, line.exact && !was_stamped);
    if (verdict == Traceback::Verdict::kMine && !speaker.traceback->has_exception()) return;
    if (verdict == Traceback::Verdict::kMine && begins) return;
    // Its exception speaks with the whole chain, not for itself.
    if (verdict == Traceback::Verdict::kMine && speaker.traceback->raised().back().line == line.number) return;
    if (verdict == Traceback::Verdict::kEnded) {
      CloseTraceback(speaker);
      open_here = false;
    }
  }
  if (begins && !open_here && ReadEscaped(line, speaker)) return;
  if (begins && !open_here && Traceback::Begins(line.origin.text)) {
    speaker.traceback = std::make_unique<Traceback>(line.origin.text, line.number);
    speaker.traceback_time = line.time;
    speaker.traceback_exact = line.exact;
    speaker.traceback_level = line.origin.level;
    speaker.traceback_rank = line.origin.rank >= 0 ? line.origin.rank : ends_.TakeSpawned();
    speaker.traceback_node = std::string(line.origin.node);
    speaker.traceback_thread = false;
    // An error line just before it only introduces it.
    if (!findings_->all.empty() && findings_->all.back().id == "error-line" &&
        findings_->all.back().source == source_ && findings_->all.back().line + 1 == line.number) {
      findings_->all.back().weight = 1;
    }
    // "WARNING ... retrying" or "Exception ignored in" just before it.
    if (begin > 0) {
      const void* before = begin > 1 ? memrchr(chunk.data(), '\n', begin - 1) : nullptr;
      const size_t start =
          before == nullptr ? 0 : static_cast<size_t>(static_cast<const char*>(before) - chunk.data()) + 1;
      std::string buffer;
      const std::string_view previous =
          CleanLine(chunk.substr(start, std::min<size_t>(begin - 1 - start, 2000)), 0, &buffer);
      const Origin origin = ReadOrigin(previous, style_, year_);
      if (IntroducesHandled(previous) && origin.rank == line.origin.rank) speaker.traceback_level = Level::kWarning;
      if (Has(previous, "Exception ignored in")) speaker.traceback_level = Level::kDebug;
      speaker.traceback_thread = previous.starts_with("Exception in thread ");
    }
    ++open_;
    return;
  }
  if (progress) ReadProgress(chunk.substr(begin, end - begin), line.number, speaker, line.time);
  if (!interesting) return;
  place_.reset();
  if (line.origin.text.starts_with("SyntaxError: ") || line.origin.text.starts_with("IndentationError: ")) {
    place_ = PlaceBefore(chunk.substr(0, begin));
  }
  Match_(line, speaker, patterns);
}

// An epoch counts when its numbers rise.
bool Scanner::ReadEpochLine(std::string_view text, Speaker* speaker) {
  const std::optional<uint64_t> now = EpochPosition(text);
  if (!now) return false;
  const bool rises = speaker->epoch_seen && *now > speaker->epoch_position;
  speaker->epoch_seen = true;
  speaker->epoch_position = *now;
  return rises;
}

void Scanner::ReadProgress(std::string_view raw, uint64_t number, Speaker& speaker, double time) {
  std::string buffer;
  if (raw.size() > 4096) raw.remove_prefix(raw.size() - 4096);
  const std::string_view text = CleanLine(raw, raw.size(), &buffer);
  if (!speaker.progress.Feed(text, {}) && !ReadEpochLine(text, &speaker)) return;
  Stream& stream = findings_->streams[speaker.stream];
  ++stream.marks;
  ++findings_->sources[source_].marks;
  findings_->sources[source_].last_mark_line = number;
  if (speaker.progress.state().step) {
    const record::ProgressState& state = speaker.progress.state();
    stream.step = state.StepOfRun();
    // Of an unknown number of epochs each may be the last.
    const uint64_t before = *stream.step - *state.step;
    stream.total = state.TotalOfRun();
    if (!stream.total && state.total) stream.total = before + *state.total;
  }
  stream.last_mark_line = number;
  stream.last_mark_time = time;
  if (Has(text, "train_runtime")) return;  // a mean over the run
  if (const std::optional<bool> finite = LossIsFinite(text)) stream.loss_finite = *finite;
}

LogFinding Scanner::NewFinding(const Line& line, const Speaker& speaker) const {
  const Stream& stream = findings_->streams[speaker.stream];
  LogFinding finding;
  finding.source = source_;
  finding.line = line.number;
  finding.text = std::string(Trim(line.origin.text).substr(0, kMaxText));
  finding.rank = line.origin.rank >= 0 ? line.origin.rank : stream.rank;
  finding.local_rank = line.origin.local_rank;
  finding.node = line.origin.node.empty() ? stream.node : std::string(line.origin.node);
  finding.time = line.time == 0 ? 0 : line.time + findings_->sources[source_].clock_offset;
  finding.exact = line.exact;
  finding.level = line.origin.level;
  finding.marks = stream.marks;
  finding.source_marks = findings_->sources[source_].marks;
  finding.stream = speaker.stream;
  return finding;
}

void Scanner::FillFromRow(int row, const Match& match, LogFinding* finding) const {
  const Signature& signature = rows_[static_cast<size_t>(row)];
  finding->id = signature.id;
  finding->role = signature.role;
  finding->policy = signature.policy;
  finding->weight = signature.weight;
  finding->cause = Fill(signature.cause, match);
  finding->remedy = Fill(signature.remedy, match);
}

// General rows lose to all others; then what a row says itself; then earlier, longer, later row.
bool Scanner::Better(int row, const Match& match, int than, const Match& other) const {
  if (than < 0) return true;
  const Signature& a = rows_[static_cast<size_t>(row)];
  const Signature& b = rows_[static_cast<size_t>(than)];
  if (IsGeneral(a) != IsGeneral(b)) return IsGeneral(b);
  if ((a.weight == 0) != (b.weight == 0)) return b.weight == 0;
  if (std::find(a.over.begin(), a.over.end(), b.id) != a.over.end()) return true;
  if (std::find(b.over.begin(), b.over.end(), a.id) != b.over.end()) return false;
  if (match.begin != other.begin) return match.begin < other.begin;
  if (match.end != other.end) return match.end > other.end;
  return row > than;
}

int Scanner::BestRow(std::string_view text, Match* match) {
  std::vector<uint32_t> patterns;
  matcher_.ScanLine(text.substr(0, kMaxLine), &patterns);
  int best = -1;
  for (uint32_t pattern : patterns) {
    if (pattern >= rows_.size()) continue;
    Match found;
    if (!matcher_.Find(pattern, text, &found)) continue;
    if (Better(static_cast<int>(pattern), found, best, *match)) {
      best = static_cast<int>(pattern);
      *match = std::move(found);
    }
  }
  return best;
}

void Scanner::Match_(const Line& line, Speaker& speaker, const std::vector<uint32_t>& patterns) {
  int best = -1;
  Match match;
  bool error = false, ended = false;
  RankEnd told;  // whose end the line tells
  for (uint32_t pattern : patterns) {
    if (pattern >= rows_.size()) {
      if (pattern == rows_.size() + kErrorMark) error = true;
      if (pattern == rows_.size() + kFinishedMark && line.origin.level != Level::kError &&
          matcher_.Find(pattern, line.origin.text, nullptr)) {
        const bool bare = Trim(line.origin.text).find(' ') == std::string_view::npos;
        Stream& stream = findings_->streams[speaker.stream];
        (bare ? stream.done_line : stream.finished_line) = line.number;
        // kubectl describe: the pod as a whole
        if (!findings_->outcome && line.origin.text.starts_with("Status:")) findings_->outcome = "succeeded";
      }
      if (pattern == rows_.size() + kEndMark) {
        for (RankEnd& end : ends_.Feed(line.origin.text, line.time)) {
          if (!ended) told = end;
          ended = true;
          end.source = source_;
          end.line = line.number;
          end.source_marks = findings_->sources[source_].marks;
          if (end.node.empty()) end.node = findings_->streams[speaker.stream].node;
          findings_->AddEnd(std::move(end));
        }
      }
      continue;
    }
    Match found;
    if (!matcher_.Find(pattern, line.origin.text, &found)) {
      // A tag that was taken off may have been part of the message.
      std::string buffer;
      const std::string_view whole = CleanLine(line.raw, static_cast<size_t>(0) + line.raw.size(), &buffer);
      if (!matcher_.Find(pattern, whole, &found)) continue;
    }
    if (Better(static_cast<int>(pattern), found, best, match)) {
      best = static_cast<int>(pattern);
      match = std::move(found);
    }
  }
  if (best >= 0) {
    LogFinding finding = NewFinding(line, speaker);
    FillFromRow(best, match, &finding);
    if (finding.id.starts_with("xid")) ApplyXidTable(line.origin.text, &finding);
    if (finding.id == "jax-task-gone" && match.groups.size() > 1) {
      // Said by those who miss it.
      finding.rank = LeadingDigits(match.groups[1]).value_or(finding.rank);
    }
    if (ended && finding.rank < 0) {
      finding.rank = told.rank;
      if (!told.node.empty()) finding.node = told.node;
    }
    finding.frame = place_;
    // Outside an exception: told by a loader that leaves such parameters out.
    const bool in_message = speaker.traceback != nullptr && speaker.traceback->has_exception() &&
                            !IsInterruption(speaker.traceback->raised().back().type);
    if (finding.id == "ckpt-mismatch" && !in_message && line.origin.text.starts_with("size mismatch")) {
      finding.level = Level::kWarning;
    }
    if (finding.weight > 0) findings_->Add(std::move(finding));
    return;
  }
  // Inside a message of an exception the traceback speaks.
  if (error && !ended && speaker.traceback == nullptr) AddErrorLine(line, speaker);
}

// A line no row knows, which its program itself marked as an error.
void Scanner::AddErrorLine(const Line& line, Speaker& speaker) {
  const std::string_view text = Trim(line.origin.text);
  LogFinding finding = NewFinding(line, speaker);
  Raised raised;
  if (LooksLikeException(text, &raised.type, &raised.message)) {
    const ExceptionRule& rule = RuleFor(raised.type, raised.message);
    finding.id = ExceptionId(raised.type);
    finding.role = rule.role;
    finding.weight = std::min(rule.weight, 4);
    finding.policy = rule.policy;
    finding.cause = FillException(rule.cause, raised);
    finding.remedy = rule.remedy;
    finding.exception = raised.type;
    findings_->Add(std::move(finding));
    return;
  }
  static constexpr std::string_view kFronts[] = {"error: ",       "Error: ", "ERROR: ", "fatal: ",     "FATAL: ",
                                                 "fatal error: ", "panic: ", "Fatal: ", "FATAL ERROR", "ERROR:"};
  bool marked = line.origin.level == Level::kError;
  for (std::string_view front : kFronts) marked = marked || text.starts_with(front);
  marked = marked || Has(text.substr(0, 160), ": error: ") || Has(text.substr(0, 160), ": fatal error: ");
  if (!marked || line.origin.level == Level::kWarning || line.origin.level == Level::kInfo) return;
  finding.id = "error-line";
  finding.role = Role::kRoot;
  finding.weight = 3;
  finding.policy = finding.marks > 0 ? Policy::kOnce : Policy::kFix;
  finding.cause = fmt::format("the program reports an error: {}", Printable(text, 300));
  finding.remedy = "read the line and those around it; no signature knows it";
  findings_->Add(std::move(finding));
}

}  // namespace lockstep::diagnose
