// What there is to say of a run when it is over (or until now), and the same as HTML, Markdown and JSON
// (docs/report.md). Reads the run directory; writes its pyramid. The forms are pure functions. One thread.
//
//   Result<RunReport> report = MakeReport(std::move(watch));
//   std::string html = ReportHtml(*report, nullptr);
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "watch/model.h"
#include "watch/web/goodput.h"
#include "watch/web/pyramid.h"

namespace lockstep::watch {

struct MetricSummary {
  std::string name;
  double last = 0, low = 0, high = 0, mean = 0;
  uint64_t values = 0, not_finite = 0, low_step = 0, high_step = 0;  // the steps: of the bucket that has the value
  Curve curve;
};

struct RestartReport {
  double t = 0;
  int attempt = -1;  // that begins
  std::string why, cause, remedy;
};

struct RunReport {
  RunView view;
  double made = 0;                              // seconds since 1970
  nlohmann::json identity;                      // run.json
  nlohmann::json end;                           // report.json
  std::string config;                           // text, as far as it goes
  std::map<std::string, std::string> settings;  // train.steps -> 1000
  std::vector<std::pair<std::string, std::string>> environment;
  Goodput goodput;
  std::vector<RestartReport> restarts;
  std::vector<MetricSummary> metrics;  // of the leading rank, the important ones first
  std::string picture;                 // the bytes of the last one; empty: none
  std::string picture_name;

  const MetricSummary* Find(std::string_view name) const;
};

Result<RunReport> MakeReport(std::unique_ptr<Watch> watch);

// What two runs differ in: (key, value here, value there), absent ones empty.
struct Difference {
  std::string key, here, there;
};
std::vector<Difference> SettingsThatDiffer(const RunReport& here, const RunReport& there);
// The key figures of both, also those that only one of them has.
std::vector<Difference> FiguresBeside(const RunReport& here, const RunReport& there);

// `against` may be null.
std::string ReportHtml(const RunReport& report, const RunReport* against);
std::string ReportMarkdown(const RunReport& report, const RunReport* against);
nlohmann::json ReportJson(const RunReport& report, const RunReport* against);

// Numbers and rows that the forms share.
std::string ShortNumber(double value);
std::string Seconds(double seconds);
std::string StepsText(const Goodput& goodput, const AttemptTimes& attempt);  // "1 to 50"
std::vector<std::pair<std::string, std::string>> KeyFigures(const RunReport& report);

}  // namespace lockstep::watch
