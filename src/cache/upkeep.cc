#include "cache/upkeep.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/fd.h"
#include "base/files.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "cache/key_index.h"
#include "cache/reader.h"
#include "cache/unit.h"

namespace lockstep::cache {
namespace {

double ModifiedAt(const struct stat& info) {
  return static_cast<double>(info.st_mtim.tv_sec) + static_cast<double>(info.st_mtim.tv_nsec) * 1e-9;
}

// The clock of the file system's server, which stamps files; ours may be minutes off.
double FileSystemTime(const std::string& folder) {
  const std::string probe = fmt::format("{}/.probe-{}", folder, ::getpid());
  UniqueFd fd(::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  struct stat info{};
  const bool known = fd && ::fstat(fd.get(), &info) == 0;
  if (fd) ::unlink(probe.c_str());
  return known ? ModifiedAt(info) : 0;
}

struct Listed {
  std::string path;
  uint64_t bytes;
  double modified;
};

// Files of one folder; none where there is no folder.
std::vector<Listed> FilesOf(const std::string& folder) {
  std::vector<Listed> files;
  const Result<std::vector<std::string>> names = ListDir(folder);
  if (!names.ok()) return files;
  for (const std::string& name : *names) {
    const std::string path = folder + "/" + name;
    struct stat info{};
    if (::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
      files.push_back({path, static_cast<uint64_t>(info.st_size), ModifiedAt(info)});
    }
  }
  return files;
}

bool IsTemporary(const std::string& path) { return path.find(".tmp-") != std::string::npos; }

// Bytes of a namespace and the time of its last use.
std::pair<uint64_t, double> SizeAndUse(const std::string& path) {
  uint64_t bytes = 0;
  double used = 0;
  for (const char* part : {"", "/units", "/leases", "/plans", "/quarantine"}) {
    for (const Listed& file : FilesOf(path + part)) {
      bytes += file.bytes;
      used = std::max(used, file.modified);
    }
  }
  return {bytes, used};
}

}  // namespace

uint64_t PlanCoverage::samples() const { return std::min(plan.samples, published * plan.rows); }

void Touch(const Folder& folder) {
  const std::string path = folder.path() + "/used";
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (fd) ::futimens(fd.get(), nullptr);
}

namespace {

Status CountByIndex(const Folder& folder, Summary* made) {
  KeyIndex index;
  LOCKSTEP_RETURN_IF_ERROR(index.Refresh(folder));
  made->units = index.units();
  made->records = index.records();
  made->damaged = index.warnings();
  return Status::Ok();
}

void OpenAll(const Folder& folder, const std::vector<std::string>& units, Summary* made) {
  const std::vector<Column> columns = folder.description().Columns();
  for (const std::string& name : units) {
    const auto unit = UnitFile::Open(folder.UnitPath(name), folder.id(), columns, /*direct=*/false);
    if (!unit.ok()) {
      made->damaged.push_back(unit.status().message());
      continue;
    }
    ++made->units;
    made->records += (*unit)->rows();
    const auto error = (*unit)->metadata().find("error");
    if (error == (*unit)->metadata().end()) continue;
    const Result<nlohmann::json> fields = ParseJson(error->second, name);
    if (!fields.ok() || !fields->is_object()) continue;
    for (const auto& [field, value] : fields->items()) {
      if (value.is_number()) made->error[field] = std::max(made->error[field], value.get<double>());
    }
  }
}

}  // namespace

Result<Summary> Summarise(const Folder& folder, bool every_unit) {
  Summary made;
  made.id = folder.id();
  made.description = folder.description();
  const Result<std::vector<std::string>> units = folder.Units();
  if (!units.ok()) return units.status();
  const auto whole = [](const FieldSpec& field) { return field.stored == Storage::kSame; };
  if (!every_unit && std::ranges::all_of(folder.description().fields, whole)) {
    LOCKSTEP_RETURN_IF_ERROR(CountByIndex(folder, &made));
  } else {
    OpenAll(folder, *units, &made);
  }
  Result<std::vector<Plan>> plans = folder.Plans();
  if (!plans.ok()) return plans.status();
  for (Plan& plan : *plans) {
    const std::string prefix = plan.Id() + "-";
    const auto mine = [&](const std::string& name) { return name.starts_with(prefix); };
    const auto count = static_cast<uint64_t>(std::count_if(units->begin(), units->end(), mine));
    made.plans.push_back({std::move(plan), count});
  }
  std::tie(made.bytes, made.used) = SizeAndUse(folder.path());
  for (const Listed& file : FilesOf(folder.path() + "/leases"))
    ++(IsTemporary(file.path) ? made.leftovers : made.leases);
  for (const Listed& file : FilesOf(folder.path() + "/units")) made.leftovers += IsTemporary(file.path) ? 1 : 0;
  made.quarantined = FilesOf(folder.QuarantinePath()).size();
  return made;
}

Result<Verified> VerifyAll(const Folder& folder, int threads, const std::function<void(uint64_t, uint64_t)>& progress) {
  const Result<std::vector<std::string>> units = folder.Units();
  if (!units.ok()) return units.status();
  const std::vector<Column> columns = folder.description().Columns();
  Verified verified;
  std::mutex mutex;
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next.fetch_add(1); i < units->size(); i = next.fetch_add(1)) {
      const std::string& name = (*units)[i];
      const auto unit = UnitFile::Open(folder.UnitPath(name), folder.id(), columns, /*direct=*/false);
      const Status status = unit.ok() ? (*unit)->Verify() : unit.status();
      const std::lock_guard<std::mutex> hold(mutex);
      ++verified.units;
      if (unit.ok()) {
        verified.records += (*unit)->rows();
        verified.bytes += (*unit)->file_bytes();
      }
      if (!status.ok()) verified.damaged[name] = status.message();
      progress(verified.units, units->size());
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  return verified;
}

Status Quarantine(const Folder& folder, const std::vector<std::string>& units) {
  if (units.empty()) return Status::Ok();
  LOCKSTEP_RETURN_IF_ERROR(ForgetIndex(folder));
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(folder.QuarantinePath()));
  for (const std::string& unit : units) {
    const std::string from = folder.UnitPath(unit), stem = folder.QuarantinePath() + "/" + unit;
    std::string to = stem + ".safetensors";
    for (int i = 1; ::access(to.c_str(), F_OK) == 0; ++i) to = fmt::format("{}.{}.safetensors", stem, i);
    if (::rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT) return FileError("move", from, errno);
  }
  return Status::Ok();
}

namespace {

// Takes note of what goes, and lets it go.
class Sweeper {
 public:
  explicit Sweeper(bool dry_run) : dry_run_(dry_run) {}
  void Remove(const std::string& path, uint64_t bytes, const std::string& why) {
    if (failed_.ok() && !dry_run_) failed_ = RemoveAll(path);
    if (failed_.ok()) removed_.push_back({path, why, bytes});
  }
  Result<std::vector<Removed>> Finish() {
    if (!failed_.ok()) return failed_;
    return std::move(removed_);
  }

 private:
  bool dry_run_;
  Status failed_;
  std::vector<Removed> removed_;
};

}  // namespace

Result<std::vector<Removed>> CollectGarbage(const std::string& root, const GarbageOptions& options) {
  const Result<std::vector<std::string>> ids = Namespaces(root);
  if (!ids.ok()) return ids.status();
  for (const std::string& id : options.remove) {
    if (std::find(ids->begin(), ids->end(), id) == ids->end()) {
      return Status(Code::kUsage,
                    fmt::format("'{}' has no namespace '{}'{}", root, Printable(id), DidYouMean(id, *ids)),
                    "`lockstep cache ls` lists them; give the whole name");
    }
  }
  Sweeper sweeper(options.dry_run);
  struct Kept {
    std::string path;
    uint64_t bytes;
    double used;
    bool busy;
  };
  std::vector<Kept> kept;
  uint64_t total = 0;
  const double now = FileSystemTime(root);
  for (const std::string& id : *ids) {
    const std::string path = root + "/" + id;
    const auto [bytes, used] = SizeAndUse(path);
    if (std::find(options.remove.begin(), options.remove.end(), id) != options.remove.end()) {
      sweeper.Remove(path, bytes, "asked for");
      continue;
    }
    uint64_t left = bytes;
    bool busy = false;
    for (const char* part : {"", "/units", "/leases", "/plans", "/quarantine"}) {
      for (const Listed& file : FilesOf(path + part)) {
        const bool old = now > 0 && now - file.modified > options.old_seconds;
        const bool lease = std::string_view(part) == "/leases";
        busy = busy || (lease && !old);
        const bool quarantined = std::string_view(part) == "/quarantine";
        if (!old || !(lease || quarantined || IsTemporary(file.path))) continue;
        sweeper.Remove(file.path, file.bytes,
                       quarantined              ? "damaged unit"
                       : IsTemporary(file.path) ? "left over"
                                                : "lapsed lease");
        left -= file.bytes;
      }
    }
    kept.push_back({path, left, used, busy});
    total += left;
  }
  if (options.max_bytes == 0) return sweeper.Finish();
  std::sort(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.used < b.used; });
  for (const Kept& one : kept) {
    if (total <= options.max_bytes) break;
    if (one.busy) continue;  // somebody builds it now
    sweeper.Remove(one.path, one.bytes, "least recently used");
    total -= one.bytes;
  }
  return sweeper.Finish();
}

Result<uint64_t> Export(const Folder& folder, const std::string& plan, const std::string& out,
                        const std::function<void(uint64_t, uint64_t)>& progress) {
  Result<std::vector<std::string>> units = folder.Units();
  if (!units.ok()) return units.status();
  std::erase_if(*units, [&](const std::string& name) { return !name.starts_with(plan); });
  const Result<std::unique_ptr<Reader>> reader = Reader::Open(folder, {.direct = false});
  if (!reader.ok()) return reader.status();
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(out));
  const std::vector<FieldSpec>& fields = folder.description().fields;
  uint64_t records = 0, exported = 0;
  for (const std::string& name : *units) {
    const auto unit = UnitFile::Open(folder.UnitPath(name), folder.id(), folder.description().Columns(), false);
    if (!unit.ok()) return unit.status();
    const auto rows = static_cast<int64_t>((*unit)->rows());
    std::vector<TensorSpec> specs = {{"key", Dtype::kU8, {rows, 32}}};
    std::vector<std::vector<std::byte>> data;
    for (const FieldSpec& field : fields) {
      std::vector<int64_t> shape = {rows};
      shape.insert(shape.end(), field.shape.begin(), field.shape.end());
      specs.push_back({field.name, field.dtype, shape});
      data.emplace_back((*unit)->rows() * field.bytes());
    }
    std::vector<Request> requests((*unit)->rows());
    std::string keys;
    for (uint64_t row = 0; row < requests.size(); ++row) {
      requests[row].key.key = (*unit)->key(row);
      keys.append(reinterpret_cast<const char*>((*unit)->key(row).data()), sizeof(Digest));
      for (size_t i = 0; i < fields.size(); ++i)
        requests[row].fields.push_back(data[i].data() + row * fields[i].bytes());
    }
    (*reader)->Read(requests);
    for (const Request& request : requests) {
      if (request.outcome == Outcome::kHit) continue;
      return Status(Code::kEnvironment, fmt::format("a record of unit {} cannot be read: {}", name, request.why),
                    "`lockstep cache repair`, then build again");
    }
    Result<SafetensorsWriter> writer = SafetensorsWriter::Create(out + "/" + name + ".safetensors", specs);
    if (!writer.ok()) return writer.status();
    LOCKSTEP_RETURN_IF_ERROR(writer->Write("key", keys.data(), keys.size()));
    for (size_t i = 0; i < fields.size(); ++i) {
      LOCKSTEP_RETURN_IF_ERROR(writer->Write(fields[i].name, data[i].data(), data[i].size()));
    }
    LOCKSTEP_RETURN_IF_ERROR(writer->Finish());
    records += requests.size();
    progress(++exported, units->size());
  }
  return records;
}

}  // namespace lockstep::cache
