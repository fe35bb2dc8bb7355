// CSV files of metrics, as the CSVLogger of Lightning and of Keras, ultralytics and `track.csv` write them: a heading
// that names a step or an epoch, then rows. A row becomes a line of "name=value", which is read like any other progress
// line (progress.h). A small value, one thread.
//
//   MetricCsv csv;
//   csv.Take("epoch,step,train_loss");  // "": the heading
//   csv.Take("0,49,2.1");               // "step=49, epoch=0, train_loss=2.1"
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::record {

class MetricCsv {
 public:
  // Nothing: the line is no heading and no row of the last one.
  std::optional<std::string> Take(std::string_view line);

 private:
  bool TakeHeading(std::string_view line);

  char separator_ = ',';
  std::vector<std::string> columns_;  // empty: no heading was seen
};

}  // namespace lockstep::record
