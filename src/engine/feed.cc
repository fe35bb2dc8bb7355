#include "engine/feed.h"

#include <map>
#include <mutex>

namespace lockstep::engine {
namespace {

at::ScalarType TypeOf(data::ElementType type) {
  switch (type) {
    case data::ElementType::kU8:
      return at::kByte;
    case data::ElementType::kF32:
      return at::kFloat;
    case data::ElementType::kI64:
      return at::kLong;
  }
  return at::kByte;
}

// Page-locked memory from torch, by address. The loader may release a buffer after it is gone itself.
struct PinnedMemory {
  std::mutex mutex;
  std::map<void*, at::Tensor> held;
};

void UsePinnedMemory(data::LoaderOptions* options) {
  auto memory = std::make_shared<PinnedMemory>();
  options->allocate = [memory](size_t bytes) {
    at::Tensor tensor =
        at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    const std::lock_guard lock(memory->mutex);
    void* address = tensor.data_ptr();
    memory->held.emplace(address, std::move(tensor));
    return address;
  };
  options->release = [memory](void* address, size_t) {
    const std::lock_guard lock(memory->mutex);
    memory->held.erase(address);
  };
}

}  // namespace

Feed::Feed(std::shared_ptr<const data::Source> source, Plan plan, std::optional<uint64_t> passes,
           data::LoaderOptions options, at::Device device)
    : source_(std::move(source)), plan_(std::move(plan)), device_(device) {
  if (device_.is_cuda()) UsePinnedMemory(&options);
  loader_ = std::make_unique<data::Loader>(source_, plan_, 0, passes, std::move(options));
}

Result<FeedItem> Feed::Next() {
  FeedItem item;
  item.planned = plan_(next_++);
  Result<data::Batch> batch = loader_->Next();
  if (!batch.ok()) return batch.status();
  item.wait_seconds = batch->wait_seconds;
  item.bad = batch->bad;
  item.batch.ids = batch->ids;
  for (const data::FieldBatch& field : batch->fields) {
    std::vector<int64_t> shape = {static_cast<int64_t>(field.count)};
    shape.insert(shape.end(), field.field->shape.begin(), field.field->shape.end());
    at::Tensor host = at::from_blob(
        field.data, shape, [hold = batch->hold](void*) {}, at::TensorOptions().dtype(TypeOf(field.field->type)));
    // The copy waits: the buffer goes back to the loader once the batch is on the device.
    item.batch.fields[field.field->name] = device_.is_cpu() ? host : host.to(device_);
  }
  return item;
}

}  // namespace lockstep::engine
