// Python as far as settings go: os.environ, and keyword arguments of the calls that take them. A scan over the text
// that knows strings, comments and brackets; no grammar.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "base/text.h"
#include "lint/readers.h"
#include "lint/variables.h"

namespace lockstep::lint {
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

  static bool Setting(const std::string& name) {
    if (name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != std::string::npos) return false;
    if (Variables::Complete(name)) return true;
    const struct Variable* row = Variables::Table().Find(name);
    return (row != nullptr && row->name.back() != '*') || Variables::Table().Meant(name).has_value();
  }

  // os.environ["A"] = "1", env["A"] = "1", os.environ.setdefault("A", "1"), os.putenv("A", "1"), env = {"A": "1"}
  void Environ() {
    for (size_t at = masked_.find('['); at != std::string::npos; at = masked_.find('[', at + 1)) Subscript(at);
    for (const char* call : {"environ.setdefault(", "putenv(", "monkeypatch.setenv("}) {
      for (size_t at = masked_.find(call); at != std::string::npos; at = masked_.find(call, at + 1)) {
        size_t end = 0;
        const std::optional<std::string> name = Literal(at + std::string_view(call).size(), end);
        if (!name) continue;
        const size_t comma = masked_.find(',', end), close = masked_.find(')', end);
        if (comma == std::string::npos || close == std::string::npos || comma > close) continue;
        Variable(*name, Value(comma + 1, close), at, true);
        NumberGiven(*name, comma + 1, close);
      }
    }
    for (const char* call : {"environ.get(", "getenv(", "environ.pop("}) {
      for (size_t at = masked_.find(call); at != std::string::npos; at = masked_.find(call, at + 1)) {
        size_t end = 0;
        const std::optional<std::string> name = Literal(at + std::string_view(call).size(), end);
        if (name && !Printed(at)) unit_.used.insert(*name);
      }
    }
    for (size_t at = masked_.find('{'); at != std::string::npos; at = masked_.find('{', at + 1)) {
      if (OfEnvironment(at)) Dictionary(at);
    }
  }

  // environ["A"] = value. A name that is only read may be the program's own.
  void Subscript(size_t open) {
    size_t start = open;
    while (start > 0 && Part(masked_[start - 1])) --start;
    const std::string_view owner = std::string_view(masked_).substr(start, open - start);
    const bool environ = owner.size() >= 7 && owner.substr(owner.size() - 7) == "environ";
    size_t end = 0;
    const std::optional<std::string> name = owner.empty() ? std::nullopt : Literal(open + 1, end);
    if (!name || (!environ && !Setting(*name))) return;
    const size_t close = masked_.find(']', end);
    if (close == std::string::npos || !Trim(masked_.substr(end, close - end)).empty()) return;
    const size_t next = masked_.find_first_not_of(" \t", close + 1);
    if (next == std::string::npos || masked_[next] != '=' || masked_.substr(next, 2) == "==") {
      if (environ && !Printed(open)) unit_.used.insert(*name);
      return;
    }
    size_t stop = std::min(masked_.find_first_of(";\n", next), masked_.size());
    while (stop > next + 1 && (masked_[stop - 1] == ' ' || masked_[stop - 1] == '\r')) --stop;  // a comment is blank
    const size_t place = environ ? start + owner.size() - 7 : start;
    Variable(*name, Value(next + 1, stop), place, false);
    if (environ) NumberGiven(*name, next + 1, stop);
  }

  // os.environ takes strings only.
  void NumberGiven(const std::string& name, size_t at, size_t stop) {
    const std::string_view value = Trim(text_.substr(at, stop - at));
    const bool number = !value.empty() && value.find_first_not_of("0123456789.") == std::string_view::npos;
    if (!number && value != "True" && value != "False" && value != "None") return;
    Fact fact = Make("shape", "python-env-no-string", at + (text_.substr(at, stop - at).find(value)));
    fact.detail = name;
    fact.value = value;
    unit_.facts.push_back(std::move(fact));
  }

  // Whether the line only shows the value.
  bool Printed(size_t at) const {
    const size_t line = masked_.rfind('\n', at) == std::string::npos ? 0 : masked_.rfind('\n', at) + 1;
    const std::string_view before = std::string_view(masked_).substr(line, at - line);
    return before.find("print(") != std::string_view::npos || before.find("log") != std::string_view::npos;
  }

  // A dictionary that is given to something called env: env = {, env_vars={, "env_vars": {, environ.update({, |= {
  bool OfEnvironment(size_t open) const {
    size_t end = masked_.find_last_not_of(" \t\n", open > 0 ? open - 1 : 0);
    if (open == 0 || end == std::string::npos || std::string_view("=:(").find(masked_[end]) == std::string_view::npos) {
      return false;
    }
    const size_t line = text_.rfind('\n', end) == std::string_view::npos ? 0 : text_.rfind('\n', end) + 1;
    std::string before(text_.substr(line, end - line));
    const size_t cut = before.find_last_of(",{(", before.empty() ? 0 : before.size() - 1);
    if (masked_[end] != '(' && cut != std::string::npos) before = before.substr(cut + 1);
    for (char& c : before) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return before.find("env") != std::string::npos;
  }

  void Dictionary(size_t open) {
    size_t cursor = open + 1;
    for (int entries = 0; cursor < masked_.size() && entries < 1000; ++entries) {
      size_t end = 0;
      const std::optional<std::string> name = Literal(cursor, end);
      // Whole statements may stand between: **os.environ
      const size_t stop = EntryEnd(cursor);
      if (name) {
        const size_t colon = masked_.find(':', end);
        const size_t place = text_.find_first_of("\"'", cursor);
        if (colon != std::string::npos && colon < stop && Setting(*name)) {
          Variable(*name, Value(colon + 1, stop), place, false);
        }
      }
      if (stop >= masked_.size() || masked_[stop] != ',') return;
      cursor = stop + 1;
    }
  }

  // The comma behind an entry, or the bracket behind the last.
  size_t EntryEnd(size_t at) const {
    int depth = 0;
    for (; at < masked_.size(); ++at) {
      const char c = masked_[at];
      if (c == '(' || c == '[' || c == '{') ++depth;
      if ((c == ')' || c == ']' || c == '}') && depth-- == 0) return at;
      if (c == ',' && depth == 0) return at;
    }
    return at;
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
    if (Variables::Complete(name)) {  // environ.update(A="1"), dict(os.environ, A="1")
      Variable(name, Value(value, end), at, false);
      return;
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

}  // namespace lockstep::lint
