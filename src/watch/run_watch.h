// A run directory, read as its ranks and launchers write it. See model.h.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "record/metrics.h"
#include "record/reader.h"
#include "record/samples.h"
#include "watch/curve_reader.h"
#include "watch/events.h"
#include "watch/log_progress.h"
#include "watch/model.h"
#include "watch/node_samples.h"

namespace lockstep::watch {

class RunWatch final : public Watch {
 public:
  explicit RunWatch(std::string path);

  void Poll(double now) override;
  bool MayHaveEnded() const override;
  LogPlace LogOf(int rank) const override;

 private:
  struct RankLog {
    int rank = 0;
    std::unique_ptr<LogProgress> progress;
  };

  // False: the directory has gone.
  bool ReadState();
  void ReadMetrics();
  void Take(int number, const record::ScannedLine& line);
  void ReadCurve();
  void ListLogs();
  void ReadLogs(double now);
  void ReadSamples();
  void ReadPaces();
  void ReadTotal();
  void FindIn(double now);
  void CorrectClocks(double now);

  std::string state_files_;  // what run.json, events, report and lock looked like when they were last read
  record::RunSummary summary_;
  std::string metric_folder_;  // likewise, of metrics/
  std::map<int, record::MetricFollower> files_;
  std::optional<CurveReader> history_;
  int curve_attempt_ = 0;
  std::string log_folders_;
  std::vector<record::LogFile> log_files_;
  std::map<std::string, RankLog> logs_;
  int log_attempt_ = -1;
  EventReader events_;
  record::SampleReader samples_;
  NodeSamples nodes_;
  bool paces_read_ = false;
  bool total_known_ = false;
  std::optional<uint64_t> log_total_;
};

}  // namespace lockstep::watch
