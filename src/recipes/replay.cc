#include "recipes/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "data/random.h"
#include "data/sampler.h"
#include "engine/tree_sum.h"

namespace lockstep::recipes {
namespace {

constexpr uint64_t kReplayStream = 0x7265706c6179;  // "replay": apart from every other stream of the seed
constexpr int64_t kPieceBytes = int64_t{32} << 20;  // sent at a time

std::vector<int64_t> Shape(std::initializer_list<uint64_t> first, const std::vector<int64_t>& rest) {
  std::vector<int64_t> shape;
  for (const uint64_t n : first) shape.push_back(static_cast<int64_t>(n));
  shape.insert(shape.end(), rest.begin(), rest.end());
  return shape;
}

// Zeros that cost no memory until they are written.
at::Tensor LazyZeros(const std::vector<int64_t>& shape, at::ScalarType type) {
  size_t bytes = at::elementSize(type);
  for (const int64_t n : shape) bytes *= static_cast<size_t>(n);
  void* memory = std::calloc(std::max<size_t>(bytes, 1), 1);
  TORCH_CHECK_WITH(OutOfMemoryError, memory != nullptr, "not enough memory: ", bytes, " bytes for the replay buffer");
  return at::from_blob(memory, shape, [](void* p) { std::free(p); }, at::TensorOptions().dtype(type));
}

int64_t Product(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t n : shape) product *= n;
  return product;
}

}  // namespace

LaneRange LanesOf(const engine::TrainConfig& train, int rank, int size) {
  const std::vector<data::SampleId> batch(train.batch);
  const auto range = [&](uint64_t part, uint64_t parts) {
    const auto share = data::ShareOf(batch, part, parts);
    return LaneRange{static_cast<uint64_t>(share.data() - batch.data()), share.size()};
  };
  if (!train.reproducible) return range(static_cast<uint64_t>(rank), static_cast<uint64_t>(size));
  const engine::LeafRange leaves = engine::LeavesOf(train.shards, rank, size);
  const LaneRange first = range(leaves.first, train.shards);
  const LaneRange last = range(leaves.first + leaves.count - 1, train.shards);
  return {first.first, last.first + last.count - first.first};
}

uint64_t ReplayShape::entry_bytes() const {
  return static_cast<uint64_t>(Product(image) + Product(context)) * at::elementSize(type);
}

Replay::Replay(ReplayShape shape, LaneRange mine, at::Device device) : shape_(std::move(shape)), mine_(mine) {
  const auto options = at::TensorOptions().dtype(shape_.type).device(device);
  images_ = at::zeros(Shape({mine_.count * shape_.entries}, shape_.image), options);
  contexts_ = at::zeros(Shape({mine_.count * shape_.entries}, shape_.context), options);
  filled_.assign(shape_.lanes, 0);
}

Result<ReplayDraw> Replay::Draw(uint64_t seed, uint64_t step, uint64_t lane, int64_t pictures) {
  if (lane < mine_.first || lane >= mine_.first + mine_.count) {
    return Status(Code::kRankFailed,
                  fmt::format("replay buffer: place {} of the batch belongs to another rank; this one "
                              "has {} from {}",
                              lane, mine_.count, mine_.first));
  }
  data::Random random(data::Fold(data::Fold(data::Fold(data::Fold(0, seed), kReplayStream), step), lane));
  const auto base = static_cast<int64_t>((lane - mine_.first) * shape_.entries);
  uint64_t& filled = filled_[lane];
  ReplayDraw draw;
  for (int64_t i = 0; i < pictures; ++i) draw.coin.push_back(random.Chance(0.5) ? 1 : 0);
  for (int64_t i = 0; i < pictures; ++i) {
    int64_t slot = 0;
    if (filled < shape_.entries) {
      slot = base + static_cast<int64_t>(filled++);
    } else {
      // Two pictures of a step in one slot would be a race on a GPU.
      do slot = base + static_cast<int64_t>(random.Below(shape_.entries));
      while (std::find(draw.slot.begin(), draw.slot.end(), slot) != draw.slot.end());
    }
    draw.slot.push_back(slot);
  }
  for (int64_t i = 0; i < pictures; ++i) draw.pick.push_back(base + static_cast<int64_t>(random.Below(filled)));
  return draw;
}

void Replay::Put(const at::Tensor& slots, const at::Tensor& images, const at::Tensor& contexts) {
  const at::NoGradGuard no_grad;
  // One overflow in half precision must not come back for thousands of steps.
  images_.index_copy_(0, slots, images.to(shape_.type).nan_to_num());
  contexts_.index_copy_(0, slots, contexts.to(shape_.type).nan_to_num());
}

std::pair<at::Tensor, at::Tensor> Replay::Get(const at::Tensor& picks) const {
  return {images_.index_select(0, picks).to(at::kFloat), contexts_.index_select(0, picks).to(at::kFloat)};
}

void Replay::AllocateAll() {
  if (all_images_.defined()) return;
  all_images_ = LazyZeros(Shape({shape_.lanes, shape_.entries}, shape_.image), shape_.type);
  all_contexts_ = LazyZeros(Shape({shape_.lanes, shape_.entries}, shape_.context), shape_.type);
  all_filled_ = at::zeros({static_cast<int64_t>(shape_.lanes)}, at::kLong);
}

Status Replay::Gather(const engine::TrainConfig& train, engine::Ranks* ranks) {
  const int size = ranks == nullptr ? 1 : ranks->size();
  const bool keeps = ranks == nullptr || ranks->is_main();
  if (keeps) AllocateAll();
  std::vector<double> filled(shape_.lanes, 0);
  for (uint64_t i = 0; i < mine_.count; ++i) filled[mine_.first + i] = static_cast<double>(filled_[mine_.first + i]);
  if (size > 1) LOCKSTEP_RETURN_IF_ERROR(ranks->AllReduceSum(&filled));
  const at::NoGradGuard no_grad;
  const auto gather = [&](const at::Tensor& local, at::Tensor& all, int owner, const LaneRange& lanes) -> Status {
    const bool own = ranks == nullptr || ranks->rank() == owner;
    const auto entries = static_cast<int64_t>(shape_.entries);
    const int64_t row_bytes = std::max<int64_t>(1, Product(local.sizes().slice(1).vec()) * local.element_size());
    const int64_t rows = std::max<int64_t>(1, kPieceBytes / row_bytes);
    for (uint64_t lane = lanes.first; lane < lanes.first + lanes.count; ++lane) {
      const auto have = static_cast<int64_t>(filled[lane]);
      for (int64_t at = 0; at < have; at += rows) {
        const int64_t count = std::min(rows, have - at);
        at::Tensor piece;
        if (own) {
          piece = local.narrow(0, static_cast<int64_t>(lane - lanes.first) * entries + at, count);
        } else {
          std::vector<int64_t> shape = local.sizes().vec();
          shape[0] = count;
          piece = at::empty(shape, local.options());
        }
        // Rank 0's own lanes need no sending.
        if (owner != 0) LOCKSTEP_RETURN_IF_ERROR(ranks->tensors().Broadcast(piece, owner).Wait());
        if (keeps) all[static_cast<int64_t>(lane)].narrow(0, at, count).copy_(piece);
      }
    }
    return Status::Ok();
  };
  for (int owner = 0; owner < size; ++owner) {
    const LaneRange lanes = size == 1 ? mine_ : LanesOf(train, owner, size);
    if (owner == 0 && !keeps) continue;
    LOCKSTEP_RETURN_IF_ERROR(gather(images_, all_images_, owner, lanes));
    LOCKSTEP_RETURN_IF_ERROR(gather(contexts_, all_contexts_, owner, lanes));
  }
  if (keeps) {
    auto* counts = all_filled_.data_ptr<int64_t>();
    for (size_t i = 0; i < filled.size(); ++i) counts[i] = static_cast<int64_t>(filled[i]);
  }
  return Status::Ok();
}

void Replay::Save(engine::RecipeState* state) {
  AllocateAll();
  state->tensors.emplace_back("replay.images", all_images_);
  state->tensors.emplace_back("replay.contexts", all_contexts_);
  state->tensors.emplace_back("replay.filled", all_filled_);
}

Status Replay::Restore(const engine::RecipeState& state) {
  at::Tensor images, contexts, filled;
  for (const auto& [name, tensor] : state.tensors) {
    if (name == "replay.images") images = tensor;
    if (name == "replay.contexts") contexts = tensor;
    if (name == "replay.filled") filled = tensor;
  }
  if (!images.defined() || !contexts.defined() || !filled.defined()) {
    return Status(Code::kUsage, "the checkpoint has no replay buffer",
                  "resume with recipe.loss.adversarial as it was, or start anew from its weights (checkpoint.weights)");
  }
  const at::NoGradGuard no_grad;
  for (uint64_t lane = 0; lane < shape_.lanes; ++lane) {
    const auto have = filled[static_cast<int64_t>(lane)].item<int64_t>();
    if (have < 0 || have > static_cast<int64_t>(shape_.entries)) {
      return Status(Code::kUsage, fmt::format("replay buffer: lane {} has {} entries, at most {} are possible", lane,
                                              have, shape_.entries));
    }
    filled_[lane] = static_cast<uint64_t>(have);
    if (lane < mine_.first || lane >= mine_.first + mine_.count || have == 0) continue;
    const auto at = static_cast<int64_t>((lane - mine_.first) * shape_.entries);
    images_.narrow(0, at, have).copy_(images[static_cast<int64_t>(lane)].narrow(0, 0, have));
    contexts_.narrow(0, at, have).copy_(contexts[static_cast<int64_t>(lane)].narrow(0, 0, have));
  }
  all_images_ = all_contexts_ = all_filled_ = at::Tensor();
  return Status::Ok();
}

}  // namespace lockstep::recipes
