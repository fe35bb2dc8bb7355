#include "recipes/feature_build.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "data/loader.h"

namespace lockstep::recipes {
namespace {

constexpr uint64_t kUnitBytes = 64u << 20;
constexpr uint64_t kUnitRows = 4096;

// Records of one sample: each frame is one where features are independent.
uint64_t RecordsPerSample(const cache::Description& description, const data::Source& source) {
  return description.context == cache::Context::kIndependent ? static_cast<uint64_t>(source.fields()[0].shape[0]) : 1;
}

// The work on one unit.
class UnitEncoder {
 public:
  UnitEncoder(const cache::Folder& folder, const FeatureBuild& build, cache::UnitSink* sink)
      : folder_(folder), build_(build), sink_(*sink), shape_(build.source->fields()[0].shape) {
    per_sample_ = RecordsPerSample(folder.description(), *build.source);
    if (folder.description().context == cache::Context::kIndependent) shape_.erase(shape_.begin());
    bytes_ = 1;
    for (const int64_t size : shape_) bytes_ *= static_cast<size_t>(size);
  }

  Status Encode(const data::Batch& batch) {
    for (const data::BadSample& bad : batch.bad) {
      LogWarn("{}: {}: it has no record", bad.name, bad.status.message());
      sink_.Bad();
    }
    const data::FieldBatch& frames = batch.fields[0];
    std::vector<cache::RecordKey> keys;
    std::vector<int64_t> wanted;
    for (size_t i = 0; i < frames.count * per_sample_; ++i) {
      keys.push_back(KeyOfFrames(folder_, frames.data + i * bytes_, shape_));
      if (sink_.Wanted(keys.back().key)) wanted.push_back(static_cast<int64_t>(i));
    }
    std::vector<int64_t> sizes = {static_cast<int64_t>(keys.size())};
    sizes.insert(sizes.end(), shape_.begin(), shape_.end());
    const at::Tensor all = at::from_blob(frames.data, sizes, at::kByte);
    for (size_t first = 0; first < wanted.size(); first += build_.batch) {
      const std::span<const int64_t> some =
          std::span(wanted).subspan(first, std::min<size_t>(build_.batch, wanted.size() - first));
      LOCKSTEP_RETURN_IF_ERROR(EncodeSome(batch, all, some, keys));
    }
    return Status::Ok();
  }

 private:
  Status EncodeSome(const data::Batch& batch, const at::Tensor& all, std::span<const int64_t> some,
                    const std::vector<cache::RecordKey>& keys) {
    const at::Tensor which = at::tensor(at::ArrayRef<int64_t>(some.data(), some.size()), at::kLong);
    Result<std::vector<at::Tensor>> features = build_.encode(all.index_select(0, which));
    if (!features.ok()) return features.status();
    for (at::Tensor& feature : *features) feature = feature.to(at::kCPU).contiguous();
    for (size_t i = 0; i < some.size(); ++i) {
      const auto at = static_cast<size_t>(some[i]);
      // Twice the same in one batch.
      if (!sink_.Wanted(keys[at].key)) continue;
      std::vector<const std::byte*> fields;
      for (const at::Tensor& feature : *features) {
        const size_t bytes = feature.nbytes() / some.size();
        fields.push_back(static_cast<const std::byte*>(feature.const_data_ptr()) + i * bytes);
      }
      const std::string name = build_.source->Name(batch.ids[at / per_sample_].index);
      LOCKSTEP_RETURN_IF_ERROR(sink_.Put(keys[at], fields).Context(name));
    }
    return Status::Ok();
  }

  const cache::Folder& folder_;
  const FeatureBuild& build_;
  cache::UnitSink& sink_;
  std::vector<int64_t> shape_;  // of a record's pictures
  size_t bytes_ = 0;            // likewise
  uint64_t per_sample_ = 1;
};

}  // namespace

cache::RecordKey KeyOfFrames(const cache::Folder& folder, const std::byte* frames, const std::vector<int64_t>& shape) {
  const size_t axes = shape.size();
  const auto one = static_cast<size_t>(shape[axes - 3] * shape[axes - 2] * shape[axes - 1]);
  const auto count = static_cast<size_t>(axes == 4 ? shape[0] : 1);
  std::vector<cache::ItemDigest> items;
  for (size_t i = 0; i < count; ++i) items.push_back(cache::DigestItem(frames + i * one, one));
  return *cache::KeyOf(folder.id(), folder.description().context, items);
}

cache::Plan PlanFor(const data::Source& source, const data::SourceConfig& clips,
                    const cache::Description& description) {
  const uint64_t per_sample = RecordsPerSample(description, source);
  const uint64_t fit = std::min(kUnitRows, kUnitBytes / description.RowBytes()) / per_sample;
  // At least 16 units where there are as many samples, so that ranks have something to share.
  const uint64_t rows = std::max<uint64_t>(1, std::min(fit, (source.size() + 15) / 16));
  return {
      fmt::format("{} {} frames {}x{} stride {}-{} {} per video {} {}", source.Digest(), clips.frames, clips.width,
                  clips.height, clips.min_stride, clips.max_stride, clips.clips_per_video, clips.resize, clips.decode),
      source.size(), rows};
}

Result<cache::BuildProgress> BuildFeatures(const cache::Folder& folder, const FeatureBuild& build,
                                           cache::BuildOptions options) {
  options.records_per_sample = RecordsPerSample(folder.description(), *build.source);
  const uint64_t at_once = std::max<uint64_t>(1, build.batch / options.records_per_sample);  // samples
  const auto encode = [&](uint64_t first, uint64_t count, cache::UnitSink& sink) -> Status {
    const uint64_t batches = (count + at_once - 1) / at_once;
    const auto ids = [&](uint64_t n) {
      std::vector<data::SampleId> made;
      for (uint64_t i = n * at_once; i < std::min(count, (n + 1) * at_once); ++i)
        made.push_back({0, first + i, first + i});
      return made;
    };
    data::LoaderOptions loading;
    loading.threads = build.threads;
    data::Loader loader(build.source, ids, 0, batches, loading);
    UnitEncoder encoder(folder, build, &sink);
    for (uint64_t n = 0; n < batches; ++n) {
      if (options.stop()) return Status(Code::kInterrupted, "stopped", "start it again: published units stay");
      Result<data::Batch> batch = loader.Next();
      if (!batch.ok()) return batch.status();
      LOCKSTEP_RETURN_IF_ERROR(encoder.Encode(*batch));
    }
    return Status::Ok();
  };
  return cache::Build(folder, build.plan, encode, options);
}

}  // namespace lockstep::recipes
