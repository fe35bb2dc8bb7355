// A plan as text, JSON and a picture. Pure, any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/choices.h"
#include "plan/scale.h"

namespace lockstep::plan {

// All that is said.
struct Plan {
  Workload workload;
  Setting base;
  Machine machine;
  std::vector<Line> lines;
  Advice advice;
  Line configured;  // as the configuration has it
  std::vector<Gain> gains;
  std::vector<ScalePoint> scale;  // empty: not asked for
  Reliability reliability;
  std::vector<std::string> notes;
};

std::string ToText(const Plan& plan);
nlohmann::json ToJson(const Plan& plan);
// Stacked bars of the device's memory, one for each choice, as SVG.
std::string Picture(const Plan& plan);

}  // namespace lockstep::plan
