// Numbers in the lines of a run directory: JSON has no word for not-a-number and the infinities, so they are the
// strings "nan", "inf" and "-inf". Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace lockstep::record {

void AppendNumber(double value, std::string* out);
nlohmann::json NumberToJson(double value);

// Nothing when it is neither a number nor one of the three strings.
std::optional<double> ReadNumber(const nlohmann::json& value);

}  // namespace lockstep::record
