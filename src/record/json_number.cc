#include "record/json_number.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <limits>

namespace lockstep::record {

namespace {

// Null where JSON has a number for it.
const char* WordFor(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return nullptr;
}

}  // namespace

void AppendNumber(double value, std::string* out) {
  if (const char* word = WordFor(value)) {
    fmt::format_to(std::back_inserter(*out), "\"{}\"", word);
  } else {
    fmt::format_to(std::back_inserter(*out), "{}", value);
  }
}

nlohmann::json NumberToJson(double value) {
  if (const char* word = WordFor(value)) return word;
  return value;
}

std::optional<double> ReadNumber(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const std::string& text = value.get_ref<const std::string&>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

}  // namespace lockstep::record
