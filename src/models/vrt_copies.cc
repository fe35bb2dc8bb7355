#include "models/vrt_copies.h"

#include <torch/types.h>

#include <algorithm>
#include <numbers>

namespace lockstep::models::vrt {
namespace {

using at::Tensor;

// What is copied where, all at once.
struct Plan {
  std::vector<Tensor> from, to;
  void Add(const Tensor& source, const Tensor& target) {
    from.push_back(source.detach());
    to.push_back(target);
  }
  // One behind the other, by rows.
  void AddRows(at::ArrayRef<Tensor> sources, const Tensor& target) {
    int64_t row = 0;
    for (const Tensor& source : sources) {
      Add(source, target.narrow(0, row, source.size(0)));
      row += source.size(0);
    }
  }
};

std::vector<Tensor> Weights(const WindowAttention& a) {
  std::vector<Tensor> list{a.qkv_self->weight};
  if (a.mutual) list.push_back(a.qkv_mut->weight);
  return list;
}

std::vector<Tensor> Biases(const WindowAttention& a) {
  std::vector<Tensor> list;
  if (!a.qkv_self->bias.defined()) return list;
  list.push_back(a.qkv_self->bias);
  if (a.mutual) list.push_back(a.qkv_mut->bias);
  return list;
}

AttentionCopy EmptyCopy(const WindowAttention& a, at::ScalarType type) {
  const int64_t width = a.proj->weight.size(0), parts = a.mutual ? 6 : 3;
  const at::TensorOptions options = a.proj->weight.options().requires_grad(false), half = options.dtype(type);
  AttentionCopy copy;
  copy.qkv = at::empty({parts * width, width}, half);
  if (a.qkv_self->bias.defined()) copy.qkv_bias = at::empty({parts * width}, half);
  if (a.mutual) copy.code = at::empty({a.window[1] * a.window[2], 3 * width}, half);
  copy.table = at::empty({a.heads, a.relative_position_bias_table.size(0)}, options.dtype(at::kFloat));
  copy.proj = at::empty(a.proj->weight.sizes(), half);
  return copy;
}

MlpCopy EmptyCopy(const Geglu& mlp, at::ScalarType type) {
  const at::TensorOptions half = mlp.fc11->weight.options().dtype(type).requires_grad(false);
  const int64_t hidden = mlp.fc11->weight.size(0);
  return {at::empty({2 * hidden, mlp.fc11->weight.size(1)}, half), at::empty({2 * hidden}, half),
          at::empty(mlp.fc2->weight.sizes(), half), at::empty(mlp.fc2->bias.sizes(), half)};
}

void Add(const WindowAttention& a, const AttentionCopy& copy, Plan* plan) {
  plan->AddRows(Weights(a), copy.qkv);
  if (copy.qkv_bias.defined()) plan->AddRows(Biases(a), copy.qkv_bias);
  plan->Add(a.proj->weight, copy.proj);
}

void Add(const Geglu& mlp, const MlpCopy& copy, Plan* plan) {
  plan->AddRows({mlp.fc11->weight, mlp.fc12->weight}, copy.both);
  plan->AddRows({mlp.fc11->bias, mlp.fc12->bias}, copy.both_bias);
  plan->Add(mlp.fc2->weight, copy.down);
  plan->Add(mlp.fc2->bias, copy.down_bias);
}

// What needs more than copies.
void Finish(const WindowAttention& a, AttentionCopy* copy) {
  at::mul_out(copy->table, a.relative_position_bias_table.detach().to(at::kFloat).t(),
              at::scalar_tensor(std::numbers::log2e));
  if (!a.mutual) return;
  const int64_t width = copy->proj.size(0), places = copy->code.size(0);
  const Tensor code = a.tables->SineCode(a.window, width, copy->code.device())[0].narrow(0, 0, places);
  at::mm_out(copy->code, code.to(copy->code.scalar_type()), copy->qkv.narrow(0, 3 * width, 3 * width).t());
}

bool IsHere(const Tensor& x) { return x.is_contiguous() && x.const_data_ptr() != nullptr; }

}  // namespace

std::shared_ptr<const AttentionCopy> CopyOf(const WindowAttention& attention, at::ScalarType type) {
  auto copy = std::make_shared<AttentionCopy>(EmptyCopy(attention, type));
  Plan plan;
  Add(attention, *copy, &plan);
  at::_foreach_copy_(plan.to, plan.from);
  Finish(attention, copy.get());
  return copy;
}

std::shared_ptr<const MlpCopy> CopyOf(const Geglu& mlp, at::ScalarType type) {
  auto copy = std::make_shared<MlpCopy>(EmptyCopy(mlp, type));
  Plan plan;
  Add(mlp, *copy, &plan);
  at::_foreach_copy_(plan.to, plan.from);
  return copy;
}

bool Copies::Refresh(const std::vector<std::shared_ptr<Tmsa>>& blocks, at::ScalarType type) {
  for (const auto& block : blocks) {
    const std::vector<Tensor> parameters = block->parameters();
    if (!std::all_of(parameters.begin(), parameters.end(), IsHere)) return false;
  }
  const bool known = !mlps_.empty() && mlps_[0]->down.scalar_type() == type &&
                     mlps_[0]->down.device() == blocks[0]->mlp->fc2->weight.device();
  if (!known) {
    attentions_.clear(), mlps_.clear();
    for (const auto& block : blocks) {
      attentions_.push_back(std::make_shared<AttentionCopy>(EmptyCopy(*block->attn, type)));
      mlps_.push_back(std::make_shared<MlpCopy>(EmptyCopy(*block->mlp, type)));
    }
  }
  const torch::NoGradGuard no_grad;
  Plan plan;
  for (size_t i = 0; i < blocks.size(); ++i) {
    Add(*blocks[i]->attn, *attentions_[i], &plan);
    Add(*blocks[i]->mlp, *mlps_[i], &plan);
  }
  at::_foreach_copy_(plan.to, plan.from);
  for (size_t i = 0; i < blocks.size(); ++i) Finish(*blocks[i]->attn, attentions_[i].get());
  return true;
}

}  // namespace lockstep::models::vrt
