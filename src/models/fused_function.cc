#include "models/fused_function.h"

#include <vector>

namespace lockstep::models {

at::Tensor CatRows(at::ArrayRef<at::Tensor> matrices, at::ScalarType type) {
  const at::Tensor& first = matrices.front();
  int64_t rows = 0;
  bool together = first.scalar_type() == type;
  const auto* next = static_cast<const char*>(first.const_data_ptr());
  for (const at::Tensor& matrix : matrices) {
    together = together && matrix.const_data_ptr() == next && matrix.storage().is_alias_of(first.storage());
    next += matrix.nbytes();
    rows += matrix.size(0);
  }
  std::vector<int64_t> shape = first.sizes().vec();
  shape[0] = rows;
  if (together) return first.detach().as_strided(shape, first.strides());
  const at::Tensor all = at::empty(shape, first.options().dtype(type).requires_grad(false));
  std::vector<at::Tensor> from, to;
  int64_t row = 0;
  for (const at::Tensor& matrix : matrices) {
    from.push_back(matrix.detach());
    to.push_back(all.narrow(0, row, matrix.size(0)));
    row += matrix.size(0);
  }
  at::_foreach_copy_(to, from);
  return all;
}

}  // namespace lockstep::models
