#include "engine/tree_sum.h"

#include <algorithm>
#include <bit>
#include <map>

namespace lockstep::engine {
namespace {

constexpr int64_t kPiece = 1 << 18;  // elements gathered at a time

}  // namespace

std::vector<TreeNode> CoverRange(uint64_t first, uint64_t count) {
  std::vector<TreeNode> nodes;
  while (count > 0) {
    // The largest subtree that starts here and does not reach beyond the end.
    const int room = std::bit_width(count) - 1;
    const int level = first == 0 ? room : std::min(std::countr_zero(first), room);
    nodes.push_back({level, first >> level});
    first += uint64_t{1} << level;
    count -= uint64_t{1} << level;
  }
  return nodes;
}

LeafRange LeavesOf(uint64_t leaves, int rank, int size) {
  const auto r = static_cast<uint64_t>(rank);
  const auto w = static_cast<uint64_t>(size);
  const uint64_t each = leaves / w;
  const uint64_t more = leaves % w;
  return {r * each + std::min(r, more), each + (r < more ? 1 : 0)};
}

TreeSum::TreeSum(uint64_t leaves, at::Tensor buffer, Ranks* ranks)
    : leaves_(leaves),
      buffer_(std::move(buffer)),
      ranks_(ranks),
      mine_(LeavesOf(leaves, ranks->rank(), ranks->size())) {
  const auto size = static_cast<uint64_t>(ranks->size());
  one_all_reduce_ = std::has_single_bit(size) && leaves % size == 0 && ranks->tensors().canonical_tree();
}

void TreeSum::Begin() {
  next_ = mine_.first;
  for (Open& open : open_) {
    if (open.value.defined()) spare_.push_back(std::move(open.value));
  }
  open_.clear();
}

at::Tensor TreeSum::Spare() {
  if (spare_.empty()) return at::empty_like(buffer_);
  at::Tensor value = std::move(spare_.back());
  spare_.pop_back();
  return value;
}

void TreeSum::AddLeaf() {
  const at::NoGradGuard no_grad;
  TreeNode node{0, next_++};
  while (!open_.empty() && node.index % 2 == 1 && open_.back().node == TreeNode{node.level, node.index - 1}) {
    buffer_.add_(open_.back().value);  // addition of two numbers commutes exactly
    spare_.push_back(std::move(open_.back().value));
    open_.pop_back();
    node = {node.level + 1, node.index / 2};
  }
  if (next_ == mine_.first + mine_.count) {
    open_.push_back({node, {}});
    return;
  }
  at::Tensor kept = Spare();
  kept.copy_(buffer_);
  buffer_.zero_();
  open_.push_back({node, std::move(kept)});
}

Status TreeSum::Finish() {
  if (ranks_->size() == 1) return Status::Ok();
  if (one_all_reduce_) return ranks_->tensors().AllReduce(buffer_).Wait();
  return GatherAndAdd();
}

Status TreeSum::GatherAndAdd() {
  const at::NoGradGuard no_grad;
  const int size = ranks_->size();
  std::vector<std::vector<TreeNode>> nodes;
  size_t most = 0;
  for (int r = 0; r < size; ++r) {
    const LeafRange range = LeavesOf(leaves_, r, size);
    nodes.push_back(CoverRange(range.first, range.count));
    most = std::max(most, nodes.back().size());
  }
  const int64_t total = buffer_.numel();
  const int64_t piece = std::min(kPiece, total);
  const auto slots = static_cast<int64_t>(most);
  at::Tensor in = at::zeros({slots, piece}, buffer_.options());
  at::Tensor out = at::zeros({size * slots, piece}, buffer_.options());
  for (int64_t begin = 0; begin < total; begin += piece) {
    const int64_t n = std::min(piece, total - begin);
    for (size_t k = 0; k < open_.size(); ++k) {
      const at::Tensor& value = open_[k].value.defined() ? open_[k].value : buffer_;
      in[static_cast<int64_t>(k)].narrow(0, 0, n).copy_(value.narrow(0, begin, n));
    }
    LOCKSTEP_RETURN_IF_ERROR(ranks_->tensors().AllGather(in, out).Wait());
    std::map<std::pair<int, uint64_t>, at::Tensor> level;  // by level, then index
    for (int r = 0; r < size; ++r) {
      for (size_t k = 0; k < nodes[static_cast<size_t>(r)].size(); ++k) {
        const TreeNode& node = nodes[static_cast<size_t>(r)][k];
        level[{node.level, node.index}] = out[r * slots + static_cast<int64_t>(k)];
      }
    }
    while (level.size() > 1) {  // the lowest pair first: its sum belongs to the level above
      auto left = level.begin();
      auto right = std::next(left);
      const TreeNode parent{left->first.first + 1, left->first.second / 2};
      at::Tensor sum = left->second.add_(right->second);
      level.erase(left);
      level.erase(right);
      level[{parent.level, parent.index}] = sum;
    }
    buffer_.narrow(0, begin, n).copy_(level.begin()->second.narrow(0, 0, n));
  }
  return Status::Ok();
}

}  // namespace lockstep::engine
