#include "record/metric_scan.h"

#include "record/json_scan.h"

namespace lockstep::record {
namespace {

bool ScanScalars(JsonScanner* in, ScannedLine* line) {
  if (!in->Take('{')) return false;
  if (in->Take('}')) return true;
  do {
    std::string_view name;
    double value = 0;
    if (!in->Text(&name) || !in->Take(':') || !in->Value(&value)) return false;
    line->scalars.emplace_back(name, value);
  } while (in->Take(','));
  return in->Take('}');
}

bool ScanMember(JsonScanner* in, ScannedLine* line) {
  std::string_view key;
  if (!in->Text(&key) || !in->Take(':')) return false;
  if (key == "t") return in->Number(&line->t);
  if (key == "attempt") return in->Count(&line->attempt);
  if (key == "rank") return in->Count(&line->rank);
  if (key == "step") return in->Count(&line->step.emplace());
  return key == "scalars" && line->scalars.empty() && ScanScalars(in, line);
}

}  // namespace

void ScannedLine::Assign(const MetricLine& line) {
  t = line.t;
  attempt = line.attempt;
  rank = line.rank;
  step = line.step;
  scalars.assign(line.scalars.begin(), line.scalars.end());
}

bool ScanMetricLine(std::string_view text, ScannedLine* line) {
  line->t = 0;
  line->attempt = line->rank = 0;
  line->step.reset();
  line->scalars.clear();
  JsonScanner in(text);
  if (!in.Take('{')) return false;
  do {
    if (!ScanMember(&in, line)) return false;
  } while (in.Take(','));
  return in.Take('}') && in.AtEnd();
}

bool ReadMetricLine(std::string_view text, ScannedLine* line, MetricLine* parsed) {
  if (ScanMetricLine(text, line)) return true;
  std::optional<MetricLine> slow = ParseAnyMetricLine(text);
  if (!slow) return false;
  *parsed = std::move(*slow);
  line->Assign(*parsed);
  return true;
}

}  // namespace lockstep::record
