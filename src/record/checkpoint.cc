#include "record/checkpoint.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/digits.h"
#include "base/json.h"
#include "record/checkpoint_plan.h"

namespace lockstep::record {
namespace {

constexpr std::string_view kSealBegin = "{\"checksum\": \"";
constexpr std::string_view kSealEnd = "\",\n";

bool IsGroup(std::string_view group) {
  return !group.empty() && std::all_of(group.begin(), group.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

// Unique among processes that share the folder: a temporary of a dead writer is never taken for our own.
std::string TemporarySuffix() {
  static std::atomic<uint32_t> counter{0};
  const uint64_t now = static_cast<uint64_t>(UnixSeconds() * 1e6);
  return fmt::format("{}-{:x}-{}", ::getpid(), now, counter.fetch_add(1));
}

bool Exists(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0;
}

// Sleeps as long as the bytes written so far are ahead of the rate.
class Pace {
 public:
  explicit Pace(uint64_t bytes_per_second) : rate_(bytes_per_second) {}
  void Wrote(size_t bytes) {
    if (rate_ == 0) return;
    bytes_ += bytes;
    const double ahead = static_cast<double>(bytes_) / static_cast<double>(rate_) - SecondsSince(start_);
    if (ahead > 0) std::this_thread::sleep_for(std::chrono::duration<double>(ahead));
  }

 private:
  uint64_t rate_;
  uint64_t bytes_ = 0;
  TimePoint start_ = Now();
};

// Writes one file in chunks; each is hashed tensor by tensor just before it is written.
Status WriteOne(const std::string& path, const PlannedFile& file, size_t index, const FileBytes& source,
                Storage& storage, Pace& pace, std::vector<std::string>* checksums) {
  Result<std::unique_ptr<WritableFile>> out = storage.Create(path);
  if (!out.ok()) return out.status();
  const std::vector<TensorInfo>& tensors = file.layout.tensors;
  Checksum sum;
  size_t tensor = 0;
  for (uint64_t offset = 0; offset < file.layout.file_bytes; offset += kChunkBytes) {
    const size_t bytes = static_cast<size_t>(std::min<uint64_t>(kChunkBytes, file.layout.file_bytes - offset));
    const char* data = source(index, offset, bytes);
    while (tensor < tensors.size() && tensors[tensor].offset < offset + bytes) {
      const uint64_t begin = std::max(tensors[tensor].offset, offset);
      const uint64_t end = std::min(tensors[tensor].offset + tensors[tensor].bytes, offset + bytes);
      if (end > begin) sum.Update(data + (begin - offset), end - begin);
      if (tensors[tensor].offset + tensors[tensor].bytes > offset + bytes) break;
      checksums->push_back(sum.Text());
      sum.Reset();
      ++tensor;
    }
    LOCKSTEP_RETURN_IF_ERROR((*out)->Write(offset, data, bytes));
    pace.Wrote(bytes);
  }
  for (; tensor < tensors.size(); ++tensor) checksums->push_back(ChecksumText(""));  // empty ones at the very end
  LOCKSTEP_RETURN_IF_ERROR((*out)->Sync());
  return (*out)->Close();
}

Status WriteText(const std::string& path, const std::string& text, Storage& storage) {
  Result<std::unique_ptr<WritableFile>> out = storage.Create(path);
  if (!out.ok()) return out.status();
  LOCKSTEP_RETURN_IF_ERROR((*out)->Write(0, text.data(), text.size()));
  LOCKSTEP_RETURN_IF_ERROR((*out)->Sync());
  return (*out)->Close();
}

Status WriteFiles(const std::string& folder, const CheckpointHead& head, const CheckpointPlan& plan,
                  const FileBytes& source, Storage& storage, uint64_t max_bytes_per_second) {
  Pace pace(max_bytes_per_second);
  nlohmann::json files = nlohmann::json::array();
  std::map<std::string, nlohmann::json> tensors;  // by name
  for (size_t i = 0; i < plan.files.size(); ++i) {
    const PlannedFile& file = plan.files[i];
    std::vector<std::string> checksums;
    LOCKSTEP_RETURN_IF_ERROR(WriteOne(folder + "/" + file.name, file, i, source, storage, pace, &checksums));
    files.push_back({{"name", file.name},
                     {"bytes", file.layout.file_bytes},
                     {"header_checksum", ChecksumText(file.layout.header)}});
    for (size_t t = 0; t < file.layout.tensors.size(); ++t) {
      const TensorInfo& tensor = file.layout.tensors[t];
      const std::string name = file.group + "/" + tensor.name;
      tensors[name] = {{"name", name},          {"file", file.name},
                       {"key", tensor.name},    {"dtype", DtypeName(tensor.dtype)},
                       {"shape", tensor.shape}, {"checksum", checksums[t]}};
    }
  }
  nlohmann::json manifest = {{"format", kManifestFormat}, {"version", kManifestVersion}, {"recipe", head.recipe},
                             {"step", head.step},         {"state", head.state},         {"files", std::move(files)}};
  manifest["tensors"] = nlohmann::json::array();
  for (auto& [name, entry] : tensors) manifest["tensors"].push_back(std::move(entry));
  LOCKSTEP_RETURN_IF_ERROR(WriteText(folder + "/" + kManifestName, SealManifest(manifest), storage));
  return storage.SyncDir(folder);
}

Status CheckFinite(const nlohmann::json& value, const std::string& where) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    return Status(Code::kInternal, fmt::format("checkpoint state {} is not finite, which JSON cannot hold", where),
                  "store it as text");
  }
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) LOCKSTEP_RETURN_IF_ERROR(CheckFinite(item, where + "/" + key));
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      LOCKSTEP_RETURN_IF_ERROR(CheckFinite(value[i], fmt::format("{}/{}", where, i)));
    }
  }
  return Status::Ok();
}

}  // namespace

std::string CheckpointName(uint64_t step) { return fmt::format("step-{}", step); }

std::optional<uint64_t> CheckpointStep(std::string_view name) {
  if (!name.starts_with("step-")) return std::nullopt;
  name.remove_prefix(5);
  if (name.size() > 1 && name[0] == '0') return std::nullopt;
  return ParseDigits<uint64_t>(name);
}

Status CheckState(const nlohmann::json& state) {
  if (!state.is_object()) return Status(Code::kInternal, "checkpoint state must be a JSON object");
  LOCKSTEP_RETURN_IF_ERROR(CheckFinite(state, ""));
  try {
    (void)state.dump();
  } catch (const nlohmann::json::exception& error) {
    return Status(Code::kInternal, fmt::format("checkpoint state cannot be written as JSON: {}", error.what()),
                  "binary data belongs into a tensor");
  }
  return Status::Ok();
}

std::map<std::string, std::string> WeightsMetadata(const CheckpointContent& content) {
  const auto identity = content.state.find("identity");
  if (identity == content.state.end() || !identity->is_object() || identity->empty()) return {};
  return {{"lockstep." + content.recipe, identity->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)}};
}

Result<CheckpointPlan> PlanCheckpoint(const std::vector<CheckpointTensor>& tensors,
                                      const std::map<std::string, std::string>& metadata) {
  std::map<std::string, std::vector<size_t>> groups;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const CheckpointTensor& tensor = tensors[i];
    const size_t slash = tensor.name.find('/');
    if (slash == std::string::npos || !IsGroup(std::string_view(tensor.name).substr(0, slash)) ||
        slash + 1 == tensor.name.size()) {
      return Status(Code::kInternal, fmt::format("checkpoint tensor '{}' is not named <group>/<key>", tensor.name));
    }
    Result<uint64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
    if (!bytes.ok()) return bytes.status().Context(fmt::format("checkpoint tensor '{}'", tensor.name));
    if (*bytes != tensor.bytes) {
      return Status(Code::kInternal,
                    fmt::format("checkpoint tensor '{}' is {} with {} bytes, {} were given", tensor.name,
                                DescribeTensor(tensor.dtype, tensor.shape), *bytes, tensor.bytes));
    }
    groups[tensor.name.substr(0, slash)].push_back(i);
  }
  CheckpointPlan plan;
  for (const auto& [group, members] : groups) {
    std::vector<TensorSpec> specs;
    std::map<std::string_view, size_t> index;
    for (size_t i : members) {
      const std::string_view key = std::string_view(tensors[i].name).substr(group.size() + 1);
      specs.push_back({std::string(key), tensors[i].dtype, tensors[i].shape});
      index.emplace(key, i);
    }
    std::map<std::string, std::string> header = {{"format", "pt"}};  // what Python's loaders look for
    if (group == "model" || group == "ema") header.insert(metadata.begin(), metadata.end());
    Result<SafetensorsLayout> layout = LayoutSafetensors(specs, header);
    if (!layout.ok()) return layout.status().Context(fmt::format("checkpoint file {}.safetensors", group));
    PlannedFile file{group + ".safetensors", group, std::move(*layout), {}};
    for (const TensorInfo& tensor : file.layout.tensors) file.sources.push_back(index.at(tensor.name));
    plan.bytes += file.layout.file_bytes;
    plan.files.push_back(std::move(file));
  }
  return plan;
}

// One object over two lines' worth of trust: the first line is known to the byte from the rest.
std::string SealManifest(const nlohmann::json& manifest) {
  const std::string body = manifest.dump(1).substr(2) + "\n";  // without "{\n"
  return fmt::format("{}{}{}{}", kSealBegin, ChecksumText(body), kSealEnd, body);
}

Result<nlohmann::json> OpenManifest(const std::string& text, const std::string& source) {
  auto damaged = [&](const std::string& what) {
    return Status(Code::kEnvironment, fmt::format("'{}': {}", source, what),
                  "this checkpoint is damaged: use an older one");
  };
  const size_t line = text.find('\n');
  if (line == std::string::npos) return damaged("breaks off in its first line");
  const std::string body = text.substr(line + 1);
  if (text.substr(0, line + 1) != fmt::format("{}{}{}", kSealBegin, ChecksumText(body), kSealEnd)) {
    return damaged("does not match its own checksum");
  }
  Result<nlohmann::json> manifest = ParseJson(text, source);
  if (!manifest.ok()) return damaged("is no JSON");
  if (GetString(*manifest, "format") != kManifestFormat) return damaged("is no checkpoint manifest");
  const int64_t version = GetInt(*manifest, "version");
  if (version != kManifestVersion) {
    return Status(Code::kEnvironment,
                  fmt::format("'{}' has format version {}, this program reads {}", source, version, kManifestVersion),
                  "use the version of Lockstep that wrote it, or a newer one");
  }
  return manifest;
}

Status PublishCheckpoint(const std::string& folder, const CheckpointHead& head, const CheckpointPlan& plan,
                         const FileBytes& source, Storage& storage, uint64_t max_bytes_per_second) {
  LOCKSTEP_RETURN_IF_ERROR(CheckState(head.state));
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(folder));
  const std::string target = folder + "/" + CheckpointName(head.step);
  const std::string suffix = TemporarySuffix();
  const std::string temporary = fmt::format("{}.tmp-{}", target, suffix);
  const std::string replaced = fmt::format("{}.replaced-{}", target, suffix);
  Status status = storage.MakeDir(temporary);
  if (!status.ok()) return status;
  status = WriteFiles(temporary, head, plan, source, storage, max_bytes_per_second);
  const bool again = status.ok() && Exists(target);
  if (again) status = storage.Rename(target, replaced);
  if (status.ok()) {
    status = storage.Rename(temporary, target);
    if (!status.ok() && again) (void)storage.Rename(replaced, target);
  }
  if (!status.ok()) {
    (void)RemoveTree(storage, temporary);
    return status;
  }
  LOCKSTEP_RETURN_IF_ERROR(storage.SyncDir(folder));
  return again ? RemoveTree(storage, replaced) : Status::Ok();
}

Status WriteCheckpoint(const std::string& folder, const CheckpointContent& content, Storage& storage) {
  Result<CheckpointPlan> plan = PlanCheckpoint(content.tensors, WeightsMetadata(content));
  if (!plan.ok()) return plan.status();
  for (const CheckpointTensor& tensor : content.tensors) {
    if (tensor.data == nullptr && tensor.bytes > 0) {
      return Status(Code::kInternal, fmt::format("checkpoint tensor '{}' has no data", tensor.name));
    }
  }
  // Chunks are put together in one aligned buffer, so that they can bypass the page cache.
  const std::unique_ptr<char, decltype(&std::free)> chunk(static_cast<char*>(std::aligned_alloc(4096, kChunkBytes)),
                                                          &std::free);
  if (!chunk) return Status(Code::kEnvironment, "no memory for a checkpoint chunk");
  const FileBytes source = [&](size_t index, uint64_t offset, size_t bytes) -> const char* {
    const PlannedFile& file = plan->files[index];
    const std::string& header = file.layout.header;
    if (offset < header.size()) {
      std::memcpy(chunk.get(), header.data() + offset, std::min<size_t>(bytes, header.size() - offset));
    }
    const std::vector<TensorInfo>& tensors = file.layout.tensors;
    auto first = std::partition_point(tensors.begin(), tensors.end(),
                                      [&](const TensorInfo& t) { return t.offset + t.bytes <= offset; });
    for (; first != tensors.end() && first->offset < offset + bytes; ++first) {
      const uint64_t begin = std::max(first->offset, offset),
                     end = std::min(first->offset + first->bytes, offset + bytes);
      if (end <= begin) continue;
      const size_t from = file.sources[static_cast<size_t>(first - tensors.begin())];
      std::memcpy(chunk.get() + (begin - offset),
                  static_cast<const char*>(content.tensors[from].data) + (begin - first->offset), end - begin);
    }
    return chunk.get();
  };
  return PublishCheckpoint(folder, {content.step, content.recipe, content.state}, *plan, source, storage);
}

}  // namespace lockstep::record
