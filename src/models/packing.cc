#include "models/packing.h"

namespace lockstep::models {

at::Tensor DocumentBegins(const at::Tensor& documents) {
  at::Tensor begins = at::ones_like(documents, documents.options().dtype(at::kBool));
  const int64_t length = documents.size(1);
  if (length > 1) {
    begins.narrow(1, 1, length - 1).copy_(documents.narrow(1, 1, length - 1) != documents.narrow(1, 0, length - 1));
  }
  return begins;
}

at::Tensor PositionsOf(const at::Tensor& documents) {
  const at::Tensor index = at::arange(documents.size(1), documents.options().dtype(at::kLong));
  // The start of the document that each token is in: the largest start so far.
  const at::Tensor starts = at::where(DocumentBegins(documents), index, at::zeros_like(index));
  return index - std::get<0>(starts.cummax(1));
}

at::Tensor ShiftedLabels(const at::Tensor& tokens, const at::Tensor& documents) {
  at::Tensor labels = at::full_like(tokens, -100);
  const int64_t length = tokens.size(1);
  if (length < 2) return labels;
  at::Tensor next = tokens.narrow(1, 1, length - 1);
  if (documents.defined()) {
    const at::Tensor same = documents.narrow(1, 1, length - 1) == documents.narrow(1, 0, length - 1);
    next = at::where(same, next, at::full_like(next, -100));
  }
  labels.narrow(1, 0, length - 1).copy_(next);
  return labels;
}

}  // namespace lockstep::models
