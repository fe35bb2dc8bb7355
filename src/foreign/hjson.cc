#include "foreign/hjson.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <optional>

#include "base/digits.h"
#include "base/text.h"

namespace lockstep::foreign {
namespace {

constexpr size_t kMostBytes = 4u << 20;
constexpr int kDeepest = 100;
constexpr std::string_view kPunctuators = "{}[],:";

void AppendUtf8(uint32_t point, std::string* out) {
  const auto more = [&](int shift) { *out += static_cast<char>(0x80 | (point >> shift & 0x3f)); };
  if (point < 0x80) {
    *out += static_cast<char>(point);
  } else if (point < 0x800) {
    *out += static_cast<char>(0xc0 | point >> 6);
    more(0);
  } else if (point < 0x10000) {
    *out += static_cast<char>(0xe0 | point >> 12);
    more(6);
    more(0);
  } else {
    *out += static_cast<char>(0xf0 | point >> 18);
    more(12);
    more(6);
    more(0);
  }
}

// -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)?, as JSON has them.
bool IsJsonNumber(std::string_view text) {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || !IsDigit(digits.front()) || !IsDigit(digits.back())) return false;
  if (digits.size() > 1 && digits[0] == '0' && IsDigit(digits[1])) return false;
  const size_t dot = digits.find('.');
  const bool whole_fraction = dot == std::string_view::npos || (dot + 1 < digits.size() && IsDigit(digits[dot + 1]));
  return whole_fraction && IsNumberText(digits);
}

class HjsonReader {
 public:
  HjsonReader(std::string_view text, const std::string& source)
      : text_(text), source_(std::make_shared<const std::string>(source)) {}

  Result<ConfigNode> Document() {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
    ConfigNode root;
    SkipBlank();
    if (failed_) return *failed_;
    root.where = Here();
    if (!More())
      return Status(Code::kUsage, fmt::format("{}: the file is empty, expected keys", root.where.ToString()));
    if (Peek() == '{') {
      root = Value(0);
    } else if (kPunctuators.find(Peek()) != std::string_view::npos) {
      Fail(fmt::format("expected '{{' or a key, found '{}'", Peek()));
    } else {
      root.kind = ConfigNode::Kind::kMap;
      Entries(/*braces=*/false, 0, &root);
    }
    if (!failed_) SkipBlank();
    if (!failed_ && More()) Fail(fmt::format("expected the end of the file, found '{}'", Printable(Rest(), 20)));
    if (failed_) return *failed_;
    return root;
  }

 private:
  bool More() const { return at_ < text_.size(); }
  char Peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  std::string_view Rest() const { return text_.substr(at_, text_.find('\n', at_) - at_); }

  ConfigLocation Place(size_t at) const {
    int line = 1;
    size_t begin = 0;
    for (size_t i = 0; i < at && i < text_.size(); ++i) {
      if (text_[i] != '\n') continue;
      ++line;
      begin = i + 1;
    }
    return {source_, line, static_cast<int>(at - begin) + 1};
  }
  // Read from front to back, so that a long file is not counted again for every key.
  ConfigLocation Here() {
    for (; counted_ < at_; ++counted_) {
      if (text_[counted_] != '\n') continue;
      ++line_;
      line_begin_ = counted_ + 1;
    }
    return {source_, line_, static_cast<int>(at_ - line_begin_) + 1};
  }

  void Fail(const std::string& message) { FailAt(at_, message); }
  void FailAt(size_t at, const std::string& message) {
    if (failed_) return;
    failed_ = Status(Code::kUsage, fmt::format("{}: {}", Place(at).ToString(), message), hint_);
  }

  // Blanks and comments.
  void SkipBlank() {
    while (More()) {
      const char c = Peek();
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else if (c == '#' || (c == '/' && Peek(1) == '/')) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '/' && Peek(1) == '*') {
        const size_t end = text_.find("*/", at_ + 2);
        if (end == std::string_view::npos) return Fail("this comment has no end, expected '*/'");
        at_ = end + 2;
      } else {
        return;
      }
    }
  }

  ConfigNode Value(int depth) {
    ConfigNode node;
    node.where = Here();
    if (depth > kDeepest) {
      Fail(fmt::format("more than {} levels of brackets", kDeepest));
    } else if (!More()) {
      Fail("the file ends where a value is expected");
    } else if (Peek() == '"' || Peek() == '\'') {
      node.kind = ConfigNode::Kind::kScalar;
      node.quoted = true;
      node.text = text_.substr(at_).starts_with("'''") ? SeveralLines() : Quoted();
    } else if (Peek() == '{') {
      node.kind = ConfigNode::Kind::kMap;
      ++at_;
      Entries(/*braces=*/true, depth + 1, &node);
    } else if (Peek() == '[') {
      node.kind = ConfigNode::Kind::kList;
      ++at_;
      Items(depth + 1, &node);
    } else {
      Unquoted(&node);
    }
    return node;
  }

  void Entries(bool braces, int depth, ConfigNode* map) {
    const ConfigLocation open = map->where;
    for (;;) {
      SkipBlank();
      if (failed_) return;
      if (braces && Peek() == '}') {
        ++at_;
        return;
      }
      if (!More()) {
        if (!braces) return;
        return Fail(fmt::format("the file ends here, and the '{{' of line {} is still open", open.line));
      }
      ConfigEntry entry;
      entry.where = Here();
      const size_t begin = at_;
      entry.key = Name();
      SkipBlank();
      if (!failed_ && Peek() != ':') {
        Fail(More() ? fmt::format("expected ':' after the key '{}'", Printable(entry.key, 60))
                    : fmt::format("the file ends after the key '{}', expected ':'", Printable(entry.key, 60)));
      }
      if (failed_) return;
      ++at_;
      SkipBlank();
      if (failed_) return;
      entry.value = Value(depth);
      if (failed_) return;
      for (const ConfigEntry& known : map->entries) {
        if (known.key == entry.key) {
          return FailAt(begin, fmt::format("the key '{}' is given twice, first in line {}", Printable(entry.key, 60),
                                           known.where.line));
        }
      }
      map->entries.push_back(std::move(entry));
      SkipBlank();
      if (Peek() == ',') ++at_;
    }
  }

  void Items(int depth, ConfigNode* list) {
    const ConfigLocation open = list->where;
    for (;;) {
      SkipBlank();
      if (failed_) return;
      if (!More()) return Fail(fmt::format("the file ends here, and the '[' of line {} is still open", open.line));
      if (Peek() == ']') {
        ++at_;
        return;
      }
      list->items.push_back(Value(depth));
      if (failed_) return;
      SkipBlank();
      if (Peek() == ',') ++at_;
    }
  }

  std::string Name() {
    if (Peek() == '"' || Peek() == '\'') return Quoted();
    const size_t begin = at_;
    for (; More() && Peek() != ':'; ++at_) {
      const char c = Peek();
      if (kPunctuators.find(c) != std::string_view::npos) {
        Fail(fmt::format("expected a key, found '{}'", c));
        return "";
      }
      if (c != ' ' && c != '\t' && c != '\n' && c != '\r') continue;
      const std::string_view name = text_.substr(begin, at_ - begin);
      SkipBlank();
      if (Peek() != ':') FailAt(begin, fmt::format("expected ':' after the key '{}'", Printable(name, 60)));
      return std::string(name);
    }
    if (at_ == begin) Fail("expected a key before ':'");
    return std::string(text_.substr(begin, at_ - begin));
  }

  // At a quote.
  std::string Quoted() {
    const size_t begin = at_;
    const char quote = text_[at_++];
    std::string out;
    while (More()) {
      const char c = text_[at_++];
      if (c == quote) return out;
      if (static_cast<unsigned char>(c) < 0x20) {
        FailAt(at_ - 1, fmt::format("the string of line {} has no end in its line", Place(begin).line));
        return out;
      }
      if (c != '\\') {
        out += c;
      } else {
        Escape(&out);
      }
      if (failed_) return out;
    }
    Fail(fmt::format("the file ends inside the string of line {}", Place(begin).line));
    return out;
  }

  // Behind a backslash.
  void Escape(std::string* out) {
    constexpr std::string_view kNames = "\"'\\/bfnrt", kMeant = "\"'\\/\b\f\n\r\t";
    const char c = Peek();
    const size_t which = kNames.find(c);
    if (More() && which != std::string_view::npos) {
      *out += kMeant[which];
      ++at_;
      return;
    }
    const std::optional<uint32_t> high = c == 'u' ? Hex4(at_ + 1) : std::nullopt;
    if (!high) return FailAt(at_ - 1, "expected an escape that JSON has, such as \\n or \\u00e9");
    at_ += 5;
    if ((*high & 0xf800) != 0xd800) return AppendUtf8(*high, out);
    const std::optional<uint32_t> low = Peek() == '\\' && Peek(1) == 'u' ? Hex4(at_ + 2) : std::nullopt;
    if ((*high & 0xfc00) != 0xd800 || !low || (*low & 0xfc00) != 0xdc00) {
      return FailAt(at_ - 6, "expected a pair of surrogates, found half of one");
    }
    at_ += 6;
    AppendUtf8(0x10000 + ((*high - 0xd800) << 10 | (*low - 0xdc00)), out);
  }

  std::optional<uint32_t> Hex4(size_t at) const {
    uint32_t value = 0;
    if (at + 4 > text_.size()) return std::nullopt;
    const auto [end, error] = std::from_chars(text_.data() + at, text_.data() + at + 4, value, 16);
    return error == std::errc() && end == text_.data() + at + 4 ? std::optional(value) : std::nullopt;
  }

  // '''...''': lines lose the indentation of the first quote, and the last line its end.
  std::string SeveralLines() {
    const size_t begin = at_;
    const size_t line = text_.rfind('\n', at_);
    const size_t indent = line == std::string_view::npos ? at_ : at_ - line - 1;
    const size_t end = text_.find("'''", at_ + 3);
    if (end == std::string_view::npos) {
      at_ = text_.size();
      Fail(fmt::format("the file ends inside the ''' of line {}", Place(begin).line));
      return "";
    }
    std::string_view inside = text_.substr(at_ + 3, end - at_ - 3);
    at_ = end + 3;
    std::vector<std::string> lines = Split(inside, '\n');
    if (Trim(lines.front()).empty()) lines.erase(lines.begin());
    std::string out;
    for (size_t i = 0; i < lines.size(); ++i) {
      std::string_view one = lines[i];
      for (size_t k = 0; k < indent && !one.empty() && (one.front() == ' ' || one.front() == '\t'); ++k) {
        one.remove_prefix(1);
      }
      if (one.ends_with('\r')) one.remove_suffix(1);
      out += (i == 0 ? "" : "\n") + std::string(one);
    }
    if (out.ends_with('\n')) out.pop_back();
    return out;
  }

  // true, false, null or a number up to a comma, a bracket or a comment; else a string up to the end of the line.
  void Unquoted(ConfigNode* node) {
    if (kPunctuators.find(Peek()) != std::string_view::npos) {
      return Fail(fmt::format("expected a value, found '{}'", Peek()));
    }
    const size_t begin = at_;
    for (size_t end = begin;; ++end) {
      const char c = end < text_.size() ? text_[end] : '\n';
      const char next = end + 1 < text_.size() ? text_[end + 1] : '\0';
      const bool line_ends = c == '\n' || c == '\r';
      const bool word_ends =
          line_ends || c == ',' || c == '}' || c == ']' || c == '#' || (c == '/' && (next == '/' || next == '*'));
      if (!word_ends) continue;
      const std::string_view word = Trim(text_.substr(begin, end - begin));
      const bool literal = word == "true" || word == "false" || word == "null" || IsJsonNumber(word);
      if (!literal && !line_ends) continue;
      at_ = end;
      node->kind = word == "null" ? ConfigNode::Kind::kNull : ConfigNode::Kind::kScalar;
      node->text = std::string(word);
      node->quoted = !literal;
      if (!literal && word.find_first_of(",}]") != std::string_view::npos) {
        hint_ = fmt::format(
            "a string without quotes goes up to the end of its line, as '{}' in line {} does: put it in "
            "quotes, or write a number, true, false or null as JSON does, with a comma behind it",
            Printable(word, 60), node->where.line);
      }
      return;
    }
  }

  std::string_view text_;
  std::shared_ptr<const std::string> source_;
  size_t at_ = 0;
  size_t counted_ = 0, line_begin_ = 0;
  int line_ = 1;
  std::string hint_;
  std::optional<Status> failed_;
};

}  // namespace

Result<ConfigNode> ReadHjson(std::string_view text, const std::string& source) {
  if (text.size() > kMostBytes) {
    return Status(
        Code::kUsage,
        fmt::format("{}: {} bytes are too many for a configuration (at most {})", source, text.size(), kMostBytes),
        "check that this is the file you meant");
  }
  if (!IsUtf8(text) || text.find('\0') != std::string_view::npos) {
    return Status(Code::kUsage, fmt::format("{}: expected text in UTF-8, found other bytes", source),
                  "save the file as UTF-8");
  }
  return HjsonReader(text, source).Document();
}

}  // namespace lockstep::foreign
