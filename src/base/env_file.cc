#include "base/env_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace lockstep {
namespace {

bool IsName(std::string_view name) {
  auto first = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (name.empty() || !first(name[0])) return false;
  for (char c : name)
    if (!first(c) && !(c >= '0' && c <= '9') && c != '.' && c != '-' && c != '%') return false;  // BASH_FUNC_x%%
  return true;
}

char Escaped(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    default:
      return c;
  }
}

// A value that begins with a quote, from text[*at] on; it may span lines. Leaves *at behind the closing quote.
bool TakeQuoted(std::string_view text, size_t* at, std::string* value) {
  const bool ansi = text[*at] == '$';
  if (ansi) ++*at;
  const char quote = text[(*at)++];
  for (; *at < text.size(); ++*at) {
    char c = text[*at];
    if (c == quote) {
      ++*at;
      return true;
    }
    if (c == '\\' && (ansi || quote == '"') && *at + 1 < text.size()) {
      const char next = text[++*at];
      if (ansi)
        c = Escaped(next);
      else if (next == '"' || next == '\\' || next == '$' || next == '`')
        c = next;
      else
        value->push_back('\\'), c = next;
    }
    value->push_back(c);
  }
  return false;
}

}  // namespace

std::vector<std::string> ToStrings(const Environment& env) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : env) texts.push_back(name + "=" + value);
  return texts;
}

Environment ParseEnvironment(std::string_view text) {
  Environment env;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\0'), text.size());
    const std::string_view entry = text.substr(0, end);
    const size_t equals = entry.find('=');
    if (equals != std::string_view::npos && equals > 0)
      env.insert_or_assign(std::string(entry.substr(0, equals)), std::string(entry.substr(equals + 1)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return env;
}

Result<Environment> ParseEnvFile(std::string_view text, const std::string& name) {
  if (text.find('\0') != std::string_view::npos) return ParseEnvironment(text);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  Environment env;
  int line = 1;
  std::string* last = nullptr;  // the value a line without a name continues
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view whole = text.substr(at, end - at), rest = Trim(whole);
    const int here = line;
    auto wrong = [&](std::string_view what) {
      return Status(Code::kUsage, fmt::format("{}:{}: {}, found '{}'", name, here, what, Printable(whole, 80)),
                    "write NAME=value lines, or copy /proc/<pid>/environ");
    };
    ++line;
    if (rest.empty() || rest.starts_with('#')) {
      at = end + 1;
      continue;
    }
    for (std::string_view word : {"export ", "declare -x "})
      if (rest.starts_with(word)) rest = Trim(rest.substr(word.size()));
    const size_t equals = rest.find('=');
    const bool declared = rest.data() != Trim(whole).data();
    if (declared && IsName(rest)) {  // `declare -x NAME`: exported without a value
      at = end + 1;
      continue;
    }
    if (equals == std::string_view::npos || !IsName(rest.substr(0, equals))) {
      // `env` prints a value of several lines (a bash function, a list of hosts) as it is.
      if (last == nullptr) return wrong("expected NAME=value");
      last->append("\n").append(whole.ends_with('\r') ? whole.substr(0, whole.size() - 1) : whole);
      at = end + 1;
      continue;
    }
    const std::string key(rest.substr(0, equals));
    std::string value(rest.substr(equals + 1));
    at = end + 1;
    const bool quoted = value.starts_with('"') || value.starts_with('\'') || value.starts_with("$'");
    if (quoted) {
      size_t from = static_cast<size_t>(rest.data() - text.data()) + equals + 1;
      const size_t begin = from;
      value.clear();
      if (!TakeQuoted(text, &from, &value)) return wrong("expected a closing quote");
      line += static_cast<int>(std::count(text.begin() + begin, text.begin() + from, '\n'));
      const size_t stop = std::min(text.find('\n', from), text.size());
      const std::string_view tail = Trim(text.substr(from, stop - from));
      if (!tail.empty() && !tail.starts_with('#')) return wrong("expected nothing behind the closing quote");
      at = stop + 1;
    }
    std::string& stored = env.insert_or_assign(key, value).first->second;
    last = quoted ? nullptr : &stored;
  }
  return env;
}

}  // namespace lockstep
