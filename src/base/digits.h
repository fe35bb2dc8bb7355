// Whole numbers written in decimal digits. Numbers with a fraction and hexadecimal ones have a syntax of their own, and
// are read where they occur. Pure, any thread.
#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace lockstep {

inline bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// One digit or more and nothing else: no sign, no blank.
inline bool IsDigits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// The number such a text writes, where it fits.
template <typename Number = int>
std::optional<Number> ParseDigits(std::string_view text) {
  if (!IsDigits(text)) return std::nullopt;
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional<Number>(value) : std::nullopt;
}

// The number of the digits a text begins with; the text is moved behind them.
template <typename Number = int>
std::optional<Number> TakeDigits(std::string_view* text) {
  const size_t size = std::min(text->find_first_not_of("0123456789"), text->size());
  const std::optional<Number> value = ParseDigits<Number>(text->substr(0, size));
  if (value) text->remove_prefix(size);
  return value;
}

// The same where what follows does not matter: "12.4" is 12.
template <typename Number = int>
std::optional<Number> LeadingDigits(std::string_view text) {
  return TakeDigits<Number>(&text);
}

// Digits that may have a minus before them: an exit code, the NUMA node of a device.
template <typename Number = int>
std::optional<Number> ParseInteger(std::string_view text) {
  if (!text.starts_with('-')) return ParseDigits<Number>(text);
  const std::optional<Number> value = ParseDigits<Number>(text.substr(1));
  return value ? std::optional<Number>(-*value) : std::nullopt;
}

}  // namespace lockstep
