// CRC-32C (Castagnoli), which TensorBoard's records carry. Written by hand: none of the libraries in use offers it.
// Uses the processor's own instruction where there is one. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::track {

uint32_t Crc32c(std::string_view data);
// The same without the instruction, for processors that lack it.
uint32_t Crc32cPortable(std::string_view data);
// As stored in a record: rotated and shifted, so that a checksum of data that holds checksums stays useful.
uint32_t MaskedCrc32c(std::string_view data);

}  // namespace lockstep::track
