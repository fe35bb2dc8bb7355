#include "cache/quantise.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace lockstep::cache {
namespace {

constexpr float kF8Max = 448;
constexpr float kInt8Max = 127;

// IEEE half, without help of the processor: features in float16 are rare.
float FromHalf(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  if (exponent == 0) {
    const float small = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -small : small;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t ToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const float magnitude = std::fabs(value);
  if (!(magnitude < 65520.0f)) return static_cast<uint16_t>(sign | (std::isnan(value) ? 0x7e00 : 0x7c00));
  if (magnitude < 0x1p-14f) {
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, 24))));
  }
  const uint32_t rounded = (bits & 0x7fffffff) + 0xfff + ((bits >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

float Load(Dtype dtype, const std::byte* in, size_t i) {
  if (dtype == Dtype::kF32) {
    float value = 0;
    std::memcpy(&value, in + 4 * i, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, in + 2 * i, 2);
  return dtype == Dtype::kBF16 ? FromBf16(bits) : FromHalf(bits);
}

void Store(Dtype dtype, std::byte* out, size_t i, float value) {
  if (dtype == Dtype::kF32) {
    std::memcpy(out + 4 * i, &value, 4);
    return;
  }
  const uint16_t bits = dtype == Dtype::kBF16 ? ToBf16(value) : ToHalf(value);
  std::memcpy(out + 2 * i, &bits, 2);
}

bool IsFloat(Dtype dtype) { return dtype == Dtype::kF32 || dtype == Dtype::kF16 || dtype == Dtype::kBF16; }

size_t Elements(const FieldSpec& field) {
  size_t count = 1;
  for (const int64_t size : field.shape) count *= static_cast<size_t>(size);
  return count;
}

Status NotFinite(const FieldSpec& field, size_t i, float value) {
  return Status(Code::kUsage, fmt::format("field '{}': value {} is {}", field.name, i, value),
                "the encoder must give finite numbers: check its precision and the range of its input");
}

}  // namespace

double PackError::Relative() const { return squares > 0 ? std::sqrt(error_squares / squares) : 0; }

uint16_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
float FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint8_t ToF8E4M3(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float magnitude = std::min(std::fabs(value), kF8Max);
  if (magnitude < 0x1p-6f) {  // subnormal: steps of 2^-9
    return sign | static_cast<uint8_t>(std::nearbyint(magnitude * 512));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = bits + 0x7ffff + ((bits >> 20) & 1);
  return sign | static_cast<uint8_t>((rounded >> 20) - (120u << 3));
}

float FromF8E4M3(uint8_t bits) {
  const uint32_t exponent = (bits >> 3) & 15, mantissa = bits & 7;
  float value = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                              : std::bit_cast<float>(((exponent + 120) << 23) | (mantissa << 20));
  if (exponent == 15 && mantissa == 7) value = std::nanf("");
  return (bits & 0x80) != 0 ? -value : value;
}

Status Pack(const FieldSpec& field, const std::byte* in, std::span<std::byte* const> out, PackError* error) {
  const size_t elements = Elements(field);
  if (IsFloat(field.dtype)) {
    for (size_t i = 0; i < elements; ++i) {
      const float value = Load(field.dtype, in, i);
      if (!std::isfinite(value)) return NotFinite(field, i, value);
    }
  }
  if (field.stored == Storage::kSame) {
    std::memcpy(out[0], in, field.bytes());
    return Status::Ok();
  }
  const auto note = [&](float value, float back) {
    error->squares += static_cast<double>(value) * value;
    error->error_squares += (static_cast<double>(value) - back) * (static_cast<double>(value) - back);
  };
  if (field.stored == Storage::kBf16) {
    for (size_t i = 0; i < elements; ++i) {
      const float value = Load(field.dtype, in, i);
      const uint16_t bits = ToBf16(value);
      std::memcpy(out[0] + 2 * i, &bits, 2);
      note(value, FromBf16(bits));
    }
    return Status::Ok();
  }
  const bool f8 = field.stored == Storage::kF8;
  const auto width = static_cast<size_t>(field.shape.back());
  for (size_t token = 0; token < elements / width; ++token) {
    float largest = 0;
    for (size_t i = 0; i < width; ++i) largest = std::max(largest, std::fabs(Load(field.dtype, in, token * width + i)));
    float scale = largest / (f8 ? kF8Max : kInt8Max);
    if (!(scale >= 0x1p-126f)) scale = 1;  // all zero, or too small to divide by
    std::memcpy(out[1] + 4 * token, &scale, 4);
    for (size_t i = token * width; i < (token + 1) * width; ++i) {
      const float value = Load(field.dtype, in, i);
      if (f8) {
        const uint8_t bits = ToF8E4M3(value / scale);
        std::memcpy(out[0] + i, &bits, 1);
        note(value, FromF8E4M3(bits) * scale);
      } else {
        const auto bits = static_cast<int8_t>(std::nearbyint(std::clamp(value / scale, -kInt8Max, kInt8Max)));
        std::memcpy(out[0] + i, &bits, 1);
        note(value, static_cast<float>(bits) * scale);
      }
    }
  }
  return Status::Ok();
}

void Unpack(const FieldSpec& field, std::span<const std::byte* const> in, std::byte* out) {
  if (field.stored == Storage::kSame) {
    std::memcpy(out, in[0], field.bytes());
    return;
  }
  const size_t elements = Elements(field);
  const auto width = static_cast<size_t>(field.shape.back());
  for (size_t i = 0; i < elements; ++i) {
    if (field.stored == Storage::kBf16) {
      Store(field.dtype, out, i, Load(Dtype::kBF16, in[0], i));
      continue;
    }
    const float scale = Load(Dtype::kF32, in[1], i / width);
    const auto bits = std::to_integer<uint8_t>(in[0][i]);
    Store(field.dtype, out, i,
          scale * (field.stored == Storage::kF8 ? FromF8E4M3(bits) : static_cast<float>(static_cast<int8_t>(bits))));
  }
}

}  // namespace lockstep::cache
