#include "data/cached_source.h"

#include <cstring>
#include <mutex>
#include <unordered_map>

namespace lockstep::data {
namespace {

class CachedSource final : public Source {
 public:
  CachedSource(std::shared_ptr<const Source> source, uint64_t bytes) : source_(std::move(source)), left_(bytes) {}
  const std::vector<Field>& fields() const override { return source_->fields(); }
  const std::vector<Field>& FieldsOf(uint64_t index) const override { return source_->FieldsOf(index); }
  uint64_t size() const override { return source_->size(); }
  std::string Name(uint64_t index) const override { return source_->Name(index); }
  std::string Origin(uint64_t index) const override { return source_->Origin(index); }
  std::string Describe() const override { return source_->Describe(); }
  std::string Digest() const override { return source_->Digest(); }

  Status Read(const Draw& draw, std::span<std::byte* const> out) const override {
    if (draw.augment) return source_->Read(draw, out);
    std::shared_ptr<const std::byte[]> kept;
    {
      const std::lock_guard lock(mutex_);
      if (const auto it = kept_.find(draw.index); it != kept_.end()) kept = it->second;
    }
    const std::vector<Field>& fields = FieldsOf(draw.index);
    if (kept) {
      Copy(fields, kept.get(), out);
      return Status::Ok();
    }
    LOCKSTEP_RETURN_IF_ERROR(source_->Read(draw, out));
    uint64_t sample_bytes = 0;
    for (const Field& field : fields) sample_bytes += field.bytes();
    {
      const std::lock_guard lock(mutex_);
      if (left_ < sample_bytes || kept_.contains(draw.index)) return Status::Ok();
      left_ -= sample_bytes;
    }
    std::shared_ptr<std::byte[]> copy(new std::byte[sample_bytes]);
    size_t at = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      std::memcpy(copy.get() + at, out[i], fields[i].bytes());
      at += fields[i].bytes();
    }
    const std::lock_guard lock(mutex_);
    if (!kept_.emplace(draw.index, std::move(copy)).second) left_ += sample_bytes;  // another thread was first
    return Status::Ok();
  }

 private:
  static void Copy(const std::vector<Field>& fields, const std::byte* from, std::span<std::byte* const> out) {
    for (size_t i = 0; i < out.size(); ++i) {
      std::memcpy(out[i], from, fields[i].bytes());
      from += fields[i].bytes();
    }
  }

  std::shared_ptr<const Source> source_;
  mutable std::mutex mutex_;
  mutable uint64_t left_;
  mutable std::unordered_map<uint64_t, std::shared_ptr<const std::byte[]>> kept_;
};

}  // namespace

std::unique_ptr<Source> Cached(std::shared_ptr<const Source> source, uint64_t bytes) {
  return std::make_unique<CachedSource>(std::move(source), bytes);
}

}  // namespace lockstep::data
