// Arbitrary bytes as a table of signatures: accepted or refused with a reason, never a crash; what is accepted has its
// needed fields.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "diagnose/signatures.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto rows = lockstep::diagnose::ParseSignatures({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!rows.ok()) {
    if (rows.status().message().empty()) abort();
    return 0;
  }
  for (const auto& row : *rows) {
    if (row.id.empty() || row.regex.empty() || row.cause.empty() || row.weight < 0 || row.weight > 9) abort();
  }
  return 0;
}
