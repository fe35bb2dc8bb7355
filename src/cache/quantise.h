// Features in fewer bits: bfloat16, float8 (e4m3) or int8 with one float32 scale per token (the last axis). Rounding is
// to the nearest, ties to even. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "cache/description.h"

namespace lockstep::cache {

// Sums over everything that was packed of a field.
struct PackError {
  double squares = 0;        // of the values
  double error_squares = 0;  // of what packing changed
  double Relative() const;
};

// One record of a field (as the encoder gives it) into its columns: out[0] values, out[1] scales where there are some.
// Values that are not finite are an error that says where.
Status Pack(const FieldSpec& field, const std::byte* in, std::span<std::byte* const> out, PackError* error);
// The way back, in the field's own type.
void Unpack(const FieldSpec& field, std::span<const std::byte* const> in, std::byte* out);

uint8_t ToF8E4M3(float value);  // saturates at 448
float FromF8E4M3(uint8_t bits);
uint16_t ToBf16(float value);
float FromBf16(uint16_t bits);

}  // namespace lockstep::cache
