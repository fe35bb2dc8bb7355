// The container of a W&B run (docs/formats/wandb.md): protobuf records in the blocks of LevelDB's log format, behind
// wandb's own header and with zlib's CRC-32. Records are framed in memory; the caller writes them. Pure, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep::track {

// CRC-32 as zlib computes it. By hand: none of the libraries in use offers it.
uint32_t Crc32(std::string_view data);

// The header of a file; the first block continues behind it.
std::string WandbHeader();

// Appends the record to `out`, as it lies in a file from byte `at` on. Returns where the next one begins.
uint64_t FrameWandbRecord(std::string_view record, uint64_t at, std::string* out);

struct WandbScan {
  bool header = false;  // the file is one of wandb's
  uint64_t whole = 0;   // bytes up to the end of the last whole record
  uint64_t records = 0;
};

// Calls with every whole record, in order. What comes after the first damage (a torn tail) is left out.
WandbScan ScanWandbFile(std::string_view file, const std::function<void(std::string_view)>& each);

}  // namespace lockstep::track
