#include "engine/zero.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"

namespace lockstep::engine {
namespace {

// Buckets whose exchange is under way while the next one is filled.
constexpr size_t kInFlight = 2;

void ThrowIfError(const Status& status) { TORCH_CHECK(status.ok(), status.ToString()); }

}  // namespace

Zero::Zero(const StrategyConfig& config, FlatParameters* flat, Ranks* ranks) : Ddp(config, flat, ranks) {
  if (exchanges_every_pass()) {
    filling_.resize(buckets().size());
    piece_of_.resize(buckets().size(), 0);
    if (flat->device().is_cpu()) {
      int64_t largest = 0;
      for (const FlatRange& bucket : buckets()) largest = std::max(largest, bucket.size());
      const size_t count = std::min(kInFlight + 1, buckets().size());
      for (size_t i = 0; i < count; ++i) {
        pieces_.push_back(ranks->tensors().AllocateFlat(largest, at::kFloat, flat->device()));
        free_pieces_.push_back(i);
      }
    }
  }
  if (!sharded()) return;
  memory_ = std::make_unique<UnitMemory>(&ranks->tensors(), flat->device());
  if (flat->options().host_parameters) upload_ = std::make_unique<ShardUpload>(flat->device());
  const auto shards_of = [&](int group) {
    std::vector<at::Tensor> shards;
    const FlatRange range = BucketsOf(group);
    for (int64_t b = range.begin; b < range.end; ++b) shards.push_back(flat_->Shard(static_cast<size_t>(b)));
    return shards;
  };
  for (size_t u = 0; u < config_.units.size(); ++u) {
    units_.push_back(std::make_unique<GatheredBuffer>(shards_of(static_cast<int>(u)), &ranks->tensors(), memory_.get(),
                                                      upload_.get()));
    sizes_.push_back(units_.back()->numel());
  }
  frozen_of_.resize(units_.size());
  for (const FrozenGroup& group : flat_->frozen().groups()) {
    frozen_of_[group.unit].push_back(frozen_.size());
    frozen_.push_back(
        std::make_unique<GatheredBuffer>(std::vector{group.shard}, &ranks->tensors(), memory_.get(), upload_.get()));
    sizes_[group.unit] += frozen_.back()->numel();
  }
  always_ = std::make_unique<GatheredBuffer>(shards_of(FlatParameters::kAlways), &ranks->tensors(), memory_.get(),
                                             upload_.get());
  order_ = std::make_unique<UnitOrder>(sizes_);
  started_.assign(units_.size(), false);
  placed_.assign(units_.size(), false);
  for (int group = FlatParameters::kAlways; group < static_cast<int>(units_.size()); ++group) flat_->Place(group, {});
}

Zero::~Zero() = default;

FlatRange Zero::BucketsOf(int group) const {
  FlatRange range;
  for (size_t b = 0; b < buckets().size(); ++b) {
    if (flat_->layout().GroupOf(b) != group) continue;
    if (range.size() == 0) range.begin = range.end = static_cast<int64_t>(b);
    ++range.end;
  }
  return range;
}

at::Tensor Zero::OwnGradients(size_t bucket) const {
  const FlatRange range = flat_->OwnRange(bucket);
  return flat_->owned().Gradients(range.begin, range.size(),
                                  flat_->layout().Share(bucket, flat_->options().share).begin);
}

void Zero::BeginStep() {
  Ddp::BeginStep();
  first_pass_ = true;
}

void Zero::BeginBackward(bool last) {
  last_pass_ = last;
  // What several passes add up to begins with zero; a single pass writes it.
  if (exchanges_every_pass() && first_pass_ && !last) flat_->owned().gradients.zero_();
  if (order_) order_->Begin();
  in_pass_ = true;
  Ddp::BeginBackward(last || exchanges_every_pass());
}

// The memory that a bucket's gradients are put into.
at::Tensor Zero::Filling(size_t bucket) {
  at::Tensor& memory = filling_[bucket];
  if (memory.defined()) return memory;
  const int64_t n = buckets()[bucket].size();
  if (!flat_->device().is_cpu()) return memory = at::empty({n}, flat_->owned().gradients.options());
  if (free_pieces_.empty() && in_flight_.empty()) {  // more buckets are open at once than there are pieces
    free_pieces_.push_back(pieces_.size());
    pieces_.push_back(at::empty({pieces_.front().numel()}, pieces_.front().options()));
  }
  if (free_pieces_.empty()) Retire();
  const auto lowest = std::min_element(free_pieces_.begin(), free_pieces_.end());
  piece_of_[bucket] = *lowest;
  free_pieces_.erase(lowest);
  return memory = pieces_[piece_of_[bucket]].narrow(0, 0, n);
}

void Zero::Take(size_t parameter, int before, bool touched) {
  if (!exchanges_every_pass()) return Ddp::Take(parameter, before, touched);
  const at::NoGradGuard no_grad;
  const FlatParameter& p = flat_->parameters()[parameter];
  const size_t bucket = flat_->layout().parameters()[parameter].bucket;
  const at::Tensor to = Filling(bucket).narrow(0, p.offset - buckets()[bucket].begin, p.numel).view(p.shape);
  at::Tensor& gradient = p.tensor.mutable_grad();
  before > 0 ? to.add_(gradient) : to.copy_(gradient);
  gradient.reset();
}

void Zero::ZeroWhatDidNotCome(size_t bucket, const at::Tensor& memory) {
  const int64_t begin = buckets()[bucket].begin;
  int64_t filled = 0;
  const auto zero_up_to = [&](int64_t end) {
    if (filled < end) memory.narrow(0, filled, end - filled).zero_();
  };
  const auto& parameters = flat_->layout().parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].bucket != bucket || !came(i)) continue;
    zero_up_to(parameters[i].offset - begin);
    filled = parameters[i].offset - begin + parameters[i].numel;
  }
  zero_up_to(memory.numel());
}

void Zero::Launch(size_t bucket) {
  const at::NoGradGuard no_grad;
  const FlatRange& range = buckets()[bucket];
  if (!exchanges_every_pass()) {
    works_[bucket] =
        ranks_->tensors().ReduceScatter(flat_->gradients().narrow(0, range.begin, range.size()), OwnGradients(bucket));
    return;
  }
  const at::Tensor memory = Filling(bucket);
  ZeroWhatDidNotCome(bucket, memory);
  const at::Tensor own = OwnGradients(bucket);
  InFlight one{bucket, piece_of_[bucket], memory, {}, {}};
  if (!first_pass_ || !last_pass_) one.sum = at::empty_like(own);
  one.work = ranks_->tensors().ReduceScatter(memory, one.sum.defined() ? one.sum : own);
  in_flight_.push_back(std::move(one));
  filling_[bucket].reset();
  while (in_flight_.size() > kInFlight) Retire();
}

// The oldest bucket's sum is there.
void Zero::Retire() {
  const at::NoGradGuard no_grad;
  InFlight one = std::move(in_flight_.front());
  in_flight_.pop_front();
  ThrowIfError(one.work.Wait());
  if (one.sum.defined()) OwnGradients(one.bucket).add_(one.sum);
  if (flat_->device().is_cpu()) free_pieces_.push_back(one.piece);
}

Status Zero::EndBackward(Backward outcome) {
  const std::lock_guard lock(mutex_);
  try {
    if (sharded()) {
      if (outcome != Backward::kDone) RunRest();
      if (outcome == Backward::kDone) order_->End();
      ReleaseAll();
    }
    const Status status = Ddp::EndBackward(outcome);
    while (!in_flight_.empty()) Retire();
    first_pass_ = false;
    in_pass_ = false;
    return status;
  } catch (const c10::Error& error) {
    in_pass_ = false;
    return Status(Code::kRankFailed, error.what_without_backtrace());
  }
}

Status Zero::FinishGradients() {
  const TimePoint start = Now();
  LOCKSTEP_RETURN_IF_ERROR(WaitForExchange());
  LOCKSTEP_RETURN_IF_ERROR(AgreeOnUsed());
  if (tree_) flat_->ReadOwnedGradients();
  if (upload_) upload_->Finish();  // an update follows
  exposed_seconds_ = SecondsSince(start);
  return Status::Ok();
}

std::string Zero::WhyNotCaptured() const {
  if (sharded()) return "the parameters of a unit are gathered while it runs (train.zero.stage: 3)";
  if (exchanges_every_pass() && !ranks_->tensors().recordable()) {
    return "gradients leave during backward (train.zero.stage: 2), over a transport that cannot be captured";
  }
  return "";
}

Status Zero::EndCapture(bool last) {
  if (exchanges_every_pass()) return EndBackward(Backward::kDone);
  if (!last || !captures_exchange()) return Status::Ok();
  LOCKSTEP_RETURN_IF_ERROR(EndBackward(Backward::kDone));
  return FinishGradients();
}

Status Zero::Replayed(bool last) {
  first_pass_ = false;
  return exchanges_every_pass() ? Status::Ok() : Ddp::Replayed(last);
}

Status Zero::PublishParameters() {
  const at::NoGradGuard no_grad;
  flat_->WriteOwnedValues();
  if (sharded()) {
    const std::lock_guard lock(mutex_);
    ReleaseAll();
    always_->Release();
    always_->Start();
    LOCKSTEP_RETURN_IF_ERROR(always_->Wait());
    if (always_->numel() > 0) flat_->Place(FlatParameters::kAlways, always_->buffer());
    if (upload_) upload_->Finish();  // the EMA may be swapped in
    return Status::Ok();
  }
  const int me = flat_->options().share;
  std::vector<comm::TensorWork> works;
  for (size_t b = 0; b < buckets().size(); ++b) {
    const FlatRange own = flat_->layout().Share(b, me);
    works.push_back(ranks_->tensors().AllGather(flat_->values().narrow(0, own.begin, own.size()),
                                                flat_->values().narrow(0, buckets()[b].begin, buckets()[b].size())));
  }
  const comm::TensorCommunicator::WaitScope scope(&ranks_->tensors());
  Status status;
  for (comm::TensorWork& work : works) {
    const Status one = work.Wait();
    if (status.ok()) status = one;
  }
  return status;
}

// Every rank draws or reads the same values, and keeps its share of them.
Status Zero::AdoptParameters() {
  const std::string own = fmt::format("{:016x}", static_cast<uint64_t>(flat_->fingerprint()));
  const Result<std::vector<std::string>> all = ranks_->host().Gather(own);
  if (!all.ok()) return all.status();
  for (size_t r = 1; r < all->size(); ++r) {
    if ((*all)[r] == all->front()) continue;
    return ranks_->Agree(Status(Code::kUsage, fmt::format("the first weights of rank {} differ from rank 0's", r),
                                "give every node the same weights file, and every rank the same run.seed"));
  }
  return PublishParameters();
}

ParallelStrategy::Held Zero::held() const {
  Held held;
  for (const at::Tensor& piece : pieces_) held.buckets += piece.nbytes();
  if (memory_) held.gathered = memory_->reserved();
  return held;
}

Status Zero::CombineNorm(SquareSum* squares) {
  std::array<int64_t, SquareSum::kWords> words = squares->ToWords();
  LOCKSTEP_RETURN_IF_ERROR(ranks_->host().AllReduceNow(words.data(), words.size(), comm::DType::kI64));
  *squares = SquareSum::FromWords(words);
  return Status::Ok();
}

Status Zero::CombineOverRanks(const at::Tensor& numbers, comm::Op op) {
  return ranks_->tensors().AllReduce(numbers, op).Wait();
}

}  // namespace lockstep::engine
