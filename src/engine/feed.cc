#include "engine/feed.h"

#include <c10/core/impl/VirtualGuardImpl.h>

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
  const auto ids = [plan = plan_](uint64_t n) { return plan(n).ids; };
  loader_ = std::make_unique<data::Loader>(source_, ids, 0, passes, std::move(options));
}

Result<FeedItem> Feed::Next() {
  FeedItem item;
  Planned planned = plan_(next_++);
  Result<data::Batch> batch = loader_->Next();
  if (!batch.ok()) return batch.status();
  item.wait_seconds = batch->wait_seconds;
  item.bad = batch->bad;
  item.batch.ids = batch->ids;
  // Those that are there, in the planned order.
  for (size_t i = 0; i < planned.ids.size() && item.batch.lanes.size() < batch->ids.size(); ++i) {
    if (planned.ids[i] == batch->ids[item.batch.lanes.size()]) item.batch.lanes.push_back(planned.first_lane + i);
  }
  item.planned = std::move(planned.ids);
  std::vector<at::Tensor> hosts;
  for (const data::FieldBatch& field : batch->fields) {
    std::vector<int64_t> shape = {static_cast<int64_t>(field.count)};
    shape.insert(shape.end(), field.field->shape.begin(), field.field->shape.end());
    at::Tensor host = at::from_blob(
        field.data, shape, [hold = batch->hold](void*) {}, at::TensorOptions().dtype(TypeOf(field.field->type)));
    item.batch.fields[field.field->name] =
        device_.is_cpu() ? host : at::empty(shape, host.options().device(device_)).copy_(host, /*non_blocking=*/true);
    if (field.field->bytes() <= TensorBatch::kSmallField) item.batch.host[field.field->name] = host.clone();
    hosts.push_back(std::move(host));
  }
  if (device_.is_cpu()) return item;
  // The buffers go back to the loader once they are copied.
  while (!in_flight_.empty() && in_flight_.front().done.query()) in_flight_.pop_front();
  InFlight copy{c10::Event(device_.type()), std::move(hosts)};
  copy.done.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  in_flight_.push_back(std::move(copy));
  return item;
}

}  // namespace lockstep::engine
