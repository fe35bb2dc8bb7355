// Where the metric stream ends: one file format each. The writer thread of Metrics owns its sinks and is the only one
// to call them. A sink collects and writes on Flush, or earlier when it has much; what a disk refuses is tried again
// within a fixed amount of memory, then dropped and counted. It never throws and never stops training.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "record/metrics.h"
#include "track/metrics.h"

namespace lockstep::track {

class Sink {
 public:
  virtual ~Sink() = default;
  // line.step is set.
  virtual void Scalars(const record::MetricLine& line) = 0;
  virtual void Rewind(double /*t*/, uint64_t /*step*/) {}
  virtual void Text(double /*t*/, uint64_t /*step*/, std::string_view /*tag*/, std::string_view /*markdown*/) {}
  virtual void Image(double /*t*/, uint64_t /*step*/, std::string_view /*tag*/, std::string_view /*png*/, int /*width*/,
                     int /*height*/) {}
  // An animated GIF.
  virtual void Video(double /*t*/, uint64_t /*step*/, std::string_view /*tag*/, std::string_view /*gif*/, int /*width*/,
                     int /*height*/) {}
  virtual void Histogram(double /*t*/, uint64_t /*step*/, std::string_view /*tag*/, const HistogramData& /*data*/) {}
  virtual void HParams(double /*t*/, const HParamMap& /*values*/) {}
  // The training is over; only Flush follows.
  virtual void Finish(double /*t*/, const StreamEnd& /*end*/) {}
  virtual Status Flush() = 0;
};

// metrics/rank-<r>.jsonl.
Result<std::unique_ptr<Sink>> OpenJsonlSink(const std::string& path);

// metrics.csv: one row for each value. Rows of steps after `first_step` belong to attempts that are repeated, and go.
Result<std::unique_ptr<Sink>> OpenCsvSink(const std::string& path, uint64_t first_step);

// A new event file in the folder, after those that are there already.
Result<std::unique_ptr<Sink>> OpenTensorBoardSink(const std::string& dir, int attempt);

}  // namespace lockstep::track
