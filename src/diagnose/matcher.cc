#include "diagnose/matcher.h"

#include <fmt/format.h>
#include <hs/hs.h>
#include <re2/re2.h>
#include <re2/set.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace lockstep::diagnose {
namespace {

// Takes ".*", ".+" and "(.+)" off the end of a pattern: whatever follows is the rest of the line.
std::string_view WithoutTail(std::string_view regex) {
  static constexpr std::string_view kTails[] = {"(.+)$", "(.*)$", ".*$", ".+$", "(.+)", "(.*)", ".*", ".+"};
  for (std::string_view tail : kTails) {
    if (!regex.ends_with(tail)) continue;
    const std::string_view rest = regex.substr(0, regex.size() - tail.size());
    if (!rest.empty() && rest.back() != '|' && rest.back() != '(' && rest.back() != '\\') return rest;
  }
  return regex;
}

// The alternatives of a pattern that is one group as a whole, "(a|b(c|d)|e)"; empty for any other.
std::vector<std::string_view> Alternatives(std::string_view regex) {
  std::vector<std::string_view> parts;
  if (regex.size() < 2 || regex.front() != '(' || regex.back() != ')' || regex.starts_with("(?")) return parts;
  int depth = 0;
  size_t from = 1;
  for (size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '\\') {
      ++i;
    } else if (c == '[') {
      // A class ends at the first "]" that is neither escaped nor its first member.
      for (i += (i + 1 < regex.size() && regex[i + 1] == '^') ? 3 : 2; i < regex.size() && regex[i] != ']'; ++i) {
        if (regex[i] == '\\') ++i;
      }
    } else if (c == '(') {
      ++depth;
    } else if (c == ')') {
      if (--depth == 0 && i + 1 != regex.size()) return {};
    } else if (c == '|' && depth == 1) {
      parts.push_back(regex.substr(from, i - from));
      from = i + 1;
    }
  }
  if (depth != 0) return {};
  parts.push_back(regex.substr(from, regex.size() - 1 - from));
  return parts;
}

// A pattern as the first pass needs it: it may match more, never less. Anchors at the front go, because the line may
// have a launcher's tag before it; a rest of the line goes, because it would be reported once per byte.
std::string FirstPass(std::string_view regex) {
  if (regex.starts_with('^')) regex.remove_prefix(1);
  regex = WithoutTail(regex);
  const std::vector<std::string_view> parts = Alternatives(regex);
  if (parts.empty()) return std::string(regex);
  std::string out = "(";
  for (std::string_view part : parts) {
    if (part.starts_with('^')) part.remove_prefix(1);
    if (part.starts_with(".*") && part.size() > 3) part.remove_prefix(2);
    if (part.starts_with("\\S+") && part.size() > 4) part.remove_prefix(3);
    if (out.size() > 1) out += '|';
    out += WithoutTail(part);
  }
  return out + ")";
}

RE2::Options Re2Options() {
  RE2::Options options;
  options.set_encoding(RE2::Options::EncodingLatin1);  // logs are bytes
  options.set_log_errors(false);
  options.set_max_mem(4 << 20);
  return options;
}

// What one pattern hit in one scan.
struct Slot {
  size_t line_end = 0;  // hits before this belong to the line already reported
  size_t count = 0;
  std::vector<size_t> first, last;  // `last` is a ring
};

struct ScanContext {
  std::string_view text;
  std::vector<Slot>* slots;
};

int OnMatch(unsigned int id, unsigned long long, unsigned long long to, unsigned int, void* context) {
  auto* scan = static_cast<ScanContext*>(context);
  Slot& slot = (*scan->slots)[id];
  const size_t at = to == 0 ? 0 : static_cast<size_t>(to) - 1;
  if (slot.count > 0 && at < slot.line_end) return 0;
  const void* newline =
      at < scan->text.size() ? std::memchr(scan->text.data() + at, '\n', scan->text.size() - at) : nullptr;
  slot.line_end = newline == nullptr ? scan->text.size()
                                     : static_cast<size_t>(static_cast<const char*>(newline) - scan->text.data()) + 1;
  if (slot.first.size() < Matcher::kKeep) {
    slot.first.push_back(at);
  } else if (slot.last.size() < Matcher::kKeep) {
    slot.last.push_back(at);
  } else {
    slot.last[slot.count % Matcher::kKeep] = at;
  }
  ++slot.count;
  return 0;
}

int OnLineMatch(unsigned int id, unsigned long long, unsigned long long, unsigned int, void* context) {
  auto* patterns = static_cast<std::vector<uint32_t>*>(context);
  if (patterns->empty() || patterns->back() != id) patterns->push_back(id);
  return 0;
}

}  // namespace

struct Matcher::State {
  std::vector<NamedPattern> patterns;
  std::vector<std::unique_ptr<RE2>> exact;  // compiled when first needed
  hs_database_t* database = nullptr;
  hs_scratch_t* scratch = nullptr;
  std::unique_ptr<RE2::Set> set;
  std::vector<Slot> slots;

  ~State() {
    if (scratch != nullptr) hs_free_scratch(scratch);
    if (database != nullptr) hs_free_database(database);
  }
};

Matcher::Matcher(std::unique_ptr<State> state) : state_(std::move(state)) {}
Matcher::~Matcher() = default;
size_t Matcher::size() const { return state_->patterns.size(); }
bool Matcher::fast() const { return state_->database != nullptr; }

Result<std::unique_ptr<Matcher>> Matcher::Create(std::vector<NamedPattern> patterns, Engine engine) {
  auto state = std::make_unique<State>();
  std::vector<std::string> wide;
  for (const NamedPattern& pattern : patterns) {
    // Parsing alone is cheap; the automaton is built on first use.
    const RE2 probe(pattern.regex, Re2Options());
    if (!probe.ok()) {
      return Status(Code::kUsage, fmt::format("pattern of '{}' does not compile: {}", pattern.name, probe.error()));
    }
    wide.push_back(FirstPass(pattern.regex));
  }
  state->exact.resize(patterns.size());
  state->slots.resize(patterns.size());
  if (engine == Engine::kBest && hs_valid_platform() == HS_SUCCESS) {
    std::vector<const char*> expressions;
    std::vector<unsigned> flags(patterns.size(), HS_FLAG_MULTILINE), ids;
    for (size_t i = 0; i < wide.size(); ++i) {
      expressions.push_back(wide[i].c_str());
      ids.push_back(static_cast<unsigned>(i));
    }
    hs_compile_error_t* error = nullptr;
    if (hs_compile_multi(expressions.data(), flags.data(), ids.data(), static_cast<unsigned>(wide.size()),
                         HS_MODE_BLOCK, nullptr, &state->database, &error) != HS_SUCCESS) {
      Status status(Code::kUsage,
                    error->expression >= 0 && static_cast<size_t>(error->expression) < patterns.size()
                        ? fmt::format("pattern of '{}' does not compile for one-pass search: {}",
                                      patterns[static_cast<size_t>(error->expression)].name, error->message)
                        : fmt::format("the patterns do not compile for one-pass search: {}", error->message));
      hs_free_compile_error(error);
      return status;
    }
    if (hs_alloc_scratch(state->database, &state->scratch) != HS_SUCCESS) {
      return Status(Code::kEnvironment, "no memory for the search tables");
    }
  } else {
    state->set = std::make_unique<RE2::Set>(
        [] {
          RE2::Options options = Re2Options();
          options.set_max_mem(32 << 20);
          return options;
        }(),
        RE2::UNANCHORED);
    for (const std::string& regex : wide) {
      std::string error;
      if (state->set->Add(regex, &error) < 0) {
        return Status(Code::kUsage, fmt::format("pattern '{}' does not compile: {}", Printable(regex), error));
      }
    }
    if (!state->set->Compile()) return Status(Code::kEnvironment, "no memory for the search tables");
  }
  state->patterns = std::move(patterns);
  return std::unique_ptr<Matcher>(new Matcher(std::move(state)));
}

void Matcher::Scan(std::string_view text, std::vector<Candidate>* candidates) {
  candidates->clear();
  if (text.empty()) return;
  for (Slot& slot : state_->slots) {
    slot.line_end = 0;
    slot.count = 0;
    slot.first.clear();
    slot.last.clear();
  }
  ScanContext context{text, &state_->slots};
  if (state_->database != nullptr) {
    hs_scan(state_->database, text.data(), static_cast<unsigned>(text.size()), 0, state_->scratch, OnMatch, &context);
  } else {
    std::vector<int> found;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      found.clear();
      if (end > at) state_->set->Match(re2::StringPiece(text.data() + at, end - at), &found);
      for (int id : found) OnMatch(static_cast<unsigned>(id), 0, end, 0, &context);
      at = end + 1;
    }
  }
  for (size_t i = 0; i < state_->slots.size(); ++i) {
    for (size_t at : state_->slots[i].first) candidates->push_back({static_cast<uint32_t>(i), at});
    for (size_t at : state_->slots[i].last) candidates->push_back({static_cast<uint32_t>(i), at});
  }
  std::sort(candidates->begin(), candidates->end(),
            [](const Candidate& a, const Candidate& b) { return a.at != b.at ? a.at < b.at : a.pattern < b.pattern; });
}

void Matcher::ScanLine(std::string_view line, std::vector<uint32_t>* patterns) {
  patterns->clear();
  if (line.empty()) return;
  if (state_->database != nullptr) {
    hs_scan(state_->database, line.data(), static_cast<unsigned>(line.size()), 0, state_->scratch, OnLineMatch,
            patterns);
  } else {
    std::vector<int> found;
    state_->set->Match(re2::StringPiece(line.data(), line.size()), &found);
    patterns->assign(found.begin(), found.end());
  }
  std::sort(patterns->begin(), patterns->end());
  patterns->erase(std::unique(patterns->begin(), patterns->end()), patterns->end());
  Match ignored;
  std::erase_if(*patterns, [&](uint32_t pattern) { return !Find(pattern, line, nullptr); });
}

bool Matcher::Find(uint32_t pattern, std::string_view line, Match* match) {
  std::unique_ptr<RE2>& exact = state_->exact[pattern];
  if (!exact) exact = std::make_unique<RE2>(state_->patterns[pattern].regex, Re2Options());
  const re2::StringPiece text(line.data(), line.size());
  if (match == nullptr) return exact->Match(text, 0, line.size(), RE2::UNANCHORED, nullptr, 0);
  re2::StringPiece groups[10];
  const int count = std::min(exact->NumberOfCapturingGroups() + 1, 10);
  if (!exact->Match(text, 0, line.size(), RE2::UNANCHORED, groups, count)) return false;
  match->begin = static_cast<size_t>(groups[0].data() - line.data());
  match->end = match->begin + groups[0].size();
  match->groups.clear();
  for (int i = 0; i < count; ++i) match->groups.emplace_back(groups[i].data(), groups[i].size());
  return true;
}

}  // namespace lockstep::diagnose
