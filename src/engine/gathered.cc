#include "engine/gathered.h"

#include <c10/core/Allocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

namespace lockstep::engine {

// Outlives the pool while a tensor still holds memory of it.
struct UnitMemory::Slots {
  std::vector<at::Tensor> all;
  std::vector<size_t> free;
};

namespace {

struct Taken {
  std::shared_ptr<void> pool;
  std::vector<size_t>* free;
  size_t slot;
};

void GiveBack(void* context) {
  const std::unique_ptr<Taken> taken(static_cast<Taken*>(context));
  taken->free->push_back(taken->slot);
}

}  // namespace

c10::DataPtr UnitMemory::Take(size_t bytes) {
  held_ += bytes;
  peak_ = std::max(peak_, held_);
  if (!device_.is_cpu()) return c10::GetAllocator(device_.type())->allocate(bytes);
  if (!slots_) slots_ = std::make_shared<Slots>();
  TORCH_CHECK(bytes <= largest_, "a unit of ", bytes, " bytes was not expected");
  if (slots_->free.empty()) {
    slots_->free.push_back(slots_->all.size());
    slots_->all.push_back(comm_->AllocateFlat(static_cast<int64_t>(largest_), at::kByte, device_));
  }
  // The lowest: on all ranks alike, whatever the order in which they were given back.
  const auto lowest = std::min_element(slots_->free.begin(), slots_->free.end());
  const size_t slot = *lowest;
  slots_->free.erase(lowest);
  auto* context = new Taken{slots_, &slots_->free, slot};
  return {slots_->all[slot].data_ptr(), context, &GiveBack, device_};
}

size_t UnitMemory::reserved() const { return device_.is_cpu() ? (slots_ ? slots_->all.size() * largest_ : 0) : peak_; }

comm::TensorWork ShardUpload::AllGather(const at::Tensor& shard, const at::Tensor& into,
                                        comm::TensorCommunicator* comm) {
  const at::NoGradGuard no_grad;
  if (device_.is_cpu()) return comm->AllGather(shard.clone(), into);
  const c10::impl::VirtualGuardImpl device(device_.type());
  const c10::Stream computes = device.getStream(device_);
  if (!stream_) stream_ = device.getStreamFromGlobalPool(device_);
  c10::Event free(device_.type());  // what was in the memory of `into` before is no longer used
  free.record(computes);
  const c10::StreamGuard on(*stream_);
  const at::Tensor here = at::empty(shard.sizes(), at::TensorOptions().dtype(shard.scalar_type()).device(device_));
  here.copy_(shard, /*non_blocking=*/true);
  copied_.emplace(device_.type());
  copied_->record(*stream_);
  free.block(*stream_);
  here.record_stream(computes);  // which waits for the gathering before anything is released
  return comm->AllGather(here, into);
}

void ShardUpload::Finish() {
  if (copied_) copied_->synchronize();
  copied_.reset();
}

GatheredBuffer::GatheredBuffer(std::vector<at::Tensor> shards, comm::TensorCommunicator* comm, UnitMemory* memory,
                               ShardUpload* upload)
    : shards_(std::move(shards)), comm_(comm), memory_(memory), upload_(upload) {
  if (shards_.empty()) return;
  for (const at::Tensor& shard : shards_) numel_ += shard.numel() * comm_->identity().size;
  const size_t bytes = static_cast<size_t>(numel_) * shards_.front().element_size();
  memory_->Expect(bytes);
  // A storage without memory, large enough for the tensor to be made.
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, memory_->device()));
  buffer_ = at::empty({0}, shards_.front().options().device(memory_->device())).set_(storage, 0, {numel_}, {1});
  storage.unsafeGetStorageImpl()->set_nbytes(size_t{0});
}

void GatheredBuffer::Start() {
  if (started_ || shards_.empty()) return;
  started_ = true;
  const size_t bytes = static_cast<size_t>(numel_) * buffer_.element_size();
  c10::StorageImpl* storage = buffer_.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(memory_->Take(bytes));
  storage->set_nbytes(bytes);
  int64_t begin = 0;
  for (const at::Tensor& shard : shards_) {
    const int64_t n = shard.numel() * comm_->identity().size;
    const at::Tensor into = buffer_.narrow(0, begin, n);
    works_.push_back(upload_ != nullptr ? upload_->AllGather(shard, into, comm_) : comm_->AllGather(shard, into));
    begin += n;
  }
}

Status GatheredBuffer::Wait() {
  if (works_.empty()) return Status::Ok();
  const comm::TensorCommunicator::WaitScope scope(comm_);
  Status status;
  for (comm::TensorWork& work : works_) {
    const Status one = work.Wait();
    if (status.ok()) status = one;
  }
  works_.clear();
  return status;
}

void GatheredBuffer::Release() {
  if (!started_) return;
  (void)Wait();
  started_ = false;
  c10::StorageImpl* storage = buffer_.storage().unsafeGetStorageImpl();
  memory_->Returned(storage->nbytes());
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, buffer_.device()));
  storage->set_nbytes(size_t{0});
}

}  // namespace lockstep::engine
