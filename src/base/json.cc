#include "base/json.h"

#include <fmt/format.h>

#include <cmath>

#include "base/files.h"
#include "base/text.h"

namespace lockstep {
namespace {

using nlohmann::json;

std::string Position(std::string_view text, size_t offset) {
  size_t line = 1;
  size_t column = 1;
  for (size_t i = 0; i < offset && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return fmt::format("{}:{}", line, column);
}

// nlohmann's text is "[json.exception.parse_error.101] parse error at line 1, column 5: <what>"; only <what> is for
// people.
std::string Reason(std::string_view what) {
  size_t colon = what.find(": ");
  return std::string(colon == std::string_view::npos ? what : what.substr(colon + 2));
}

}  // namespace

Result<json> ParseJson(std::string_view text, const std::string& source) {
  if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    size_t offset = error.byte > 0 ? error.byte - 1 : 0;
    return Status(Code::kUsage, fmt::format("{}:{}: not valid JSON: {}", source, Position(text, offset),
                                            Printable(Reason(error.what()), 300)));
  } catch (const std::exception& error) {
    return Status(Code::kUsage, fmt::format("{}: not valid JSON: {}", source, Printable(error.what(), 300)));
  }
}

Result<std::string> BlankJsonComments(std::string_view text, const std::string& source) {
  std::string out(text);
  size_t comma = std::string::npos;  // a comma after a value, with only blanks and comments behind it so far
  char before = '\0';                // the last character that is neither blank nor comment
  for (size_t i = 0; i < out.size();) {
    char c = out[i];
    if (c == '"') {
      comma = std::string::npos;
      before = c;
      for (++i; i < out.size() && out[i] != '"' && out[i] != '\n'; ++i) {
        if (out[i] == '\\') ++i;
      }
      ++i;
    } else if (c == '/' && i + 1 < out.size() && out[i + 1] == '/') {
      while (i < out.size() && out[i] != '\n') out[i++] = ' ';
    } else if (c == '/' && i + 1 < out.size() && out[i + 1] == '*') {
      size_t end = out.find("*/", i + 2);
      if (end == std::string::npos) {
        return Status(Code::kUsage, fmt::format("{}:{}: this comment has no end", source, Position(text, i)),
                      "close it with */");
      }
      for (; i < end + 2; ++i) {
        if (out[i] != '\n') out[i] = ' ';
      }
    } else {
      bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
      if (c == ',') {
        bool after_value = before != '\0' && before != ',' && before != '[' && before != '{' && before != ':';
        comma = after_value ? i : std::string::npos;
      } else if (c == '}' || c == ']') {
        if (comma != std::string::npos) out[comma] = ' ';
        comma = std::string::npos;
      } else if (!blank) {
        comma = std::string::npos;
      }
      if (!blank) before = c;
      ++i;
    }
  }
  return out;
}

Result<json> ParseJsonWithComments(std::string_view text, const std::string& source) {
  Result<std::string> plain = BlankJsonComments(text, source);
  if (!plain.ok()) return plain.status();
  return ParseJson(*plain, source);
}

Result<json> ReadJsonFile(const std::string& path, size_t max_bytes) {
  Result<std::string> text = ReadFile(path, max_bytes);
  if (!text.ok()) return text.status();
  return ParseJson(*text, path);
}

std::string ToJsonLine(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

JsonLines ParseJsonLines(std::string_view text) {
  JsonLines result;
  for (size_t number = 1; !text.empty(); ++number) {
    size_t end = text.find('\n');
    std::string_view line = Trim(text.substr(0, end));
    bool last = end == std::string_view::npos;
    if (last) result.torn_tail = true;
    if (!line.empty()) {
      json value = json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (value.is_object()) {
        result.lines.push_back(std::move(value));
      } else {
        result.bad_lines.push_back(number);
      }
    }
    if (last) break;
    text.remove_prefix(end + 1);
  }
  return result;
}

Result<JsonLines> ReadJsonLines(const std::string& path, size_t max_bytes) {
  Result<std::string> text = ReadFile(path, max_bytes);
  if (!text.ok()) return text.status();
  return ParseJsonLines(*text);
}

std::string GetString(const json& object, std::string_view key, std::string fallback) {
  if (!object.is_object()) return fallback;
  auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : fallback;
}

double GetNumber(const json& object, std::string_view key, double fallback) {
  if (!object.is_object()) return fallback;
  auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : fallback;
}

int64_t GetInt(const json& object, std::string_view key, int64_t fallback) {
  if (!object.is_object()) return fallback;
  auto it = object.find(key);
  if (it == object.end() || !it->is_number()) return fallback;
  if (it->is_number_integer()) return it->get<int64_t>();
  double value = it->get<double>();
  // Converting a double outside the range of int64 is undefined.
  return std::trunc(value) == value && std::abs(value) < 9e18 ? static_cast<int64_t>(value) : fallback;
}

bool GetBool(const json& object, std::string_view key, bool fallback) {
  if (!object.is_object()) return fallback;
  auto it = object.find(key);
  return it != object.end() && it->is_boolean() ? it->get<bool>() : fallback;
}

}  // namespace lockstep
