#include "record/json_number.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <limits>

namespace lockstep::record {

void AppendNumber(double value, std::string* out) {
  if (std::isnan(value)) {
    out->append("\"nan\"");
  } else if (std::isinf(value)) {
    out->append(value > 0 ? "\"inf\"" : "\"-inf\"");
  } else {
    fmt::format_to(std::back_inserter(*out), "{}", value);
  }
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
