// What is read back of trackers and profilers, against arbitrary bytes: fragments of W&B runs and Chrome traces. They
// must never crash or hang, and what they report must be consistent.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "record/trace.h"
#include "track/wandb_records.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || size > 65536) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    const track::WandbFragment fragment = track::ReadWandbFragment(bytes);
    if (fragment.whole > bytes.size()) abort();
    return 0;
  }
  std::istringstream in{std::string(bytes)};
  const Result<record::TraceSummary> summary = record::SummariseTrace(in, "trace", 0);
  if (!summary.ok()) return 0;
  if (summary->steps == 0 || summary->collective_exposed > summary->collective + 1e-6 * std::abs(summary->collective))
    abort();
  (void)record::ProfileText({record::TraceSummary::FromJson(summary->ToJson())});
  return 0;
}
