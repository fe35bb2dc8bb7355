// Lines of samples and metrics against arbitrary text: what is read can be written and read again, what the scanners of
// plain lines take means the same to the parser of any JSON, and the rules of findings cope with any numbers.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "record/metric_scan.h"
#include "record/samples.h"
#include "watch/findings.h"

using namespace lockstep;

namespace {

std::string Written(const record::NodeSample& sample) {
  std::string text;
  record::AppendSampleLine(sample, &text);
  return text;
}

std::string Written(const record::MetricLine& line) {
  std::string text;
  record::AppendMetricLine(line, &text);
  return text;
}

void CompareParsers(std::string_view line) {
  record::NodeSample sample;
  if (record::ScanSampleLine(line, &sample)) {
    const auto slow = record::ReadSample(nlohmann::json::parse(line, nullptr, false));
    if (!slow || slow->t != sample.t || Written(*slow) != Written(sample)) std::abort();
  }
  record::ScannedLine scanned;
  if (record::ScanMetricLine(line, &scanned)) {
    const auto slow = record::ParseAnyMetricLine(line), fast = record::ParseMetricLine(line);
    if (!slow || slow->t != scanned.t || fast->t != scanned.t || Written(*slow) != Written(*fast)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 16384) return 0;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  watch::Window window;
  double now = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    CompareParsers(line);
    if (const auto sample = record::ParseSampleLine(line)) {
      const std::string written = Written(*sample);
      if (written.size() > record::kLongestSampleLine || written.back() != '\n') std::abort();
      if (!record::ParseSampleLine(std::string_view(written).substr(0, written.size() - 1))) std::abort();
      window.Add(*sample);
      now = sample->t;
    }
    if (const auto metric = record::ParseMetricLine(line)) window.Add(*metric);
  }
  for (const watch::Finding& finding : watch::FindAll(window, now)) {
    if (finding.text.empty() || finding.text.find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
