// The report as one HTML file: curves as SVG, no script, nothing from elsewhere.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/text.h"
#include "base/version.h"
#include "watch/web/http.h"
#include "watch/web/report.h"

namespace lockstep {
extern const unsigned char report_css[];  // NOLINT(readability-identifier-naming)
extern const size_t report_css_size;      // NOLINT(readability-identifier-naming)
}  // namespace lockstep

namespace lockstep::watch {
namespace {

constexpr double kWidth = 640, kHeight = 220, kLeft = 62, kRight = 10, kTop = 10, kBottom = 26;
constexpr size_t kMostCharts = 24;

template <typename... A>
void Put(std::string* out, fmt::format_string<A...> format, A&&... values) {
  fmt::format_to(std::back_inserter(*out), format, std::forward<A>(values)...);
}

std::string E(std::string_view text) { return HtmlEscaped(text); }

std::vector<double> NiceTicks(double low, double high, int count) {
  const double step = (high - low) / count, power = std::pow(10, std::floor(std::log10(step)));
  double nice = 10 * power;
  for (double m : {1.0, 2.0, 5.0}) {
    if (m * power >= step) {
      nice = m * power;
      break;
    }
  }
  std::vector<double> out;
  for (double v = std::ceil(low / nice) * nice; v <= high + nice * 1e-9 && out.size() < 20; v += nice) {
    out.push_back(std::fabs(v) < nice * 1e-9 ? 0 : v);
  }
  return out;
}

// One or two curves of the same name.
void SvgChart(const std::vector<const MetricSummary*>& lines, std::string* out) {
  double low = HUGE_VAL, high = -HUGE_VAL, from = HUGE_VAL, to = -HUGE_VAL;
  for (const MetricSummary* line : lines) {
    low = std::min(low, line->low);
    high = std::max(high, line->high);
    from = std::min(from, line->curve.first_x);
    to = std::max(to, line->curve.last_x);
  }
  if (!(low <= high)) return;
  // A loss falls over orders of magnitude; elsewhere the plain scale says more.
  const bool log = lines[0]->name.find("loss") != std::string::npos && low > 0 && high / low > 20;
  const auto scale = [&](double v) { return log ? std::log10(v) : v; };
  if (low == high) {
    const double pad = low == 0 ? 1 : std::fabs(low) * 0.1;
    low -= pad;
    high += pad;
  }
  if (from == to) to = from + 1;
  const double bottom = scale(low), top = scale(high);
  const auto px = [&](double x) { return kLeft + (x - from) / (to - from) * (kWidth - kLeft - kRight); };
  const auto py = [&](double v) {
    return kTop + (1 - (scale(v) - bottom) / (top - bottom)) * (kHeight - kTop - kBottom);
  };
  Put(out, "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", kWidth, kHeight, E(lines[0]->name));
  std::vector<double> marks;
  if (log) {
    for (double v = std::pow(10, std::ceil(bottom)); v <= high; v *= 10) marks.push_back(v);
  }
  if (marks.size() < 2) marks = log ? std::vector<double>{low, std::sqrt(low * high), high} : NiceTicks(low, high, 4);
  for (double v : marks) {
    Put(out, "<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/><text x=\"{:.1f}\" y=\"{:.1f}\" class=\"y\">{}</text>",
        kLeft, py(v), kWidth - kRight, kLeft - 6, py(v) + 4, ShortNumber(v));
  }
  for (double v : NiceTicks(from, to, 6)) {
    Put(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"x\">{}</text>", px(v), kHeight - 8, fmt::format("{:g}", v));
  }
  int number = 0;
  for (const MetricSummary* line : lines) {
    std::string range, mean;
    bool pen = false;
    for (const CurvePoint& point : line->curve.points) {
      if (std::isnan(point.mean) || (log && !(point.low > 0))) {
        pen = false;
        continue;
      }
      if (point.low != point.high) Put(&range, "M{:.1f} {:.1f}V{:.1f}", px(point.x), py(point.low), py(point.high));
      Put(&mean, "{}{:.1f} {:.1f}", pen ? "L" : "M", px(point.x), py(point.mean));
      pen = true;
    }
    Put(out, "<path class=\"range s{}\" d=\"{}\"/><path class=\"line s{}\" d=\"{}\"/>", number, range, number, mean);
    for (const CurvePoint& point : line->curve.points) {
      if (point.not_finite == 0) continue;
      Put(out, "<path class=\"nan\" d=\"M{0:.1f} {1:.1f}h10l-5 -8z\"><title>nan or infinite</title></path>",
          px(point.x) - 5, kHeight - kBottom);
    }
    ++number;
  }
  *out += "</svg>";
}

void Rows(const std::vector<std::pair<std::string, std::string>>& rows, std::string* out) {
  *out += "<table class=\"rows\">";
  for (const auto& [name, value] : rows) Put(out, "<tr><th>{}</th><td>{}</td></tr>", E(name), E(value));
  *out += "</table>";
}

void GoodputSection(const RunReport& report, const RunReport* against, std::string* out) {
  const Goodput& goodput = report.goodput;
  *out += "<section><h2>Goodput</h2>";
  if (!goodput.ratio()) {
    *out += "<p>Unknown: the run has written no metric lines with steps.</p></section>";
    return;
  }
  Put(out, "<p><b class=\"figure\">{:.1f} %</b> of {} were training that counts: {} steps.</p><div class=\"bar\">",
      100 * *goodput.ratio(), E(Seconds(goodput.wall)), goodput.steps);
  int part_number = 0;
  for (const Goodput::Part& part : goodput.Parts()) {
    Put(out, "<i class=\"p{}\" style=\"width:{:.3f}%\" title=\"{}\"></i>", part_number++,
        goodput.wall > 0 ? 100 * part.seconds / goodput.wall : 0, E(part.name));
  }
  *out += "</div><table><tr><th></th><th>part</th><th>time</th><th>share</th>";
  if (against != nullptr) Put(out, "<th>{}</th>", E(against->view.name));
  *out += "<th class=\"text\">what it is</th></tr>";
  const std::vector<Goodput::Part> parts = goodput.Parts();
  for (size_t i = 0; i < parts.size(); ++i) {
    Put(out, "<tr><td><i class=\"dot p{}\"></i></td><th>{}</th><td>{}</td><td>{:.1f} %</td>", i, parts[i].name,
        E(Seconds(parts[i].seconds)), goodput.wall > 0 ? 100 * parts[i].seconds / goodput.wall : 0);
    if (against != nullptr) {
      const double wall = against->goodput.wall;
      Put(out, "<td>{:.1f} %</td>", wall > 0 ? 100 * against->goodput.Parts()[i].seconds / wall : 0);
    }
    Put(out, "<td class=\"text soft\">{}</td></tr>", parts[i].meaning);
  }
  *out += "</table></section>";
}

void RestartSection(const RunReport& report, std::string* out) {
  if (report.restarts.empty() && report.goodput.attempts.size() < 2) return;
  *out +=
      "<section><h2>Attempts and restarts</h2><table><tr><th>attempt</th><th>steps</th><th>time</th><th "
      "class=\"text\">why it was started</th></tr>";
  for (const auto& [number, times] : report.goodput.attempts) {
    std::string why = number == 0 ? "" : "launched again";
    for (const RestartReport& one : report.restarts) {
      if (one.attempt == number)
        why = one.why + (one.cause.empty() ? "" : "; cause: " + one.cause) +
              (one.remedy.empty() ? "" : "; remedy: " + one.remedy);
    }
    Put(out, "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"text\">{}</td></tr>", number,
        StepsText(report.goodput, times),
        times.ended > times.started && times.started > 0 ? Seconds(times.ended - times.started) : "", E(why));
  }
  *out += "</table>";
  for (const RestartReport& one : report.restarts) {
    if (one.attempt >= 0) continue;
    Put(out, "<p>{}{}</p>", E(one.why), one.cause.empty() ? "" : E("; cause: " + one.cause));
  }
  *out += "</section>";
}

void Comparison(const RunReport& report, const RunReport& against, std::string* out) {
  Put(out,
      "<section><h2>Against {}</h2><table class=\"beside\"><tr><th></th><th><i class=\"dot c0\"></i>{}</th><th><i "
      "class=\"dot "
      "c1\"></i>{}</th></tr>",
      E(against.view.name), E(report.view.name), E(against.view.name));
  for (const Difference& one : FiguresBeside(report, against)) {
    Put(out, "<tr><th>{}</th><td>{}</td><td>{}</td></tr>", E(one.key), E(one.here), E(one.there));
  }
  *out += "</table></section>";
}

void Differences(const RunReport& report, const RunReport& against, std::string* out) {
  *out += "<section><h2>Settings that differ</h2>";
  const std::vector<Difference> differences = SettingsThatDiffer(report, against);
  if (differences.empty()) {
    *out += "<p>None.</p></section>";
    return;
  }
  Put(out, "<table class=\"beside\"><tr><th></th><th>{}</th><th>{}</th></tr>", E(report.view.name),
      E(against.view.name));
  for (const Difference& one : differences) {
    Put(out, "<tr><th>{}</th><td>{}</td><td>{}</td></tr>", E(one.key), one.here.empty() ? "absent" : E(one.here),
        one.there.empty() ? "absent" : E(one.there));
  }
  *out += "</table></section>";
}

std::string Base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](size_t k) { return i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u; };
    const unsigned value = at(0) << 16 | at(1) << 8 | at(2);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : kDigits[value >> (18 - 6 * k) & 63];
  }
  return out;
}

}  // namespace

std::string ReportHtml(const RunReport& report, const RunReport* against) {
  const std::string name = E(report.view.name);
  std::string out;
  Put(&out,
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, "
      "initial-scale=1\"><meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; "
      "img-src data:\"><title>{} · Lockstep report</title><style>{}</style></head><body>\n",
      name, std::string_view(reinterpret_cast<const char*>(report_css), report_css_size));
  Put(&out, "<header><h1>{}</h1><span class=\"badge {}\">{}</span></header>", name, E(report.view.state),
      E(report.view.state));
  if (!report.view.reason.empty()) Put(&out, "<p class=\"lead\">{}</p>", E(report.view.reason));
  out += "<div class=\"columns\"><section><h2>Key figures</h2>";
  Rows(KeyFigures(report), &out);
  out += "</section>";
  GoodputSection(report, against, &out);
  out += "</div>";
  RestartSection(report, &out);
  if (!report.view.findings.empty()) {
    out += "<section><h2>Findings</h2>";
    for (const FindingView& finding : report.view.findings)
      Put(&out, "<p><b>{}</b><br><span class=\"soft\">{}</span></p>", E(finding.text), E(finding.evidence));
    out += "</section>";
  }
  if (against != nullptr) Comparison(report, *against, &out);
  out += "<section><h2>Curves</h2><div class=\"charts\">";
  size_t charts = 0;
  std::vector<std::string> constant;
  for (const MetricSummary& metric : report.metrics) {
    std::vector<const MetricSummary*> lines = {&metric};
    if (const MetricSummary* other = against != nullptr ? against->Find(metric.name) : nullptr) lines.push_back(other);
    if (metric.name.starts_with("rank/") && lines.size() == 1 && metric.low == metric.high && metric.not_finite == 0) {
      constant.push_back(metric.name + " " + ShortNumber(metric.low));
      continue;
    }
    if (++charts > kMostCharts) continue;
    Put(&out, "<figure><figcaption>{} <span>{}</span></figcaption>", E(metric.name), ShortNumber(metric.last));
    SvgChart(lines, &out);
    out += "</figure>";
  }
  if (report.metrics.empty()) out += "<p>There are no metric lines.</p>";
  out += "</div>";
  if (!constant.empty()) Put(&out, "<p class=\"soft\">The same all the time: {}</p>", E(Join(constant, ", ")));
  out += "</section>";
  if (!report.picture.empty()) {
    Put(&out, "<section><h2>{}</h2><img alt=\"{}\" src=\"data:image/png;base64,{}\"></section>", E(report.picture_name),
        E(report.picture_name), Base64(report.picture));
  }
  if (against != nullptr) Differences(report, *against, &out);
  out += "<section><h2>Environment</h2>";
  Rows(report.environment, &out);
  Put(&out, "</section><section><h2>Configuration</h2>{}</section>",
      report.config.empty() ? "<p>None was kept.</p>"
                            : "<details><summary>" + std::to_string(report.settings.size()) + " keys</summary><pre>" +
                                  E(report.config) + "</pre></details>");
  Put(&out, "<footer>Lockstep {}, {:%Y-%m-%d %H:%M} UTC</footer></body></html>\n", ThisBuild().version,
      fmt::gmtime(static_cast<std::time_t>(report.made)));
  return out;
}

}  // namespace lockstep::watch
