#include "engine/gathered.h"

#include <c10/core/Allocator.h>

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

GatheredBuffer::GatheredBuffer(std::vector<at::Tensor> shards, comm::TensorCommunicator* comm, UnitMemory* memory)
    : shards_(std::move(shards)), comm_(comm), memory_(memory) {
  if (shards_.empty()) return;
  for (const at::Tensor& shard : shards_) numel_ += shard.numel() * comm_->identity().size;
  const size_t bytes = static_cast<size_t>(numel_) * shards_.front().element_size();
  memory_->Expect(bytes);
  // A storage without memory, large enough for the tensor to be made.
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, shards_.front().device()));
  buffer_ = at::empty({0}, shards_.front().options()).set_(storage, 0, {numel_}, {1});
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
    works_.push_back(comm_->AllGather(shard, buffer_.narrow(0, begin, n)));
    begin += n;
  }
}

Status GatheredBuffer::Wait() {
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
