#include "lint/shell_lexer.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "base/text.h"

namespace lockstep::lint {
namespace {

constexpr std::string_view kMeta = " \t\r\n;&|<>()";
constexpr size_t kLongestValue = 16 * 1024;  // A=$A$A grows without end
constexpr int kDeepestDefault = 8;           // of ${A:-${B:-...}}
constexpr size_t kMostListWords = 4000;      // of a value that is a list

bool NameStart(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool NamePart(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

bool IsName(std::string_view text) {
  return !text.empty() && NameStart(text[0]) && std::all_of(text.begin(), text.end(), NamePart);
}

// The blank behind the word at `start`: those inside $(...) and `...` are the word's own.
static size_t WordEnd(std::string_view text, size_t start) {
  int depth = 0;
  bool tick = false;
  size_t at = start;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '`') tick = !tick;
    if (c == '(' && (depth > 0 || (at > 0 && text[at - 1] == '$'))) ++depth;
    if (c == ')' && depth > 0) --depth;
    if (depth == 0 && !tick && (c == ' ' || c == '\t' || c == '\r' || c == '\n')) break;
  }
  return at;
}

ShellPlace ShellWord::PlaceOf(size_t offset) const {
  ShellPlace place{0, line, column};
  const auto later = std::upper_bound(places.begin(), places.end(), offset,
                                      [](size_t wanted, const ShellPlace& one) { return wanted < one.at; });
  if (later != places.begin()) place = *std::prev(later);
  for (size_t i = place.at; i < std::min(offset, value.size()); ++i) {
    if ((static_cast<unsigned char>(value[i]) & 0xc0) != 0x80) ++place.column;
  }
  place.at = offset;
  return place;
}

ShellWord ShellWord::From(size_t offset, size_t length) const {
  ShellWord part;
  const ShellPlace start = PlaceOf(offset);
  part.line = start.line;
  part.column = start.column;
  part.value = part.text = value.substr(std::min(offset, value.size()), length);
  part.known = part.value.find_first_of("$`") == std::string::npos;
  part.fallback = fallback;
  part.quoted = quoted;
  auto one = std::upper_bound(places.begin(), places.end(), offset,
                              [](size_t wanted, const ShellPlace& place) { return wanted < place.at; });
  for (; one != places.end() && one->at - offset < part.value.size(); ++one) {
    part.places.push_back({one->at - offset, one->line, one->column});
  }
  return part;
}

void ShellValues::Set(const std::string& name, const ShellWord& value, const std::vector<ShellWord>& elements,
                      const std::vector<Branch>& branches) {
  entries_[name] = {value, elements, branches};
}

std::vector<ShellWord> ShellValues::Words(const std::string& name, const std::vector<Branch>& branches) const {
  const ShellWord* value = Find(name, branches);
  if (value == nullptr) return {};
  if (const std::vector<ShellWord>& elements = entries_.at(name).elements; !elements.empty()) return elements;
  return Words(*value);
}

std::vector<ShellWord> ShellValues::Words(const ShellWord& value) {
  std::vector<ShellWord> words;
  for (size_t end = 0; words.size() < kMostListWords;) {
    const size_t start = value.value.find_first_not_of(" \t\r\n", end);
    if (start == std::string::npos) break;
    end = WordEnd(value.value, start);
    words.push_back(value.From(start, end - start));
    words.back().quoted = false;
  }
  return words;
}

void ShellValues::Forget(const std::string& name) { entries_.erase(name); }

const ShellWord* ShellValues::Find(const std::string& name, const std::vector<Branch>& branches) const {
  auto at = entries_.find(name);
  if (at == entries_.end()) return nullptr;
  // Set in an arm that may not have been taken: not known outside of it.
  const std::vector<Branch>& set = at->second.branches;
  if (set.size() > branches.size() || !std::equal(set.begin(), set.end(), branches.begin())) return nullptr;
  return &at->second.value;
}

void ShellLexer::Step() {
  if (text_[at_] == '\n') {
    ++line_;
    column_ = left_;
  } else if ((static_cast<unsigned char>(text_[at_]) & 0xc0) != 0x80) {
    ++column_;  // a column is a character, not a byte
  }
  ++at_;
  while (next_place_ < places_.size() && places_[next_place_].at <= at_) {
    if (places_[next_place_].at == at_) {
      line_ = places_[next_place_].line;
      column_ = places_[next_place_].column;
    }
    ++next_place_;
  }
}

// What is put into the value next stands here.
void ShellLexer::Mark(ShellWord& word, int line, int column) {
  if (!word.places.empty() && word.places.back().at == word.value.size()) word.places.pop_back();
  word.places.push_back({word.value.size(), line, column});
}

// The character here becomes one of the value's.
void ShellLexer::Put(ShellWord& word) {
  if (line_ != next_line_ || column_ != next_column_) Mark(word, line_, column_);
  word.value += text_[at_];
  Step();
  next_line_ = line_;
  next_column_ = column_;
}

// Text that is not written here as it stands.
void ShellLexer::PutAll(ShellWord& word, std::string_view text, int line, int column) {
  Mark(word, line, column);
  word.value += text;
  next_line_ = -1;
}

void ShellLexer::SkipBlanks() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == ' ' || c == '\t' || c == '\r') {
      Step();
    } else if (c == '\\' && at_ + 1 < text_.size() && (text_[at_ + 1] == '\n' || text_.substr(at_ + 1, 2) == "\r\n")) {
      Step();
      if (text_[at_] == '\r') Step();
      Step();
    } else {
      return;
    }
  }
}

char ShellLexer::PeekPastBlanks() const {
  size_t at = at_;
  while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
  return at < text_.size() ? text_[at] : '\0';
}

void ShellLexer::ReadComment() {
  const int line = line_, column = column_;
  const size_t start = at_ + 1;
  while (at_ < text_.size() && text_[at_] != '\n') Step();
  std::string words(Trim(text_.substr(start, at_ - start)));
  const size_t before = text_.find_last_not_of(" \t", start > 1 ? start - 2 : 0);
  const bool alone = start == 1 || before == std::string_view::npos || text_[before] == '\n';
  const bool directive = alone && text_.substr(start, 6) == "SBATCH";
  if (!comments_.empty() && last_comment_line_ == line - 1 && words.rfind("SBATCH", 0) != 0 &&
      comments_.back().text.rfind("SBATCH", 0) != 0 && comments_.back().text.size() < 4000) {
    comments_.back().text += "\n" + words;
  } else {
    comments_.push_back({words, directive, line, column});
  }
  last_comment_line_ = line;
}

void ShellLexer::ExpectDocument(const std::string& delimiter, bool strip_tabs, size_t command) {
  if (!delimiter.empty()) expected_.push_back({delimiter, strip_tabs, command});
}

void ShellLexer::ReadDocuments() {
  std::vector<Expected> expected;
  expected.swap(expected_);
  for (const Expected& one : expected) {
    ReadDocument read{one.command, {"", line_}};
    while (at_ < text_.size()) {
      const size_t end = std::min(text_.find('\n', at_), text_.size());
      std::string_view line = text_.substr(at_, end - at_);
      while (at_ < end) Step();
      if (at_ < text_.size()) Step();
      std::string_view bare = line;
      if (!bare.empty() && bare.back() == '\r') bare.remove_suffix(1);
      if (one.strip_tabs) bare.remove_prefix(std::min(bare.find_first_not_of('\t'), bare.size()));
      if (bare == one.delimiter) break;
      read.document.text.append(line).append("\n");
    }
    documents_.push_back(std::move(read));
  }
}

ShellToken ShellLexer::Next() {
  const size_t before = at_;
  SkipBlanks();
  ShellToken token;
  token.glued = before == at_;
  token.line = line_;
  token.column = column_;
  if (at_ >= text_.size()) return token;
  const char c = text_[at_];
  if (c == '#') {
    ReadComment();
    return Next();  // a comment ends at a line end or the end of text: one step deep
  }
  if (c == '\n') {
    Step();
    token.kind = ShellToken::kNewline;
    if (!expected_.empty()) ReadDocuments();
    return token;
  }
  static constexpr std::string_view kOperators[] = {"<<<", "<<-", ";;&", "&>>", "&&", "||", ";;", ";&",
                                                    "|&",  "<<",  ">>",  "<&",  ">&", "&>", ">|", "<>",
                                                    ";",   "&",   "|",   "<",   ">",  "(",  ")"};
  if (c == '<') {  // <your_value>, as documents write what the reader is to fill in
    size_t close = at_ + 1;
    while (close < text_.size() && (NamePart(text_[close]) || text_[close] == '-' || text_[close] == '.')) ++close;
    const bool ends = close + 1 >= text_.size() || kMeta.find(text_[close + 1]) != std::string_view::npos;
    if (close > at_ + 1 && close < text_.size() && text_[close] == '>' && NameStart(text_[at_ + 1]) && ends) {
      token.kind = ShellToken::kWord;
      token.word.line = line_;
      token.word.column = column_;
      token.word.text = token.word.value = std::string(text_.substr(at_, close + 1 - at_));
      token.word.known = false;
      while (at_ <= close) Step();
      return token;
    }
  }
  if (c == '<' || c == '>') {  // <(command) is a word
    if (at_ + 1 < text_.size() && text_[at_ + 1] == '(') {
      token.kind = ShellToken::kWord;
      token.word.line = line_;
      token.word.column = column_;
      const size_t start = at_;
      Step();
      SkipBalanced('(', ')');
      token.word.text = token.word.value = std::string(text_.substr(start, at_ - start));
      token.word.known = false;
      return token;
    }
  }
  for (std::string_view symbol : kOperators) {
    if (text_.substr(at_, symbol.size()) != symbol) continue;
    for (size_t i = 0; i < symbol.size(); ++i) Step();
    token.kind = ShellToken::kOperator;
    token.symbol = symbol;
    return token;
  }
  token.kind = ShellToken::kWord;
  token.word = ReadWord();
  return token;
}

ShellWord ShellLexer::Until(std::string_view end) {
  ShellWord word;
  word.line = line_;
  word.column = column_;
  const size_t start = at_;
  const size_t stop = std::min(text_.find(end, at_), text_.size());
  while (at_ < std::min(stop + end.size(), text_.size())) Step();
  word.text = std::string(text_.substr(start, stop - start));
  word.value = word.text;
  word.known = word.text.find('$') == std::string::npos;
  return word;
}

std::vector<ShellWord> ShellLexer::ArrayElements() {
  std::vector<ShellWord> elements;
  while (true) {
    ShellToken token = Next();
    if (token.kind == ShellToken::kEnd || (token.kind == ShellToken::kOperator && token.symbol == ")")) return elements;
    if (token.kind == ShellToken::kWord) elements.push_back(std::move(token.word));
  }
}

// From the opening character; past its closing one.
void ShellLexer::SkipBalanced(char open, char close) {
  int depth = 0;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\\' && at_ + 1 < text_.size()) {
      Step();
    } else if (c == '\'' && open == '(') {
      Step();
      while (at_ < text_.size() && text_[at_] != '\'') Step();
      if (at_ >= text_.size()) return;
    } else if (c == open) {
      ++depth;
    } else if (c == close && --depth == 0) {
      Step();
      return;
    }
    Step();
  }
}

void ShellLexer::Lookup(const std::string& name, std::string_view written, ShellWord& word) {
  static const std::vector<Branch> kNone;
  const ShellWord* value = values_.Find(name, branches_ == nullptr ? kNone : *branches_);
  if (value == nullptr || word.value.size() + value->value.size() > kLongestValue) {
    PutAll(word, written, expansion_line_, expansion_column_);
    word.known = false;
    return;
  }
  const size_t before = word.value.size();
  PutAll(word, value->value, value->line, value->column);
  for (const ShellPlace& place : value->places) {
    if (place.at >= value->value.size()) break;
    if (place.at == 0) word.places.pop_back();
    word.places.push_back({before + place.at, place.line, place.column});
  }
  word.known = word.known && value->known;
  word.fallback = word.fallback || value->fallback;
}

void ShellLexer::ExpandBraced(std::string_view inside, std::string_view whole, ShellWord& word, int depth) {
  size_t end = 0;
  while (end < inside.size() && NamePart(inside[end])) ++end;
  const std::string name(inside.substr(0, end));
  std::string_view rest = inside.substr(end);
  if (rest.size() >= 3 && rest.substr(0, 3) == "[@]") rest.remove_prefix(3);
  if (rest.empty()) return Lookup(name, whole, word);
  const bool colon = rest[0] == ':' && rest.size() > 1;
  const char op = colon ? rest[1] : rest[0];
  if ((op != '-' && op != '=') || depth >= kDeepestDefault) {
    PutAll(word, whole, expansion_line_, expansion_column_);
    word.known = false;
    return;
  }
  static const std::vector<Branch> kNone;
  const ShellWord* value = values_.Find(name, branches_ == nullptr ? kNone : *branches_);
  if (value != nullptr && value->known && !value->value.empty()) return Lookup(name, whole, word);
  word.fallback = true;
  ExpandText(rest.substr(colon ? 2 : 1), word, depth + 1);
}

// Text inside ${NAME:-...}: quotes go, expansions are looked up.
void ShellLexer::ExpandText(std::string_view text, ShellWord& word, int depth) {
  PutAll(word, "", expansion_line_, expansion_column_);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' || c == '\'') continue;
    if (c == '\\' && i + 1 < text.size()) {
      word.value += text[++i];
    } else if (c == '$' && i + 1 < text.size() && text[i + 1] == '{') {
      int open = 0;
      size_t end = i + 1;
      for (; end < text.size(); ++end) {
        if (text[end] == '{') ++open;
        if (text[end] == '}' && --open == 0) break;
      }
      const std::string_view whole = text.substr(i, end + 1 - i);
      ExpandBraced(text.substr(i + 2, end > i + 2 ? end - i - 2 : 0), whole, word, depth);
      i = end;
    } else if (c == '$' && i + 1 < text.size() && NameStart(text[i + 1])) {
      size_t end = i + 1;
      while (end < text.size() && NamePart(text[end])) ++end;
      Lookup(std::string(text.substr(i + 1, end - i - 1)), text.substr(i, end - i), word);
      i = end - 1;
    } else {
      if (c == '$' || c == '`') word.known = false;
      word.value += c;
    }
  }
}

// At '$'.
void ShellLexer::Expand(ShellWord& word) {
  const size_t start = at_;
  expansion_line_ = line_;
  expansion_column_ = column_;
  Step();
  const char c = Peek();
  if (c == '(') {
    SkipBalanced('(', ')');
  } else if (c == '{') {
    SkipBalanced('{', '}');
    const std::string_view whole = text_.substr(start, at_ - start);
    if (whole.size() >= 3 && whole.back() == '}') {
      ExpandBraced(whole.substr(2, whole.size() - 3), whole, word, 0);
      return;
    }
  } else if (NameStart(c)) {
    while (NamePart(Peek())) Step();
    Lookup(std::string(text_.substr(start + 1, at_ - start - 1)), text_.substr(start, at_ - start), word);
    return;
  } else if (c != '\0' && std::string_view("?!$@*#-0123456789").find(c) != std::string_view::npos) {
    Step();
  } else {
    PutAll(word, "$", expansion_line_, expansion_column_);
    return;
  }
  PutAll(word, text_.substr(start, at_ - start), expansion_line_, expansion_column_);
  word.known = false;
}

void ShellLexer::ReadDoubleQuoted(ShellWord& word) {
  Step();
  while (at_ < text_.size() && text_[at_] != '"') {
    const char c = text_[at_];
    if (c == '\\' && at_ + 1 < text_.size()) {
      const char next = text_[at_ + 1];
      if (std::string_view("$`\"\\\n").find(next) == std::string_view::npos) {
        Put(word);
      } else {
        Step();
      }
      if (next == '\n') {
        Step();
      } else {
        Put(word);
      }
    } else if (c == '$') {
      Expand(word);
    } else {
      if (c == '`') word.known = false;
      Put(word);
    }
  }
  if (at_ < text_.size()) Step();
}

ShellWord ShellLexer::ReadWord() {
  ShellWord word;
  word.line = line_;
  word.column = column_;
  next_line_ = line_;
  next_column_ = column_;
  const size_t start = at_;
  while (at_ < text_.size() && kMeta.find(text_[at_]) == std::string_view::npos) {
    const char c = text_[at_];
    if (c == '\\') {
      const size_t behind = text_.find_first_not_of(" \t\r", at_ + 1);
      const bool blank = at_ + 1 < text_.size() && (text_[at_ + 1] == ' ' || text_[at_ + 1] == '\t');
      if (blank && behind != std::string_view::npos && text_[behind] == '\n') broken_.push_back({0, line_, column_});
      Step();
      if (at_ >= text_.size()) break;
      if (text_[at_] == '\n') {
        Step();
      } else {
        Put(word);
      }
    } else if (c == '\'') {
      word.quoted = true;
      Step();
      while (at_ < text_.size() && text_[at_] != '\'') Put(word);
      if (at_ < text_.size()) Step();
    } else if (c == '"') {
      word.quoted = true;
      ReadDoubleQuoted(word);
    } else if (c == '$' && at_ + 1 < text_.size() && (text_[at_ + 1] == '\'' || text_[at_ + 1] == '"')) {
      Step();
    } else if (c == '$') {
      Expand(word);
    } else if (c == '`') {
      word.known = false;
      Put(word);
      while (at_ < text_.size() && text_[at_] != '`') Put(word);
      if (at_ < text_.size()) Put(word);
    } else {
      Put(word);
      // A placeholder as documents write them: NAME=<your value>. No redirection has letters and a '>' behind it.
      if (c == '=' && Peek() == '<') {
        const size_t close = text_.find('>', at_);
        const size_t line_end = std::min(text_.find('\n', at_), text_.size());
        if (close != std::string_view::npos && close < line_end && close > at_ + 1 && NameStart(text_[at_ + 1])) {
          while (at_ <= close) Put(word);
          word.known = false;
        }
      }
    }
  }
  word.text = std::string(text_.substr(start, at_ - start));
  return word;
}

}  // namespace lockstep::lint
