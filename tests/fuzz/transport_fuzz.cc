// NCCL's lines from anybody: none may crash the reader, and what was read must survive the way between launchers.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "diagnose/transport.h"

using namespace lockstep::diagnose;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  TransportReader reader;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    reader.Line(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  Transport transport = reader.transport();
  transport.node = 0;
  const nlohmann::json json = ToJson(transport);
  if (ToJson(TransportFromJson(json)) != json) std::abort();
  (void)NetworkText(transport);
  (void)TransportGroups({transport, transport});
  (void)TransportWarning({transport, Transport()}, 2, {0});
  return 0;
}
