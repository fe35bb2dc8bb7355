#include "base/weights.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/fd.h"
#include "base/files.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "base/torch_file.h"

namespace lockstep {
namespace {

constexpr char kIndexName[] = "model.safetensors.index.json";

class SafetensorsWeights : public Weights {
 public:
  explicit SafetensorsWeights(SafetensorsFile file) : file_(std::move(file)) {}
  std::string_view format() const override { return "safetensors"; }
  const std::string& path() const override { return file_.path(); }
  const std::vector<TensorInfo>& tensors() const override { return file_.tensors(); }
  const std::map<std::string, std::string>& metadata() const override { return file_.metadata(); }
  Status Read(std::string_view name, void* dst, size_t bytes) const override { return file_.Read(name, dst, bytes); }

 private:
  SafetensorsFile file_;
};

// Files named by an index; every tensor must be where the index says, and none elsewhere.
class ShardedWeights : public Weights {
 public:
  static Result<std::unique_ptr<Weights>> Open(const std::string& index_path) {
    Result<nlohmann::json> index = ReadJsonFile(index_path);
    if (!index.ok()) return index.status();
    auto wrong = [&](const std::string& what) {
      return Status(Code::kEnvironment, fmt::format("'{}': {}", index_path, what),
                    "fetch the index and its files again");
    };
    const auto map = index->is_object() ? index->find("weight_map") : index->end();
    if (!index->is_object() || map == index->end() || !map->is_object()) return wrong("has no \"weight_map\"");
    auto weights = std::make_unique<ShardedWeights>();
    weights->path_ = index_path;
    const size_t slash = index_path.find_last_of('/');
    const std::string folder = slash == std::string::npos ? "" : index_path.substr(0, slash + 1);
    std::map<std::string, size_t> files;
    for (const auto& [name, value] : map->items()) {
      const std::string file = value.is_string() ? value.get<std::string>() : "";
      // An index comes from elsewhere: it may name files of its own folder only.
      if (file.empty() || file.find('/') != std::string::npos) {
        return wrong(fmt::format("tensor '{}' is in no file of this folder", name));
      }
      auto [known, fresh] = files.emplace(file, weights->files_.size());
      if (fresh) {
        Result<SafetensorsFile> opened = SafetensorsFile::Open(folder + file);
        if (!opened.ok()) return opened.status().Context(index_path);
        weights->files_.push_back(std::move(*opened));
      }
      const TensorInfo* tensor = weights->files_[known->second].Find(name);
      if (tensor == nullptr) return wrong(fmt::format("tensor '{}' is not in '{}'", name, file));
      weights->places_.emplace(name, known->second);
      weights->tensors_.push_back(*tensor);
    }
    size_t stored = 0;
    for (const SafetensorsFile& file : weights->files_) stored += file.tensors().size();
    if (stored != weights->tensors_.size()) {
      return wrong(fmt::format("names {} tensors, its files hold {}", weights->tensors_.size(), stored));
    }
    return std::unique_ptr<Weights>(std::move(weights));
  }

  std::string_view format() const override { return "sharded safetensors"; }
  const std::string& path() const override { return path_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const std::map<std::string, std::string>& metadata() const override { return metadata_; }
  Status Read(std::string_view name, void* dst, size_t bytes) const override {
    const auto found = places_.find(name);
    if (found == places_.end()) return Status(Code::kUsage, fmt::format("'{}' has no tensor '{}'", path_, name));
    return files_[found->second].Read(name, dst, bytes);
  }

 private:
  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t, std::less<>> places_;
  std::map<std::string, std::string> metadata_;
};

struct Stranger {
  std::string_view begin;
  std::string_view what;
  std::string_view hint;
};

constexpr std::string_view kSaveAgain =
    "load it in Python and save it again: torch.save(torch.load(path, weights_only=True), new_path)";

// Files that people give by mistake, by how they begin.
constexpr Stranger kStrangers[] = {
    {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", "is in torch.save's format from before PyTorch 1.6",
     kSaveAgain},
    {"\x80", "is a bare pickle, not a file of torch.save", kSaveAgain},
    {"version https://git-lfs", "is a Git LFS pointer, not the weights", "fetch the real file: git lfs pull"},
    {"<", "is a web page, not the weights", "the download went wrong: check the address and the login"},
    {"GGUF", "is a GGUF file", "give the safetensors file of the model"},
    {"\x89HDF", "is an HDF5 file", "convert it to safetensors"},
    {"\x93NUMPY", "is a NumPy array", "convert it to safetensors"},
};

Status NoWeights(const std::string& path, std::string_view head, uint64_t bytes) {
  for (const Stranger& stranger : kStrangers) {
    if (head.starts_with(stranger.begin)) {
      return Status(Code::kEnvironment, fmt::format("'{}' {}", path, stranger.what), std::string(stranger.hint));
    }
  }
  if (head.size() > 262 && head.substr(257, 5) == "ustar") {
    return Status(Code::kEnvironment,
                  fmt::format("'{}' is a tar archive (torch.save's first format, or a package)", path),
                  std::string(kSaveAgain));
  }
  return Status(Code::kEnvironment,
                fmt::format("'{}' ({} bytes) is neither a safetensors file nor one of torch.save", path, bytes),
                "check that this is the file you meant and that it arrived whole");
}

}  // namespace

const TensorInfo* Weights::Find(std::string_view name) const {
  const auto found =
      std::find_if(tensors().begin(), tensors().end(), [&](const TensorInfo& tensor) { return tensor.name == name; });
  return found == tensors().end() ? nullptr : &*found;
}

Result<std::unique_ptr<Weights>> OpenWeights(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd) return FileError("open", path, errno);
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return FileError("read", path, errno);
  if (S_ISDIR(info.st_mode)) {
    for (const char* name : {kIndexName, "model.safetensors"}) {
      const std::string inside = path + "/" + name;
      if (::access(inside.c_str(), F_OK) == 0) return OpenWeights(inside);
    }
    return Status(Code::kEnvironment,
                  fmt::format("folder '{}' holds neither {} nor model.safetensors", path, kIndexName),
                  "give the weights file itself");
  }
  char buffer[512];
  const ssize_t got = ::pread(fd.get(), buffer, sizeof buffer, 0);
  if (got < 0) return FileError("read", path, errno);
  const std::string_view head(buffer, static_cast<size_t>(got));
  if (head.starts_with("PK\x03\x04")) return OpenTorchFile(path);
  uint64_t length = 0;
  if (head.size() >= 9) std::memcpy(&length, head.data(), 8);
  if (head.size() >= 9 && head[8] == '{' && length < (uint64_t{1} << 32)) {
    Result<SafetensorsFile> file = SafetensorsFile::Open(path);
    if (!file.ok()) return file.status();
    return std::unique_ptr<Weights>(std::make_unique<SafetensorsWeights>(std::move(*file)));
  }
  if (head.starts_with("{")) return ShardedWeights::Open(path);
  return NoWeights(path, head, static_cast<uint64_t>(info.st_size));
}

}  // namespace lockstep
