#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <optional>

#include "base/digits.h"
#include "base/text.h"

namespace lockstep {
namespace {

using Wide = unsigned __int128;

struct Unit {
  std::string_view name;
  uint64_t factor;
};

constexpr std::array<Unit, 11> kSizeUnits = {{
    {"PiB", 1ull << 50},
    {"PB", 1000000000000000ull},
    {"TiB", 1ull << 40},
    {"TB", 1000000000000ull},
    {"GiB", 1ull << 30},
    {"GB", 1000000000ull},
    {"MiB", 1ull << 20},
    {"MB", 1000000ull},
    {"KiB", 1ull << 10},
    {"KB", 1000ull},
    {"B", 1ull},
}};

constexpr std::array<Unit, 5> kTimeUnits = {{{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}}};

// Digits with an optional fraction, taken apart so that multiplying by a unit stays exact.
struct Decimal {
  uint64_t digits = 0;  // all digits without the point
  uint64_t scale = 1;   // 10^(digits after the point)
};

// Reads a number at the front of text and drops it. Nothing: no number, or more digits than can be exact.
std::optional<Decimal> TakeDecimal(std::string_view* text) {
  Decimal number;
  bool any = false;
  bool point = false;
  size_t i = 0;
  for (; i < text->size(); ++i) {
    char c = (*text)[i];
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (!IsDigit(c)) break;
    any = true;
    Wide next = Wide(number.digits) * 10 + (c - '0');
    if (next > std::numeric_limits<uint64_t>::max()) return std::nullopt;
    if (point) {
      if (number.scale > std::numeric_limits<uint64_t>::max() / 10) return std::nullopt;
      number.scale *= 10;
    }
    number.digits = static_cast<uint64_t>(next);
  }
  if (!any || (*text)[i - 1] == '.') return std::nullopt;
  text->remove_prefix(i);
  return number;
}

Status BadSize(std::string_view text, std::string_view why) {
  return Status(Code::kUsage,
                fmt::format("expected a size such as 25MiB, 100MB or 4096 (bytes), found '{}'{}{}", Printable(text),
                            why.empty() ? "" : ": ", why),
                "write a number and one of B KB MB GB TB (thousands) or KiB MiB GiB TiB (1024s)");
}

Status BadDuration(std::string_view text, std::string_view why) {
  return Status(Code::kUsage,
                fmt::format("expected a duration such as 30s, 5m, 1h30m or 250ms, found '{}'{}{}", Printable(text),
                            why.empty() ? "" : ": ", why),
                "write numbers with the units d h m s ms, largest first");
}

}  // namespace

Result<uint64_t> ParseSize(std::string_view text) {
  std::string_view rest = Trim(text);
  if (!rest.empty() && rest.front() == '-') return BadSize(text, "a size cannot be negative");
  std::optional<Decimal> number = TakeDecimal(&rest);
  if (!number) return BadSize(text, "");
  // "5e8": people write large counts so. Only whole bytes, so the exponent must cover the fraction.
  if (rest.size() >= 2 && (rest[0] == 'e' || rest[0] == 'E') && (IsDigit(rest[1]) || rest[1] == '+')) {
    rest.remove_prefix(rest[1] == '+' ? 2 : 1);
    int exponent = 0;
    if (rest.empty() || rest.size() > 2) return BadSize(text, "");
    for (char c : rest) {
      if (!IsDigit(c)) return BadSize(text, "");
      exponent = exponent * 10 + (c - '0');
    }
    Wide value = number->digits;
    for (; exponent > 0; --exponent) {
      value *= 10;
      if (value / number->scale > std::numeric_limits<uint64_t>::max()) return BadSize(text, "too large");
    }
    if (value % number->scale != 0) return BadSize(text, "not a whole number of bytes");
    return static_cast<uint64_t>(value / number->scale);
  }
  rest = Trim(rest);
  if (rest.empty() || rest == "B") {
    if (number->digits % number->scale != 0) return BadSize(text, "not a whole number of bytes");
    return number->digits / number->scale;
  }
  for (const Unit& unit : kSizeUnits) {
    if (rest != unit.name) continue;
    Wide bytes = Wide(number->digits) * unit.factor / number->scale;
    if (bytes > std::numeric_limits<uint64_t>::max()) return BadSize(text, "too large");
    return static_cast<uint64_t>(bytes);
  }
  if (rest.size() == 1 && std::string_view("KMGTPkmgtp").find(rest[0]) != std::string_view::npos) {
    char upper = static_cast<char>(rest[0] & ~0x20);
    return BadSize(text, fmt::format("'{}' is ambiguous, write {}iB (1024s) or {}B (thousands)", rest, upper, upper));
  }
  std::vector<std::string> names;
  for (const Unit& unit : kSizeUnits) names.emplace_back(unit.name);
  return BadSize(text, fmt::format("unknown unit '{}'{}", Printable(rest), DidYouMean(rest, names)));
}

Result<std::chrono::milliseconds> ParseDuration(std::string_view text, BareNumber bare) {
  std::string_view rest = Trim(text);
  if (!rest.empty() && rest.front() == '-') return BadDuration(text, "a duration cannot be negative");
  if (rest.empty()) return BadDuration(text, "");
  Wide total = 0;
  size_t next_unit = 0;  // units must come in falling order
  while (!rest.empty()) {
    std::optional<Decimal> number = TakeDecimal(&rest);
    if (!number) return BadDuration(text, "");
    size_t length = 0;
    while (length < rest.size() && !IsDigit(rest[length]) && rest[length] != '.') ++length;
    std::string_view name = rest.substr(0, length);
    uint64_t factor = 0;
    if (name.empty()) {
      if (total != 0 || next_unit != 0 || !rest.empty()) return BadDuration(text, "");
      if (bare == BareNumber::kRefuse) {
        return BadDuration(text, fmt::format("the unit is missing, write {}s for seconds", Trim(text)));
      }
      factor = 1000;
    } else {
      size_t found = next_unit;
      while (found < kTimeUnits.size() && kTimeUnits[found].name != name) ++found;
      if (found == kTimeUnits.size()) {
        bool known = false;
        for (const Unit& unit : kTimeUnits) known = known || unit.name == name;
        return BadDuration(text, known ? fmt::format("'{}' out of order or twice", name)
                                       : fmt::format("unknown unit '{}'", Printable(name)));
      }
      factor = kTimeUnits[found].factor;
      next_unit = found + 1;
    }
    Wide value = Wide(number->digits) * factor;
    if (value % number->scale != 0) return BadDuration(text, "finer than a millisecond");
    total += value / number->scale;
    if (total > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return BadDuration(text, "too long");
    rest.remove_prefix(length);
  }
  return std::chrono::milliseconds(static_cast<int64_t>(total));
}

std::string FormatSize(uint64_t bytes) {
  for (const Unit& unit : kSizeUnits) {
    if (unit.name.size() == 3 && bytes >= unit.factor) {
      return fmt::format("{:.1f} {}", static_cast<double>(bytes) / static_cast<double>(unit.factor), unit.name);
    }
  }
  return fmt::format("{} B", bytes);
}

std::string FormatDuration(std::chrono::milliseconds duration) {
  if (duration.count() < 0) return "-" + FormatDuration(std::chrono::milliseconds(0) - duration);
  int64_t ms = duration.count();
  if (ms < 1000) return fmt::format("{}ms", ms);
  // 59.95 s and more would print as "60.0s".
  if (ms < 59950) return fmt::format("{:.1f}s", static_cast<double>(ms) / 1000);
  int64_t s = (ms + 500) / 1000;
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string ExactSize(uint64_t bytes) {
  for (const Unit& unit : kSizeUnits) {
    if (bytes != 0 && bytes % unit.factor == 0) return fmt::format("{}{}", bytes / unit.factor, unit.name);
  }
  return "0B";
}

std::string ExactDuration(std::chrono::milliseconds duration) {
  uint64_t left = static_cast<uint64_t>(std::max<int64_t>(0, duration.count()));
  if (left == 0) return "0s";
  std::string text;
  for (const Unit& unit : kTimeUnits) {
    if (left >= unit.factor) text += fmt::format("{}{}", left / unit.factor, unit.name);
    left %= unit.factor;
  }
  return text;
}

}  // namespace lockstep
