// Python as far as settings go: os.environ, and keyword arguments of the calls that take them. A scan over the text
// that knows strings, comments and brackets; no grammar.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "base/text.h"
#include "tune/readers.h"

namespace lockstep::tune {
namespace {

bool Part(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

class PythonReader {
 public:
  PythonReader(std::string_view text, int line, int column, Unit& unit) : text_(text), unit_(unit) {
    lines_.push_back(0);
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') lines_.push_back(i + 1);
    }
    line_ = line;
    column_ = column;
    Mask();
  }

  void Read() {
    Environ();
    Calls();
  }

 private:
  // A copy whose strings and comments are blank, so that brackets and names can be looked for.
  void Mask() {
    masked_ = std::string(text_);
    size_t i = 0;
    while (i < masked_.size()) {
      const char c = masked_[i];
      if (c == '#') {
        const size_t start = i;
        while (i < masked_.size() && masked_[i] != '\n') masked_[i++] = ' ';
        Fact fact = Make("comment", "comment", start);
        fact.value = std::string(Trim(text_.substr(start + 1, i - start - 1)));
        unit_.facts.push_back(std::move(fact));
      } else if (c == '"' || c == '\'') {
        const bool three = text_.substr(i, 3) == std::string(3, c);
        const std::string end(three ? 3 : 1, c);
        i += end.size();
        while (i < masked_.size() && text_.substr(i, end.size()) != end && (three || masked_[i] != '\n')) {
          if (masked_[i] == '\\' && i + 1 < masked_.size()) masked_[i++] = ' ';
          if (i < masked_.size() && masked_[i] != '\n') masked_[i] = ' ';
          ++i;
        }
        i += end.size();
      } else {
        ++i;
      }
    }
  }

  Fact Make(const std::string& kind, const std::string& name, size_t at) const {
    Fact fact;
    fact.kind = kind;
    fact.name = name;
    const size_t row = std::upper_bound(lines_.begin(), lines_.end(), at) - lines_.begin() - 1;
    fact.line = static_cast<int>(row) + line_;
    fact.column = static_cast<int>(at - lines_[row]) + (row == 0 ? column_ : 1);
    return fact;
  }

  // The string literal at or after `at` (blanks allowed); sets `end` behind it.
  std::optional<std::string> Literal(size_t at, size_t& end) const {
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\n')) ++at;
    if (at >= text_.size() || (text_[at] != '"' && text_[at] != '\'')) return std::nullopt;
    const size_t close = text_.find(text_[at], at + 1);
    if (close == std::string_view::npos || close > at + 500) return std::nullopt;
    end = close + 1;
    return std::string(text_.substr(at + 1, close - at - 1));
  }

  // The value of an expression that is a literal; nothing when it must be computed.
  std::optional<std::string> Value(size_t at, size_t stop) const {
    size_t end = 0;
    std::string_view inside = Trim(text_.substr(at, stop - at));
    if (inside.rfind("str(", 0) == 0 && inside.back() == ')') inside = Trim(inside.substr(4, inside.size() - 5));
    if (auto literal = Literal(at, end)) {
      if (Trim(text_.substr(end, stop > end ? stop - end : 0)).empty()) return literal;
      return std::nullopt;
    }
    if (inside.empty() || inside.size() > 100) return std::nullopt;
    const bool plain = std::all_of(inside.begin(), inside.end(), [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == 'e' || c == '-';
    });
    if (plain || inside == "True" || inside == "False" || inside == "None") return std::string(inside);
    return std::nullopt;
  }

  void Variable(const std::string& name, const std::optional<std::string>& value, size_t at, bool fallback) {
    Fact fact = Make("variable", name, at);
    fact.known = value.has_value();
    fact.value = value.value_or("");
    fact.fallback = fallback;
    unit_.facts.push_back(std::move(fact));
  }

  // os.environ["A"] = "1"; os.environ.setdefault("A", "1"); os.putenv("A", "1"); os.environ.update({...}), env = {...}
  void Environ() {
    for (size_t at = masked_.find("environ["); at != std::string::npos; at = masked_.find("environ[", at + 1)) {
      size_t end = 0;
      const std::optional<std::string> name = Literal(at + 8, end);
      if (!name) continue;
      size_t next = masked_.find(']', end);
      if (next == std::string::npos) break;
      next = masked_.find_first_not_of(" \t", next + 1);
      if (next == std::string::npos || masked_[next] != '=' || masked_.substr(next, 2) == "==") continue;
      size_t stop = std::min(masked_.find('\n', next), masked_.size());
      while (stop > next + 1 && (masked_[stop - 1] == ' ' || masked_[stop - 1] == '\r')) --stop;  // a comment is blank
      Variable(*name, Value(next + 1, stop), at, false);
    }
    for (const char* call : {"environ.setdefault(", "putenv(", "monkeypatch.setenv("}) {
      for (size_t at = masked_.find(call); at != std::string::npos; at = masked_.find(call, at + 1)) {
        size_t end = 0;
        const std::optional<std::string> name = Literal(at + std::string_view(call).size(), end);
        if (!name) continue;
        const size_t comma = masked_.find(',', end), close = masked_.find(')', end);
        if (comma == std::string::npos || close == std::string::npos || comma > close) continue;
        Variable(*name, Value(comma + 1, close), at, true);
      }
    }
    for (const char* call : {"environ.update({", "env_vars={", "env={"}) {
      const std::string opening = call;
      for (size_t at = masked_.find(opening); at != std::string::npos; at = masked_.find(opening, at + 1)) {
        size_t cursor = at + opening.size();
        const size_t close = std::min(masked_.find('}', cursor), masked_.size());
        while (cursor < close) {
          size_t end = 0;
          const std::optional<std::string> name = Literal(cursor, end);
          if (!name) break;
          const size_t colon = masked_.find(':', end);
          if (colon == std::string::npos || colon > close) break;
          const size_t comma = std::min(masked_.find(',', colon), close);
          const size_t place = text_.find_first_of("\"'", cursor);
          Variable(*name, Value(colon + 1, comma), place, false);
          cursor = comma + 1;
        }
      }
    }
  }

  // Keyword arguments of every call: "DistributedDataParallel.find_unused_parameters".
  void Calls() {
    struct Call {
      std::string name;
      size_t depth;
    };
    std::vector<Call> calls;
    size_t depth = 0;
    for (size_t i = 0; i < masked_.size(); ++i) {
      const char c = masked_[i];
      if (c == '(' || c == '[' || c == '{') {
        ++depth;
        if (c == '(') {
          size_t start = i;
          while (start > 0 && Part(masked_[start - 1])) --start;
          std::string name = masked_.substr(start, i - start);
          calls.push_back({name.substr(name.rfind('.') == std::string::npos ? 0 : name.rfind('.') + 1), depth});
          if (!calls.back().name.empty()) {
            Fact fact = Make("call", calls.back().name, start);
            fact.value = Arguments(i);
            unit_.facts.push_back(std::move(fact));
          }
        }
      } else if (c == ')' || c == ']' || c == '}') {
        if (c == ')' && !calls.empty() && calls.back().depth == depth) calls.pop_back();
        if (depth > 0) --depth;
      } else if (c == '=' && !calls.empty() && calls.back().depth == depth && i > 0 && i + 1 < masked_.size() &&
                 masked_[i + 1] != '=' &&
                 std::string_view("=!<>+-*/:").find(masked_[i - 1]) == std::string_view::npos) {
        size_t end = i;
        while (end > 0 && masked_[end - 1] == ' ') --end;
        size_t start = end;
        while (start > 0 && Part(masked_[start - 1])) --start;
        if (start == end) continue;
        Argument(calls.back().name, masked_.substr(start, end - start), start, i + 1);
      }
      if (depth > 500) return;  // no program
    }
  }

  // The text of a call's arguments, shortened.
  std::string Arguments(size_t open) const {
    int depth = 0;
    size_t i = open;
    for (; i < masked_.size() && i < open + 1000; ++i) {
      if (masked_[i] == '(') ++depth;
      if (masked_[i] == ')' && --depth == 0) break;
    }
    return std::string(text_.substr(open + 1, i > open ? i - open - 1 : 0));
  }

  void Argument(const std::string& call, const std::string& name, size_t at, size_t value) {
    int depth = 0;
    size_t end = value;
    for (; end < masked_.size() && end < value + 300; ++end) {
      const char c = masked_[end];
      if (c == '(' || c == '[' || c == '{') ++depth;
      if (c == ')' || c == ']' || c == '}') {
        if (depth == 0) break;
        --depth;
      }
      if (c == ',' && depth == 0) break;
    }
    Fact fact = Make("call", call + "." + name, at);
    const std::string written(Trim(masked_.substr(value, end - value)));
    if (auto literal = Value(value, end)) {
      fact.value = *literal;
    } else if (auto seconds = Timedelta(written)) {
      fact.value = *seconds;
    } else {
      fact.value = written;
      fact.known = false;
    }
    unit_.facts.push_back(std::move(fact));
  }

  // timedelta(minutes=30) in seconds.
  static std::optional<std::string> Timedelta(const std::string& text) {
    const size_t at = text.find("timedelta(");
    if (at == std::string::npos) return std::nullopt;
    const size_t close = text.find(')', at);
    if (close == std::string::npos) return std::nullopt;
    double seconds = 0;
    for (const std::string& part : Split(text.substr(at + 10, close - at - 10), ',')) {
      const size_t equals = part.find('=');
      if (equals == std::string::npos) return std::nullopt;
      const std::string unit(Trim(std::string_view(part).substr(0, equals)));
      double number = 1;
      for (const std::string& factor : Split(std::string_view(part).substr(equals + 1), '*')) {
        const std::string_view digits = Trim(factor);
        double value = 0;
        auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
        number *= value;
      }
      if (unit == "seconds") seconds += number;
      if (unit == "minutes") seconds += number * 60;
      if (unit == "hours") seconds += number * 3600;
      if (unit == "days") seconds += number * 86400;
      if (unit == "milliseconds") seconds += number / 1000;
    }
    return fmt::format("{:.0f}", seconds);
  }

  std::string_view text_;
  Unit& unit_;
  std::string masked_;
  std::vector<size_t> lines_;
  int line_ = 1, column_ = 1;
};

}  // namespace

void ReadPython(std::string_view text, int line, int column, Units& units) {
  Unit unit;
  unit.dialect = "python";
  PythonReader(text, line, column, unit).Read();
  units.push_back(std::move(unit));
}

}  // namespace lockstep::tune
