#include "track/wandb_log.h"

#include <algorithm>
#include <array>

namespace lockstep::track {
namespace {

constexpr uint64_t kBlock = 32768;
constexpr uint64_t kChunkHeader = 7;
constexpr std::string_view kHeader("\x3aW&B\xe1\xbe\x00", 7);  // ":W&B", 0xbee1, version 0

enum ChunkType : uint8_t { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? (value >> 1) ^ 0xedb88320u : value >> 1;
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = MakeCrcTable();

uint32_t MoreCrc(uint32_t crc, std::string_view data) {
  for (const char c : data) crc = kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return crc;
}

uint32_t ChunkCrc(char type, std::string_view data) {
  return ~MoreCrc(MoreCrc(0xffffffffu, std::string_view(&type, 1)), data);
}

uint32_t Little(std::string_view data, size_t at, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= static_cast<uint32_t>(static_cast<uint8_t>(data[at + i])) << (8 * i);
  return value;
}

}  // namespace

uint32_t Crc32(std::string_view data) { return ~MoreCrc(0xffffffffu, data); }

std::string WandbHeader() { return std::string(kHeader); }

uint64_t FrameWandbRecord(std::string_view record, uint64_t at, std::string* out) {
  for (bool first = true;; first = false) {
    uint64_t left = kBlock - at % kBlock;
    if (left < kChunkHeader) {
      out->append(left, '\0');
      at += left;
      left = kBlock;
    }
    const uint64_t size = std::min<uint64_t>(record.size(), left - kChunkHeader);
    const bool last = size == record.size();
    const char type = static_cast<char>(first ? (last ? kFull : kFirst) : (last ? kLast : kMiddle));
    const std::string_view data = record.substr(0, size);
    const uint32_t crc = ChunkCrc(type, data);
    for (int i = 0; i < 4; ++i) out->push_back(static_cast<char>(crc >> (8 * i) & 0xff));
    for (int i = 0; i < 2; ++i) out->push_back(static_cast<char>(size >> (8 * i) & 0xff));
    out->push_back(type);
    out->append(data);
    record.remove_prefix(size);
    at += kChunkHeader + size;
    if (last) return at;
  }
}

WandbScan ScanWandbFile(std::string_view file, const std::function<void(std::string_view)>& each) {
  WandbScan scan;
  if (!file.starts_with(kHeader)) return scan;
  scan.header = true;
  scan.whole = kHeader.size();
  std::string parts;  // of a record in several chunks
  bool open = false;
  for (uint64_t at = scan.whole;;) {
    const uint64_t left = kBlock - at % kBlock;
    if (left < kChunkHeader) at += left;
    if (file.size() < kChunkHeader || at > file.size() - kChunkHeader) return scan;
    const uint32_t crc = Little(file, at, 4), size = Little(file, at + 4, 2);
    const char type = file[at + 6];
    const uint64_t end = at + kChunkHeader + size;
    if (type < kFull || type > kLast || end > file.size() || at / kBlock != (end - 1) / kBlock) return scan;
    const std::string_view data = file.substr(at + kChunkHeader, size);
    if (ChunkCrc(type, data) != crc || open != (type == kMiddle || type == kLast)) return scan;
    parts.append(data);
    open = type == kFirst || type == kMiddle;
    at = end;
    if (open) continue;
    each(parts);
    parts.clear();
    ++scan.records;
    scan.whole = at;
  }
}

}  // namespace lockstep::track
