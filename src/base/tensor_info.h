// What a stored tensor is, without LibTorch: its type, shape and place in a file. The types are those of the
// safetensors format, by their safetensors names. Plain values, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep {

enum class Dtype : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

// "BF16", as safetensors writes it.
std::string_view DtypeName(Dtype dtype);
std::optional<Dtype> ParseDtype(std::string_view name);
// Bits of one element; below 8 for the packed types.
int DtypeBits(Dtype dtype);

// Bytes of a dense tensor. An error for a negative size, an overflow, or packed elements that do not fill whole bytes.
Result<uint64_t> TensorBytes(Dtype dtype, const std::vector<int64_t>& shape);

// "F32 [64, 3, 3, 3]".
std::string DescribeTensor(Dtype dtype, const std::vector<int64_t>& shape);

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // of the first byte in the file (for torch.save files: of the first element's)
  uint64_t bytes = 0;   // of the tensor, dense
};

}  // namespace lockstep
