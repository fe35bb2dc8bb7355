#include "models/decoder_attention.h"

#include <ATen/Context.h>
#include <torch/types.h>
#ifdef LOCKSTEP_CUDA
#include <ATen/cuda/CUDAContext.h>
#endif

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

int MajorOf(const at::Device& device) {
#ifdef LOCKSTEP_CUDA
  return at::cuda::getDeviceProperties(device.index())->major;
#else
  (void)device;
  return 0;
#endif
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

// cuDNN's kernels take half of flash attention's time on Hopper. They sum in an order that varies, so not where bits
// must repeat; over documents (ragged rows) their backward is wrong in torch 2.11.
bool UsesCudnn(const at::Tensor& q) {
  return !at::globalContext().deterministicAlgorithms() && at::globalContext().userEnabledCuDNNSDP() &&
         q.size(3) <= 128 && MajorOf(q.device()) >= 9;
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

KeptAttention AttendForward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionPlan& plan) {
  KeptAttention kept;
  if (plan.ends.defined()) {
    auto out = at::_flash_attention_forward(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), plan.ends, plan.ends,
                                            plan.longest, plan.longest, 0.0, true, false);
    kept.out = std::get<0>(out).view(q.sizes()), kept.lse = std::get<1>(out);
  } else if (UsesCudnn(q)) {
    auto out = at::_scaled_dot_product_cudnn_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), {},
                                                       /*compute_log_sumexp=*/true, 0.0, /*is_causal=*/true);
    kept.out = std::get<0>(out).transpose(1, 2).contiguous(), kept.lse = std::get<1>(out);
    kept.seed = std::get<6>(out), kept.offset = std::get<7>(out);
  } else {
    auto out = at::_flash_attention_forward(q, k, v, {}, {}, q.size(1), k.size(1), 0.0, true, false);
    kept.out = std::get<0>(out), kept.lse = std::get<1>(out);
  }
  return kept;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> AttendBackward(const at::Tensor& d_out, const at::Tensor& q,
                                                              const at::Tensor& k, const at::Tensor& v,
                                                              const KeptAttention& kept, const AttentionPlan& plan) {
  if (kept.seed.defined()) {
    const auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
        d_out.transpose(1, 2), q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), kept.out.transpose(1, 2),
        kept.lse, kept.seed, kept.offset, {}, {}, {}, q.size(1), k.size(1), 0.0, true);
    return {dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)};
  }
  // Without dropout no random state is read.
  const at::Tensor none = at::empty({0}, q.options().dtype(at::kUInt64));
  if (!plan.ends.defined()) {
    return at::_flash_attention_backward(d_out, q, k, v, kept.out, kept.lse, {}, {}, q.size(1), k.size(1), 0.0, true,
                                         none, none);
  }
  const auto [dq, dk, dv] = at::_flash_attention_backward(d_out.flatten(0, 1), q.flatten(0, 1), k.flatten(0, 1),
                                                          v.flatten(0, 1), kept.out.flatten(0, 1), kept.lse, plan.ends,
                                                          plan.ends, plan.longest, plan.longest, 0.0, true, none, none);
  return {dq.view(q.sizes()), dk.view(k.sizes()), dv.view(v.sizes())};
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
