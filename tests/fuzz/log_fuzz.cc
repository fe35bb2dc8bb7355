// Arbitrary bytes as a log, cut into chunks at arbitrary line ends: the scanner must never crash or hang, stay within
// its bounds, and the judge must answer with a document that can be written.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "diagnose/diagnosis.h"
#include "diagnose/judge.h"
#include "diagnose/scanner.h"

using namespace lockstep::diagnose;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Compiled once: what is searched is the reading.
  static const std::vector<Signature> rows = *ParseSignatures(EmbeddedSignatureText(), "table");
  static const std::unique_ptr<Matcher> matcher = *CompilePatterns(rows);
  if (size < 1) return 0;
  const size_t step = data[0] * 16u + 1;
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  uint64_t lines = 0;
  for (char c : text) lines += c == '\n';
  Findings findings;
  findings.sources.push_back({.path = "fuzz"});
  Scanner scanner(*matcher, rows, &findings);
  scanner.Begin(0, 2026);
  while (!text.empty()) {
    size_t take = step < text.size() ? text.find('\n', step) : std::string_view::npos;
    take = take == std::string_view::npos ? text.size() : take + 1;
    scanner.Feed(text.substr(0, take));
    text.remove_prefix(take);
  }
  scanner.End();
  if (findings.sources[0].lines != lines) abort();
  for (const LogFinding& finding : findings.all) {
    if (finding.line == 0 || finding.line > lines + 1) abort();
  }
  const Diagnosis diagnosis = Judge(std::move(findings));
  (void)ToJson(diagnosis).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  (void)DiagnosisText(diagnosis, true, false);
  return 0;
}
