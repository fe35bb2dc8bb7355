// Whole numbers written in decimal digits. Pure, any thread.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace lockstep {

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

}  // namespace lockstep
