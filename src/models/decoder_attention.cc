#include "models/decoder_attention.h"

#include <torch/types.h>

#include <optional>
#include <tuple>

namespace lockstep::models::decoder {
namespace {

// Which earlier tokens each token sees: those of its document.
at::Tensor DocumentMask(const at::Tensor& documents) {
  const int64_t length = documents.size(1);
  const at::Tensor causal = at::ones({length, length}, documents.options().dtype(at::kBool)).tril();
  return (documents.unsqueeze(2) == documents.unsqueeze(1)).logical_and_(causal).unsqueeze(1);
}

// Keys and values for every query head. PyTorch's masked kernels want equal numbers of heads.
at::Tensor Expand(const at::Tensor& x, int64_t heads) {
  const int64_t group = heads / x.size(1);
  return group == 1 ? x : x.unsqueeze(2).expand({-1, -1, group, -1, -1}).flatten(1, 2);
}

at::Tensor Sdpa(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask, bool causal) {
  const int64_t heads = q.size(1);
  const std::optional<at::Tensor> given = mask.defined() ? std::optional(mask) : std::nullopt;
  // Flash attention on CUDA reads shared keys as they are; the other kernels do not.
  const bool grouped = q.is_cuda() && !mask.defined() && q.scalar_type() != at::kFloat && k.size(1) != heads;
  const at::Tensor out =
      grouped ? at::scaled_dot_product_attention(q, k, v, given, 0.0, causal, std::nullopt, true)
              : at::scaled_dot_product_attention(q, Expand(k, heads), Expand(v, heads), given, 0.0, causal);
  return out.transpose(1, 2).flatten(2, 3);
}

}  // namespace

AttentionPlan PlanAttention(const Packing& packing, at::ScalarType /*type*/) {
  AttentionPlan plan;
  if (packing.documents.defined()) plan.mask = DocumentMask(packing.documents);
  return plan;
}

at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionPlan& plan) {
  return Sdpa(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), plan.mask, !plan.mask.defined());
}

at::Tensor AttendCached(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const int64_t fresh = q.size(1), all = k.size(2);
  at::Tensor mask;
  if (fresh > 1 && fresh < all) {
    mask = at::ones({fresh, all}, q.options().dtype(at::kBool)).tril(all - fresh);
  }
  return Sdpa(q.transpose(1, 2), k, v, mask, fresh == all && fresh > 1);
}

}  // namespace lockstep::models::decoder
