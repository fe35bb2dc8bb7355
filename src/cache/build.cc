#include "cache/build.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/units.h"

namespace lockstep::cache {
namespace {

constexpr std::chrono::milliseconds kLookAgain{200};  // while only units of others are left

bool Exists(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0;
}

// The plan's units that are published.
Result<std::set<std::string>> Published(const Folder& folder, const Plan& plan) {
  const Result<std::vector<std::string>> names = folder.Units();
  if (!names.ok()) return names.status();
  std::set<std::string> found;
  const std::string prefix = plan.Id() + "-";
  for (const std::string& name : *names) {
    if (name.starts_with(prefix)) found.insert(name);
  }
  return found;
}

Status CheckSpace(const Folder& folder, const Plan& plan, uint64_t published, uint64_t per_sample) {
  struct statvfs space{};
  if (::statvfs(folder.path().c_str(), &space) != 0) return Status::Ok();
  const uint64_t samples = plan.samples - std::min(plan.samples, published * plan.rows);
  const uint64_t needed =
      samples * per_sample * (folder.description().RowBytes() + 40) + (plan.units() - published) * 3 * kBlock;
  const uint64_t free = static_cast<uint64_t>(space.f_bavail) * space.f_frsize;
  if (needed <= free) return Status::Ok();
  return Status(Code::kEnvironment,
                fmt::format("'{}': {} samples need {}, the file system has {} free", folder.path(), samples,
                            FormatSize(needed), FormatSize(free)),
                "store in fewer bits (bf16, f8_e4m3, int8), free space (`lockstep cache gc`), or use another root");
}

}  // namespace

UnitSink::UnitSink(const Folder& folder, const Reader* there, uint64_t rows)
    : folder_(folder),
      there_(there),
      unit_(folder.description().Columns(), rows),
      errors_(folder.description().fields.size()) {}

bool UnitSink::Wanted(const Digest& key) const { return !unit_.Has(key) && (there_ == nullptr || !there_->Has(key)); }

Status UnitSink::Put(const RecordKey& key, std::span<const std::byte* const> fields) {
  const std::vector<FieldSpec>& specs = folder_.description().fields;
  const std::vector<std::byte*> columns = unit_.Add(key.key);
  std::vector<std::byte> sorted;
  size_t column = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::byte* from = fields[i];
    if (specs[i].per_item && !key.order.empty()) {
      sorted.resize(specs[i].bytes());
      const size_t one = sorted.size() / key.order.size();
      for (size_t item = 0; item < key.order.size(); ++item) {
        std::copy_n(fields[i] + item * one, one, sorted.data() + key.order[item] * one);
      }
      from = sorted.data();
    }
    const size_t width = specs[i].stored == Storage::kF8 || specs[i].stored == Storage::kInt8 ? 2 : 1;
    LOCKSTEP_RETURN_IF_ERROR(Pack(specs[i], from, std::span(columns).subspan(column, width), &errors_[i]));
    column += width;
  }
  return Status::Ok();
}

std::map<std::string, double> UnitSink::Errors() const {
  std::map<std::string, double> errors;
  for (size_t i = 0; i < errors_.size(); ++i) {
    const FieldSpec& field = folder_.description().fields[i];
    if (field.stored != Storage::kSame) errors[field.name] = errors_[i].Relative();
  }
  return errors;
}

namespace {

// One build by one process.
class Builder {
 public:
  Builder(const Folder& folder, const Plan& plan, const EncodeUnit& encode, const BuildOptions& options)
      : folder_(folder), plan_(plan), encode_(encode), options_(options), leases_(options.timing) {}

  Result<BuildProgress> Run();

 private:
  struct Writing {
    std::string unit;
    std::shared_ptr<UnitSink> sink;
    std::future<Result<bool>> done;
  };

  // Takes, encodes and hands over one unit. False: somebody else has it.
  Result<bool> One(uint64_t number);
  Status FinishWriting();
  Status CheckErrors(const UnitSink& sink) const;
  void Tell(bool now);

  const Folder& folder_;
  const Plan& plan_;
  const EncodeUnit& encode_;
  const BuildOptions& options_;
  Leases leases_;
  std::unique_ptr<Reader> there_;
  std::optional<Writing> writing_;
  BuildProgress progress_;
  uint64_t published_before_ = 0;
  TimePoint start_ = Now(), next_ = Now();
};

Status Builder::CheckErrors(const UnitSink& sink) const {
  for (const auto& [field, error] : sink.Errors()) {
    if (error <= options_.error_limit) continue;
    return Status(
        Code::kUsage,
        fmt::format("field '{}' loses {:.3g} of its values (relative error) in its stored type, more than {:.3g}",
                    field, error, options_.error_limit),
        "store it in more bits, or allow more with --max-error");
  }
  return Status::Ok();
}

Status Builder::FinishWriting() {
  if (!writing_) return Status::Ok();
  const TimePoint start = Now();
  const Result<bool> done = writing_->done.get();
  progress_.write_wait += SecondsSince(start);
  leases_.Release(folder_.LeasePath(writing_->unit));
  if (done.ok() && *done) {
    ++progress_.own;
    progress_.records += writing_->sink->unit().rows();
    progress_.bytes += writing_->sink->unit().bytes();
    progress_.bad += writing_->sink->bad();
  }
  writing_.reset();
  return done.status();
}

Result<bool> Builder::One(uint64_t number) {
  const std::string unit = plan_.UnitName(number);
  const std::string lease = folder_.LeasePath(unit);
  const Result<Leases::Taken> taken = leases_.Take(lease);
  if (!taken.ok()) return taken.status();
  if (*taken == Leases::Taken::kHeldByOther) return false;
  if (*taken == Leases::Taken::kTakenOver) ++progress_.taken_over;
  if (Exists(folder_.UnitPath(unit))) {  // published between looking and taking
    leases_.Release(lease);
    return true;
  }
  const uint64_t first = number * plan_.rows, count = std::min(plan_.rows, plan_.samples - first);
  auto sink = std::make_shared<UnitSink>(folder_, there_.get(), count * options_.records_per_sample);
  Status encoded = encode_(first, count, *sink);
  if (encoded.ok()) encoded = CheckErrors(*sink);
  if (!encoded.ok()) {
    leases_.Release(lease);
    return encoded.Context(fmt::format("samples {} to {}", first, first + count - 1));
  }
  LOCKSTEP_RETURN_IF_ERROR(FinishWriting());
  if (!leases_.Holds(lease)) return false;  // somebody took it over and will publish it
  const std::map<std::string, std::string> metadata = {{"namespace", folder_.id()},
                                                       {"plan", plan_.Id()},
                                                       {"number", std::to_string(number)},
                                                       {"error", nlohmann::json(sink->Errors()).dump()}};
  Writing writing{unit, sink, {}};
  writing.done = std::async(std::launch::async, [path = folder_.UnitPath(unit), sink, metadata] {
    return sink->unit().Publish(path, metadata);
  });
  writing_ = std::move(writing);
  return true;
}

void Builder::Tell(bool now) {
  if (!now && Now() < next_) return;
  next_ = Now() + std::chrono::seconds(1);
  const Result<std::set<std::string>> published = Published(folder_, plan_);
  if (published.ok()) progress_.published = published->size();
  progress_.seconds = SecondsSince(start_);
  const uint64_t since = progress_.published - std::min(progress_.published, published_before_);
  progress_.left = since == 0 ? 0
                              : progress_.seconds / static_cast<double>(since) *
                                    static_cast<double>(progress_.units - progress_.published);
  options_.progress(progress_);
}

Result<BuildProgress> Builder::Run() {
  LOCKSTEP_RETURN_IF_ERROR(folder_.WritePlan(plan_));
  const Result<std::set<std::string>> before = Published(folder_, plan_);
  if (!before.ok()) return before.status();
  published_before_ = before->size();
  progress_.units = plan_.units();
  LOCKSTEP_RETURN_IF_ERROR(CheckSpace(folder_, plan_, published_before_, options_.records_per_sample));
  // Records of other plans need not be encoded again.
  Result<std::unique_ptr<Reader>> there = Reader::Open(folder_, {.direct = false});
  if (!there.ok()) return there.status();
  there_ = std::move(*there);

  const uint64_t units = plan_.units();
  const uint64_t begin =
      options_.world > 0 ? units * static_cast<uint64_t>(options_.rank) / static_cast<uint64_t>(options_.world) : 0;
  while (true) {
    uint64_t left = 0;
    bool worked = false;
    for (uint64_t i = 0; i < units; ++i) {
      if (options_.stop()) {
        LOCKSTEP_RETURN_IF_ERROR(FinishWriting());
        return Status(Code::kInterrupted, "stopped", "start it again: published units stay");
      }
      const uint64_t number = (begin + i) % units;
      const std::string unit = plan_.UnitName(number);
      if ((writing_ && writing_->unit == unit) || Exists(folder_.UnitPath(unit))) continue;
      const Result<bool> done = One(number);
      if (!done.ok()) {
        static_cast<void>(FinishWriting());
        return done.status();
      }
      worked = worked || *done;
      left += *done ? 0 : 1;
      Tell(false);
    }
    LOCKSTEP_RETURN_IF_ERROR(FinishWriting());
    if (left == 0 && !worked) break;
    if (!worked) std::this_thread::sleep_for(kLookAgain);
    Tell(false);
  }
  Tell(true);
  // One process opens the new units, so that no later start must. A reader does it where this one is killed.
  if (options_.rank == 0 && there_->Refresh().ok()) static_cast<void>(there_->SaveIndex());
  return progress_;
}

}  // namespace

Result<BuildProgress> Build(const Folder& folder, const Plan& plan, const EncodeUnit& encode,
                            const BuildOptions& options) {
  if (plan.samples == 0) return Status(Code::kUsage, "there are no samples to encode");
  return Builder(folder, plan, encode, options).Run();
}

}  // namespace lockstep::cache
