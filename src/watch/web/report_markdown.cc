// The report as Markdown, with the loss as a plot in text.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/version.h"
#include "watch/plot.h"
#include "watch/web/report.h"

namespace lockstep::watch {
namespace {

// A cell of a table: one line, and nothing in it is markup.
std::string Cell(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\n' || c == '\r') {
      out += ' ';
    } else if (static_cast<unsigned char>(c) < ' ') {
      continue;
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      if (std::string_view("|\\`*_[]#").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

template <typename... A>
void Line(std::string* out, fmt::format_string<A...> format, A&&... values) {
  fmt::format_to(std::back_inserter(*out), format, std::forward<A>(values)...);
  *out += '\n';
}

void CurveText(const MetricSummary& metric, std::string* out) {
  std::vector<std::pair<double, double>> points;
  for (const CurvePoint& point : metric.curve.points) {
    if (std::isnan(point.mean)) continue;
    points.emplace_back(point.x, point.mean);
    if (point.high > point.mean) points.emplace_back(point.x, point.high);
  }
  const std::vector<std::string> lines = PlotText(points, {.columns = 78, .rows = 10}, /*utf8=*/true);
  if (lines.empty()) return;
  Line(out, "\n## {}\n\n```text", Cell(metric.name));
  for (const std::string& line : lines) Line(out, "{}", line);
  Line(out, "```");
}

}  // namespace

std::string ReportMarkdown(const RunReport& report, const RunReport* against) {
  std::string out;
  Line(&out, "# {}\n", Cell(report.view.name));
  if (against == nullptr) {
    Line(&out, "| figure | value |\n|---|---|");
    for (const auto& [name, value] : KeyFigures(report)) Line(&out, "| {} | {} |", name, Cell(value));
  } else {
    Line(&out, "| figure | {} | {} |\n|---|---|---|", Cell(report.view.name), Cell(against->view.name));
    for (const Difference& one : FiguresBeside(report, *against)) {
      Line(&out, "| {} | {} | {} |", one.key, Cell(one.here), Cell(one.there));
    }
  }
  const Goodput& goodput = report.goodput;
  Line(&out, "\n## Goodput\n");
  if (!goodput.ratio()) {
    Line(&out, "Unknown: the run has written no metric lines with steps.");
  } else {
    Line(&out, "{:.1f} % of {} were training that counts.\n\n| part | time | share | what it is |\n|---|---|---|---|",
         100 * *goodput.ratio(), Seconds(goodput.wall));
    for (const Goodput::Part& part : goodput.Parts()) {
      Line(&out, "| {} | {} | {:.1f} % | {} |", part.name, Seconds(part.seconds),
           goodput.wall > 0 ? 100 * part.seconds / goodput.wall : 0, part.meaning);
    }
  }
  if (!report.restarts.empty() || goodput.attempts.size() > 1) {
    Line(&out, "\n## Attempts\n\n| attempt | steps | time |\n|---|---|---|");
    for (const auto& [number, times] : goodput.attempts) {
      Line(&out, "| {} | {} | {} |", number, StepsText(goodput, times),
           times.ended > times.started && times.started > 0 ? Seconds(times.ended - times.started) : "");
    }
  }
  if (!report.restarts.empty()) {
    Line(&out, "\n## Restarts\n\n| attempt | why | cause | remedy |\n|---|---|---|---|");
    for (const RestartReport& one : report.restarts) {
      Line(&out, "| {} | {} | {} | {} |", one.attempt, Cell(one.why), Cell(one.cause), Cell(one.remedy));
    }
  }
  if (!report.view.findings.empty()) {
    Line(&out, "\n## Findings\n");
    for (const FindingView& finding : report.view.findings)
      Line(&out, "- {} ({})", Cell(finding.text), Cell(finding.evidence));
  }
  if (against != nullptr) {
    const std::vector<Difference> differences = SettingsThatDiffer(report, *against);
    Line(&out, "\n## Settings that differ\n");
    if (differences.empty()) {
      Line(&out, "None.");
    } else {
      Line(&out, "| key | {} | {} |\n|---|---|---|", Cell(report.view.name), Cell(against->view.name));
    }
    for (const Difference& one : differences) {
      Line(&out, "| {} | {} | {} |", Cell(one.key), Cell(one.here), Cell(one.there));
    }
  }
  if (const MetricSummary* loss = report.Find("loss")) CurveText(*loss, &out);
  if (!report.metrics.empty()) {
    Line(&out, "\n## Metrics\n\n| name | last | least | greatest | mean |{}\n|---|---|---|---|---|{}",
         against == nullptr ? "" : fmt::format(" last of {} |", Cell(against->view.name)),
         against == nullptr ? "" : "---|");
    for (const MetricSummary& metric : report.metrics) {
      const MetricSummary* other = against != nullptr ? against->Find(metric.name) : nullptr;
      Line(&out, "| {} | {} | {} | {} | {} |{}", Cell(metric.name), ShortNumber(metric.last), ShortNumber(metric.low),
           ShortNumber(metric.high), ShortNumber(metric.mean),
           against == nullptr ? "" : fmt::format(" {} |", other == nullptr ? "" : ShortNumber(other->last)));
    }
  }
  Line(&out, "\n## Environment\n\n| | |\n|---|---|");
  for (const auto& [name, value] : report.environment) Line(&out, "| {} | {} |", name, Cell(value));
  if (!report.settings.empty()) {
    Line(&out, "\n## Configuration\n\n| key | value |\n|---|---|");
    for (const auto& [key, value] : report.settings) Line(&out, "| {} | {} |", Cell(key), Cell(value));
  }
  Line(&out, "\nLockstep {}, {:%Y-%m-%d %H:%M} UTC", ThisBuild().version,
       fmt::gmtime(static_cast<std::time_t>(report.made)));
  return out;
}

}  // namespace lockstep::watch
