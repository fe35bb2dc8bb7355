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
  const at::Tensor number = DocumentBegins(documents).cumsum(1);  // a later document may have an earlier one's number
  return (number.unsqueeze(2) == number.unsqueeze(1)).logical_and_(causal).unsqueeze(1);
}

// 0 and the end of every document of the flattened batch. With a limit, documents that are not there are empty ones at
// the end, and nothing waits for the device.
at::Tensor DocumentEnds(const at::Tensor& documents, int64_t limit) {
  const at::Tensor begins = DocumentBegins(documents).flatten();
  const int64_t total = begins.numel();
  if (limit <= 0) {
    const at::Tensor last = at::full({1}, total, begins.options().dtype(at::kInt));
    return at::cat({begins.nonzero().flatten().to(at::kInt), last});
  }
  const at::Tensor number = begins.cumsum(0);
  at::_assert_async(number.narrow(0, total - 1, 1) <= limit, "a batch holds more documents than Packing's limit");
  // Document n begins at the first token with that number; past the last one this is the end of the batch.
  return at::searchsorted(number, at::arange(1, limit + 2, number.options()), /*out_int32=*/true);
}

// What flash attention takes; other shapes and types go by a mask.
bool FlashTakes(const at::Tensor& documents, at::ScalarType type, int64_t head_size) {
  return documents.is_cuda() && (type == at::kBFloat16 || type == at::kHalf) && head_size % 8 == 0 && head_size <= 256;
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

AttentionPlan PlanAttention(const Packing& packing, at::ScalarType type, int64_t head_size) {
  AttentionPlan plan;
  const at::Tensor& documents = packing.documents;
  if (!documents.defined()) return plan;
  if (FlashTakes(documents, type, head_size)) {
    plan.ends = DocumentEnds(documents, packing.document_limit);
    plan.longest = documents.size(1);
  } else {
    plan.mask = DocumentMask(documents);
  }
  return plan;
}

at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionPlan& plan) {
  if (plan.ends.defined()) {
    const at::Tensor out = std::get<0>(at::_flash_attention_forward(
        q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), plan.ends, plan.ends, plan.longest, plan.longest,
        /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false));
    return out.view({q.size(0), q.size(1), -1});
  }
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
