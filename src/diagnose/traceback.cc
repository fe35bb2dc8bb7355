#include "diagnose/traceback.h"

#include "base/digits.h"
#include "base/text.h"
#include "diagnose/line_text.h"

namespace lockstep::diagnose {
namespace {

constexpr std::string_view kMarker = "Traceback (most recent call last)";
constexpr std::string_view kFault = "Fatal Python error: ";
constexpr int kMaxForeign = 200, kMaxAfter = 12, kMaxLines = 4000;
constexpr size_t kMaxLinks = 16, kKeepAfter = 8;

size_t Indent(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  return at;
}

int Integer(std::string_view text) { return LeadingDigits(text).value_or(0); }

// "module.Class" or "module.Class: message"; not a sentence, a path or "key: value" in small letters.
bool ReadType(std::string_view text, std::string* type, std::string* message) {
  size_t at = 0;
  bool capital = false;
  while (at < text.size() && (IsWord(text[at]) || text[at] == '.')) {
    if (text[at] >= 'A' && text[at] <= 'Z') capital = true;
    ++at;
  }
  if (at < 3 || at > 160 || (text[0] >= '0' && text[0] <= '9')) return false;
  const std::string_view name = text.substr(0, at);
  // ray.exceptions.RayTaskError(ValueError): the class in brackets is the one that matters
  if (at < text.size() && text[at] == '(') {
    const size_t close = text.find("):", at);
    if (close == std::string_view::npos || close > at + 80) return false;
    at = close + 1;
  }
  const std::string_view rest = text.substr(at);
  if (!rest.empty() && !rest.starts_with(':')) return false;
  if (!capital && !name.ends_with("error") && name.find('.') == std::string_view::npos) return false;
  if (!rest.empty() && rest.size() > 1 && rest[1] != ' ') return false;
  *type = name;
  *message = std::string(Trim(rest.empty() ? rest : rest.substr(1)).substr(0, kMaxText));
  return true;
}

// "SomeError: ..." or "SomeError" and nothing else.
bool LooksFinal(std::string_view body) {
  size_t at = 0;
  while (at < body.size() && (IsWord(body[at]) || body[at] == '.')) ++at;
  const std::string_view name = body.substr(0, at);
  return (name.ends_with("Error") || name.ends_with("Exception") || name.ends_with("Interrupt")) &&
         (at == body.size() || body.substr(at).starts_with(": "));
}

}  // namespace

bool IsLibraryFile(std::string_view file) {
  static constexpr std::string_view kParts[] = {
      "/site-packages/", "/dist-packages/",     "/lib/python3",  "/lib64/python3", "<frozen ",
      "<string>",        "<__array_function__", "/bin/torchrun", "/bin/deepspeed", "/bin/accelerate",
      "site-packages/",  "\\site-packages\\",   "\\lib\\",       "/lib/python2"};
  for (std::string_view part : kParts) {
    if (Has(file, part)) return true;
  }
  return file.starts_with("/opt/pytorch/") || file.starts_with("<");
}

bool Traceback::Begins(std::string_view text) { return Has(text, kMarker) || Has(text, kFault); }

Traceback::Traceback(std::string_view first_line, uint64_t line) : line_(line) {
  if (const size_t at = first_line.find(kFault); at != std::string_view::npos) {
    fault_ = true;
    Raised raised;
    raised.type = "Fatal Python error";
    raised.message = std::string(first_line.substr(at + kFault.size()).substr(0, kMaxText));
    raised.line = line;
    raised.text = std::string(first_line.substr(0, kMaxText));
    raised.complete = true;
    raised_.push_back(std::move(raised));
    other_thread_ = true;  // until the current thread is announced
    return;
  }
  boxed_ = !Has(first_line, "last):") && Has(first_line, "\u2500");
}

void Traceback::AddFrame(Frame frame) {
  if (raised_.empty() || raised_.back().complete) {
    if (fault_) {
      // Most recent call first: the first frame is the innermost, the first user frame the one to name.
      if (other_thread_) return;
      Raised& raised = raised_.back();
      if (raised.innermost.line == 0) raised.innermost = frame;
      if (raised.user.line == 0 && !IsLibraryFile(frame.file)) raised.user = std::move(frame);
      return;
    }
    Raised raised;
    raised.link = next_;
    raised_.push_back(std::move(raised));
  }
  Raised& raised = raised_.back();
  if (!IsLibraryFile(frame.file)) raised.user = frame;
  raised.innermost = std::move(frame);
}

// `  File "/x/train.py", line 12, in main`, faulthandler's `  File "/x.py", line 12 in main`, rich's
// `│ /x/train.py:12 in main │`.
bool Traceback::ReadFrame(std::string_view text) {
  std::string_view body = Trim(text);
  if (boxed_) {
    if (!body.starts_with("\u2502")) return false;
    body.remove_prefix(3);
    if (body.ends_with("\u2502")) body.remove_suffix(3);
    body = Trim(body);
    if (body.starts_with("\u2771")) {  // the line being executed
      std::string_view code = Trim(body.substr(3));
      const size_t space = code.find(' ');
      if (space != std::string_view::npos && !raised_.empty() && !raised_.back().complete) {
        const std::string source(Trim(code.substr(space)).substr(0, 200));
        Raised& raised = raised_.back();
        raised.innermost.source = source;
        if (raised.user.line == raised.innermost.line && raised.user.file == raised.innermost.file)
          raised.user.source = source;
      }
      return true;
    }
    const size_t in = body.find(" in ");
    const size_t colon = in == std::string_view::npos ? in : body.rfind(':', in);
    if (colon == std::string_view::npos) return true;
    const int number = Integer(body.substr(colon + 1));
    if (number <= 0) return true;
    AddFrame(
        {.file = std::string(body.substr(0, colon)), .function = std::string(body.substr(in + 4)), .line = number});
    return true;
  }
  if (body.starts_with("> File ")) body.remove_prefix(2);
  if (!body.starts_with("File \"")) return false;
  body.remove_prefix(6);
  const size_t quote = body.find("\", line ");
  if (quote == std::string_view::npos) return false;
  Frame frame;
  frame.file = std::string(body.substr(0, quote).substr(0, 300));
  body.remove_prefix(quote + 8);
  frame.line = Integer(body);
  const size_t in = body.find("in ");
  if (in != std::string_view::npos) frame.function = std::string(body.substr(in + 3).substr(0, 100));
  if (!based_) {
    const size_t indent = Indent(text);
    base_ = indent >= 2 ? indent - 2 : 0;
    based_ = true;
  }
  AddFrame(std::move(frame));
  ++frames_;
  expect_source_ = true;
  return true;
}

bool Traceback::ReadException(std::string_view text, uint64_t line) {
  std::string type, message;
  if (!ReadType(Trim(text), &type, &message)) return false;
  if (raised_.empty() || raised_.back().complete) {
    Raised raised;
    raised.link = next_;
    raised_.push_back(std::move(raised));
  }
  Raised& raised = raised_.back();
  group_ = group_ || type.ends_with("ExceptionGroup");
  raised.type = std::move(type);
  raised.message = std::move(message);
  raised.line = line;
  raised.text = std::string(Trim(text).substr(0, kMaxText));
  raised.complete = true;
  state_ = State::kAfter;
  after_ = 0;
  --open_;
  return true;
}

Traceback::Verdict Traceback::Feed(std::string_view text, uint64_t line, bool log_record) {
  if (++lines_ > kMaxLines) return Verdict::kEnded;
  std::string_view body = Trim(text);
  // The margins of an exception group.
  bool margin = false;
  while (!boxed_ && (body.starts_with("| ") || body.starts_with("+ ") || body == "|")) {
    body = Trim(body.substr(1));
    margin = true;
  }
  if (margin && !fault_) text = body;

  if (fault_) {
    if (body.starts_with("Current thread ")) {
      other_thread_ = raised_.back().user.line != 0;
      return Verdict::kMine;
    }
    if (body.starts_with("Thread 0x")) {
      other_thread_ = true;
      return Verdict::kMine;
    }
    if (ReadFrame(text)) return Verdict::kMine;
    if (body.empty() || body.starts_with("Python runtime state") || body.starts_with("<no Python frame>") ||
        body.starts_with("Extension modules:") || body.starts_with("...")) {
      return Verdict::kMine;
    }
    return ++foreign_ > 6 ? Verdict::kEnded : Verdict::kForeign;
  }

  if (Has(body, "During handling of the above exception, another exception occurred")) {
    next_ = Link::kDuringHandling;
    state_ = State::kBetween;
    return Verdict::kMine;
  }
  if (Has(body, "The above exception was the direct cause of the following exception")) {
    next_ = Link::kDirectCause;
    state_ = State::kBetween;
    return Verdict::kMine;
  }
  if (Has(body, kMarker)) {
    if (state_ == State::kFrames) {
      // A second one before the first is done: two ranks on one stream, or rich after plain.
      ++open_;
      return Verdict::kMine;
    }
    const bool original =
        Has(body, "Original Traceback") || margin || Has(body, "Remote Traceback") || Has(body, "(RANK ");
    if (state_ == State::kAfter && open_ <= 0 && !original) return Verdict::kEnded;
    if (raised_.size() >= kMaxLinks) return Verdict::kEnded;
    if (original) next_ = Link::kOriginal;
    state_ = State::kFrames;
    based_ = false;
    open_ = std::max(open_, 0) + 1;
    boxed_ = !Has(body, "last):") && Has(body, "\u2500");
    return Verdict::kMine;
  }
  switch (state_) {
    case State::kBetween:
      return body.empty() || body == "\"\"\"" ? Verdict::kMine
                                              : (++foreign_ > kMaxForeign ? Verdict::kEnded : Verdict::kForeign);
    case State::kFrames: {
      if (body.empty()) return Verdict::kMine;
      if (ReadFrame(text)) return Verdict::kMine;
      if (boxed_) {
        if (body.starts_with("\u256d") || body.starts_with("\u2570")) return Verdict::kMine;
        if (ReadException(text, line)) return Verdict::kMine;
        return ++foreign_ > kMaxForeign ? Verdict::kEnded : Verdict::kForeign;
      }
      if (log_record) return ++foreign_ > kMaxForeign ? Verdict::kEnded : Verdict::kForeign;
      const size_t indent = Indent(text);
      // torchrun's table indents a whole traceback, its exception as deep as the frames.
      if (frames_ > 0 && !expect_source_ && indent == base_ + 2 && LooksFinal(body) && ReadException(text, line)) {
        return Verdict::kMine;
      }
      if (indent > base_) {
        if (expect_source_ && !raised_.empty()) {
          const std::string source(body.substr(0, 200));
          Raised& raised = raised_.back();
          raised.innermost.source = source;
          if (raised.user.file == raised.innermost.file && raised.user.line == raised.innermost.line) {
            raised.user.source = source;
          }
          expect_source_ = false;
        }
        return Verdict::kMine;
      }
      if (frames_ > 0 || margin) {
        if (ReadException(text, line)) return Verdict::kMine;
      } else if (ReadException(text, line)) {
        return Verdict::kMine;  // "Traceback ...:" directly followed by the exception
      }
      return ++foreign_ > kMaxForeign ? Verdict::kEnded : Verdict::kForeign;
    }
    case State::kAfter: {
      if (margin && body.starts_with("-+-")) return Verdict::kMine;
      // Members of a group that have no frames of their own.
      if (margin && group_ && raised_.size() < kMaxLinks && LooksFinal(body)) {
        next_ = Link::kDirectCause;
        if (ReadException(body, line)) return Verdict::kMine;
      }
      if (++after_ > kMaxAfter) return Verdict::kEnded;
      if (body.empty()) return Verdict::kMine;
      if (open_ > 0) {
        // The other of two mixed tracebacks is still to come.
        if (ReadFrame(text)) return Verdict::kMine;
        if (Indent(text) <= base_ && ReadException(text, line)) return Verdict::kMine;
      }
      // Ray and others print a remote traceback without its first line, right below the exception.
      if (body.starts_with("File \"") && raised_.back().after.size() <= 1 && raised_.size() < kMaxLinks) {
        next_ = Link::kOriginal;
        state_ = State::kFrames;
        based_ = false;
        open_ = std::max(open_, 0) + 1;
        if (ReadFrame(text)) return Verdict::kMine;
      }
      if (log_record) return open_ > 0 ? Verdict::kForeign : Verdict::kEnded;
      if (body == "\"\"\"") return Verdict::kMine;
      Raised& raised = raised_.back();
      if (raised.after.size() < kKeepAfter) raised.after.emplace_back(line, std::string(body.substr(0, kMaxText)));
      return Verdict::kMine;
    }
  }
  return Verdict::kEnded;
}

std::optional<Frame> PlaceBefore(std::string_view text) {
  for (int i = 0; i < 5 && !text.empty(); ++i) {
    if (text.back() == '\n') text.remove_suffix(1);
    const size_t before = text.rfind('\n');
    const std::string_view line = Trim(text.substr(before == std::string_view::npos ? 0 : before + 1));
    const size_t begin = line.find("File \""), quote = line.find("\", line ");
    if (begin != std::string_view::npos && quote != std::string_view::npos && quote > begin) {
      Frame frame;
      frame.file = std::string(line.substr(begin + 6, quote - begin - 6).substr(0, 300));
      frame.line = Integer(line.substr(quote + 8));
      return frame;
    }
    if (before == std::string_view::npos) break;
    text = text.substr(0, before + 1);
  }
  return std::nullopt;
}

}  // namespace lockstep::diagnose
