// Metric lines without a copy of their names: ten times as fast as a parser of any JSON, for files of gigabytes and for
// who follows a thousand ranks. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "record/metrics.h"

namespace lockstep::record {

// A MetricLine whose names are part of the text that was read.
struct ScannedLine {
  double t = 0;
  int attempt = 0;
  int rank = 0;
  std::optional<uint64_t> step;
  std::vector<std::pair<std::string_view, double>> scalars;

  void Assign(const MetricLine& line);
};

// Lines as Lockstep and most programs write them. False: anything unusual; the line's content is then undefined.
bool ScanMetricLine(std::string_view text, ScannedLine* line);

// Any line, by a parser of any JSON.
std::optional<MetricLine> ParseAnyMetricLine(std::string_view text);

// Either way; false when it is no metric line. `parsed` keeps names that are not part of the text.
bool ReadMetricLine(std::string_view text, ScannedLine* line, MetricLine* parsed);

}  // namespace lockstep::record
