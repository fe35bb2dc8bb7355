// The safetensors header against arbitrary bytes: it must never crash or accept ranges that lie outside the file, and
// what it accepts must survive being laid out again.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/safetensors.h"

using namespace lockstep;

// The first two bytes say how many data bytes follow the header, the rest is the header.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  uint16_t data_bytes = 0;
  std::memcpy(&data_bytes, data, 2);
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const uint64_t file_bytes = 8 + text.size() + data_bytes;
  auto header = ParseSafetensorsHeader(text, file_bytes, "fuzz");
  if (!header.ok()) return 0;
  uint64_t at = header->data_begin;
  std::vector<TensorSpec> specs;
  for (const TensorInfo& tensor : header->tensors) {
    if (tensor.offset != at || tensor.bytes > file_bytes - at) abort();
    at += tensor.bytes;
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  if (at != file_bytes) abort();
  auto layout = LayoutSafetensors(specs, header->metadata);
  if (!layout.ok()) abort();
  auto again = ParseSafetensorsHeader(std::string_view(layout->header).substr(8), layout->file_bytes, "again");
  if (!again.ok() || again->tensors.size() != specs.size() || again->metadata != header->metadata) abort();
  return 0;
}
