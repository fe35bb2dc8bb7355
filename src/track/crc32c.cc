#include "track/crc32c.h"

#include <array>
#include <cstring>

namespace lockstep::track {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t WithInstruction(std::string_view data) {
  uint64_t crc = 0xffffffff;
  const char* at = data.data();
  size_t left = data.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  for (; left > 0; ++at, --left) {
    crc = __builtin_ia32_crc32qi(static_cast<uint32_t>(crc), static_cast<unsigned char>(*at));
  }
  return ~static_cast<uint32_t>(crc);
}
#endif

}  // namespace

uint32_t Crc32cPortable(std::string_view data) {
  uint32_t crc = 0xffffffff;
  for (char c : data) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

uint32_t Crc32c(std::string_view data) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return WithInstruction(data);
#endif
  return Crc32cPortable(data);
}

uint32_t MaskedCrc32c(std::string_view data) {
  const uint32_t crc = Crc32c(data);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace lockstep::track
