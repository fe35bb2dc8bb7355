// The reader of HJSON, and DeepSpeed's keys behind it, against arbitrary text: they must never crash or hang, and what
// they report must be JSON.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "foreign/deepspeed.h"
#include "foreign/hjson.h"

using namespace lockstep::foreign;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || size > 8192) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (!ReadHjson(text, "file").ok()) return 0;
  DeepSpeedContext context;
  context.ranks = data[0] % 8;
  context.micro_batch = data[0] / 8 % 4;
  if (data[0] >= 128) context.hidden_size = 3584;
  const lockstep::Result<DeepSpeedReport> report = TranslateDeepSpeed(text, "file", context);
  if (!report.ok()) return 0;
  (void)report->Check();
  (void)report->Yaml();
  if (!nlohmann::json::accept(report->Json())) abort();
  return 0;
}
