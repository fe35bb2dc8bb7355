#include "cli/train/data_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/clock.h"
#include "base/resident.h"
#include "base/text.h"
#include "base/units.h"
#include "data/stages.h"

namespace lockstep::cli {
namespace {

// Bytes [..., 3, H, W] as floats: (x / 255 - mean) / deviation of ImageNet, with the bits that torch's operators give.
class Normaliser {
 public:
  Normaliser() {
    constexpr std::array<float, 3> kMean = {0.485f, 0.456f, 0.406f}, kDeviation = {0.229f, 0.224f, 0.225f};
    for (size_t c = 0; c < 3; ++c) {
      for (size_t x = 0; x < 256; ++x) values_[c][x] = (static_cast<float>(x) / 255 - kMean[c]) / kDeviation[c];
    }
  }

  Status Apply(const data::Batch& batch) {
    const data::Field& field = *batch.fields[0].field;
    if (field.type != data::ElementType::kU8 || field.shape.size() != 4 || field.shape[1] != 3) {
      return Status(Code::kUsage, fmt::format("--normalise is for pictures, and the field '{}' is none", field.name));
    }
    const size_t plane = static_cast<size_t>(field.shape[2] * field.shape[3]);
    const size_t planes = batch.count() * static_cast<size_t>(field.shape[0]) * 3;
    out_.resize(planes * plane);
    const auto* from = reinterpret_cast<const uint8_t*>(batch.fields[0].data);
    for (size_t p = 0; p < planes; ++p) {
      const std::array<float, 256>& value = values_[p % 3];
      for (size_t i = 0; i < plane; ++i) out_[p * plane + i] = value[from[p * plane + i]];
    }
    return Status::Ok();
  }

 private:
  std::array<std::array<float, 256>, 3> values_{};
  std::vector<float> out_;
};

// What limits the speed, in words.
std::string Bottleneck(const data::LoaderStats& stats, double seconds, int threads) {
  const auto& stages = stats.stages.seconds;
  const size_t most = std::ranges::max_element(stages) - stages.begin();
  const double busy = stats.read_seconds / (seconds * threads);
  return fmt::format("{} takes {:.0f} % of the time of a sample; the {} {} busy for {:.0f} %", data::kStageNames[most],
                     100 * stages[most] / std::max(stats.read_seconds, 1e-9), Count(threads, "thread"),
                     threads == 1 ? "is" : "are", 100 * busy);
}

struct Measured {
  double seconds = 0;
  data::LoaderStats stats;         // of these seconds
  std::vector<uint64_t> resident;  // after each epoch
};

Result<Measured> Measure(data::Loader* loader, const BenchOptions& options) {
  Normaliser normaliser;
  const auto next = [&] {
    const Result<data::Batch> batch = loader->Next();
    if (!batch.ok()) return batch.status();
    return options.normalise ? normaliser.Apply(*batch) : Status::Ok();
  };
  LOCKSTEP_RETURN_IF_ERROR(next());  // starts the threads, fills caches
  const data::LoaderStats before = loader->stats();
  const TimePoint start = Now();
  Measured found;
  const uint64_t most = options.epochs * options.epoch_batches;
  for (uint64_t done = 1; options.epochs > 0 ? done <= most : SecondsSince(start) < options.seconds; ++done) {
    LOCKSTEP_RETURN_IF_ERROR(next());
    if (options.epochs > 0 && done % options.epoch_batches == 0) found.resident.push_back(ResidentBytes());
  }
  found.seconds = SecondsSince(start);
  found.stats = loader->stats();
  found.stats.samples_read -= before.samples_read;
  found.stats.samples_bad -= before.samples_bad;
  found.stats.read_seconds -= before.read_seconds;
  for (size_t i = 0; i < data::kStages; ++i) found.stats.stages.seconds[i] -= before.stages.seconds[i];
  return found;
}

}  // namespace

Status BenchLoader(const data::Source& source, data::Loader* loader, const BenchOptions& options) {
  const Result<Measured> found = Measure(loader, options);
  if (!found.ok()) return found.status();
  const data::LoaderStats& stats = found->stats;
  const auto samples = static_cast<double>(stats.samples_read + stats.samples_bad);
  const double rate = samples / found->seconds;
  const std::string limit = Bottleneck(stats, found->seconds, options.threads);
  if (options.json) {
    nlohmann::json stages;
    for (size_t i = 0; i < data::kStages; ++i) {
      stages[data::kStageNames[i]] = stats.stages.seconds[i] / std::max(samples, 1.0);
    }
    const nlohmann::json summary = {
        {"data", source.Describe()},          {"threads", options.threads}, {"seconds", found->seconds},
        {"samples_per_second", rate},         {"bad", stats.samples_bad},   {"seconds_per_sample", stages},
        {"buffer_bytes", stats.buffer_bytes}, {"bottleneck", limit},        {"resident_bytes", found->resident}};
    fmt::print("{}\n", summary.dump(2));
    return Status::Ok();
  }
  fmt::print("{}\n{:.1f} samples/s with {}, {} in {:.1f} s{}\n", source.Describe(), rate,
             Count(options.threads, "thread"), stats.samples_read, found->seconds,
             stats.samples_bad > 0 ? fmt::format(", {} damaged", stats.samples_bad) : "");
  for (size_t i = 0; i < data::kStages; ++i) {
    fmt::print("  {:<10} {:9.3f} ms a sample\n", data::kStageNames[i],
               1e3 * stats.stages.seconds[i] / std::max(samples, 1.0));
  }
  fmt::print("bottleneck: {}\n", limit);
  if (!found->resident.empty()) {
    fmt::print("resident memory after {}: {}; after each:", Count(options.epochs, "epoch"),
               FormatSize(found->resident.back()));
    for (const uint64_t bytes : found->resident) fmt::print(" {}", FormatSize(bytes));
    fmt::print("\n");
  }
  return Status::Ok();
}

}  // namespace lockstep::cli
