#include "base/tensor_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

namespace lockstep {
namespace {

struct Row {
  Dtype dtype;
  std::string_view name;
  int bits;
};

constexpr Row kRows[] = {
    {Dtype::kBool, "BOOL", 8},
    {Dtype::kF4, "F4", 4},
    {Dtype::kF6E2M3, "F6_E2M3", 6},
    {Dtype::kF6E3M2, "F6_E3M2", 6},
    {Dtype::kU8, "U8", 8},
    {Dtype::kI8, "I8", 8},
    {Dtype::kF8E5M2, "F8_E5M2", 8},
    {Dtype::kF8E4M3, "F8_E4M3", 8},
    {Dtype::kF8E8M0, "F8_E8M0", 8},
    {Dtype::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {Dtype::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {Dtype::kI16, "I16", 16},
    {Dtype::kU16, "U16", 16},
    {Dtype::kF16, "F16", 16},
    {Dtype::kBF16, "BF16", 16},
    {Dtype::kI32, "I32", 32},
    {Dtype::kU32, "U32", 32},
    {Dtype::kF32, "F32", 32},
    {Dtype::kC64, "C64", 64},
    {Dtype::kF64, "F64", 64},
    {Dtype::kI64, "I64", 64},
    {Dtype::kU64, "U64", 64},
};

const Row& RowOf(Dtype dtype) { return kRows[static_cast<size_t>(dtype)]; }

constexpr bool RowsAreInOrder() {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (static_cast<size_t>(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(RowsAreInOrder());

}  // namespace

std::string_view DtypeName(Dtype dtype) { return RowOf(dtype).name; }

int DtypeBits(Dtype dtype) { return RowOf(dtype).bits; }

std::optional<Dtype> ParseDtype(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

Result<uint64_t> TensorBytes(Dtype dtype, const std::vector<int64_t>& shape) {
  const uint64_t limit = std::numeric_limits<int64_t>::max();  // a file's size is signed
  uint64_t bits = static_cast<uint64_t>(DtypeBits(dtype));
  for (int64_t size : shape) {
    if (size < 0) {
      return Status(Code::kUsage, fmt::format("shape [{}] has a negative size", fmt::join(shape, ", ")));
    }
    if (size > 0 && bits > limit / static_cast<uint64_t>(size)) {
      return Status(Code::kUsage,
                    fmt::format("shape [{}] of {} is too large", fmt::join(shape, ", "), DtypeName(dtype)));
    }
    bits *= static_cast<uint64_t>(size);
  }
  if (bits % 8 != 0) {
    return Status(Code::kUsage,
                  fmt::format("shape [{}] of {} does not fill whole bytes", fmt::join(shape, ", "), DtypeName(dtype)));
  }
  return bits / 8;
}

std::string DescribeTensor(Dtype dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", DtypeName(dtype), fmt::join(shape, ", "));
}

}  // namespace lockstep
