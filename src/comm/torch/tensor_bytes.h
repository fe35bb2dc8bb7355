// Tensors as the host communicator sees them: a type it can add, or bytes. Pure functions.
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "comm/communicator.h"

namespace lockstep::comm {

inline Result<DType> TypeOf(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::kF32;
    case at::kBFloat16:
      return DType::kBF16;
    case at::kHalf:
      return DType::kF16;
    case at::kLong:
      return DType::kI64;
    case at::kDouble:
      return DType::kF64;
    default:
      return Status(Code::kUsage, fmt::format("tensors of type {} cannot be added up over ranks", c10::toString(type)),
                    "convert it to float, bfloat16, half, double or int64");
  }
}

// The same memory as a flat tensor of bytes; the tensor must be contiguous.
inline at::Tensor AsBytes(const at::Tensor& tensor) {
  return at::from_blob(
      tensor.data_ptr(), {static_cast<int64_t>(tensor.nbytes())}, [tensor](void*) {},
      at::TensorOptions().dtype(at::kByte).device(tensor.device()));
}

}  // namespace lockstep::comm
