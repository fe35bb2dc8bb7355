#include "base/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "files hold little-endian numbers as they are in memory");

constexpr uint64_t kMaxHeader = 100'000'000;  // upstream's limit
constexpr char kAdvice[] = "the file is damaged or was not written as safetensors: fetch or convert it again";

Status DamagedSafetensors(const std::string& source, const std::string& what) {
  return Status(Code::kEnvironment, fmt::format("'{}': {}", source, what), kAdvice);
}

// Tensor names come from the file: shown short and without control characters.
std::string Quoted(std::string_view name) {
  std::string shown;
  for (char c : name.substr(0, 200)) shown += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return fmt::format("tensor '{}{}'", shown, name.size() > 200 ? "..." : "");
}

// Walks the header without building a document, so that a hostile one costs no memory, and sees keys that come twice.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  struct Entry {
    std::string name;
    std::optional<Dtype> dtype;
    std::optional<std::vector<int64_t>> shape;
    std::optional<std::vector<int64_t>> offsets;
  };

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  std::string error;

  bool key(string_t& name) override {
    if (depth_ == 1) {
      if (!names_.insert(name).second) return Fail(fmt::format("{} is there twice", Quoted(name)));
      in_metadata_ = name == "__metadata__";
      if (!in_metadata_) entries.push_back({.name = name, .dtype = {}, .shape = {}, .offsets = {}});
      return true;
    }
    if (in_metadata_) {
      if (metadata.contains(name)) return Fail("a key of __metadata__ is there twice");
      field_ = name;
      return true;
    }
    if (name != "dtype" && name != "shape" && name != "data_offsets") return FailEntry("has an unknown field");
    field_ = name;
    return true;
  }

  bool start_object(size_t) override {
    if (++depth_ > 2) return Fail("header is nested too deeply");
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2 && !in_metadata_) {
      const Entry& entry = entries.back();
      if (!entry.dtype || !entry.shape || !entry.offsets) return FailEntry("lacks dtype, shape or data_offsets");
    }
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || list_ != nullptr) return Fail("header has a list in a wrong place");
    std::optional<std::vector<int64_t>>& list = field_ == "shape" ? entries.back().shape : entries.back().offsets;
    if (field_ == "dtype" || list) return FailEntry(fmt::format("has a wrong or doubled {}", field_));
    list_ = &list.emplace();
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_ == nullptr) return Fail("header has a number in a wrong place");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return FailEntry("has a number too large");
    list_->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_integer(number_integer_t) override { return Fail("header has a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return Fail("header has a fraction"); }
  bool string(string_t& value) override {
    if (depth_ != 2 || list_ != nullptr) return Fail("header has text in a wrong place");
    if (in_metadata_) {
      metadata.emplace(field_, value);
      return true;
    }
    if (field_ != "dtype" || entries.back().dtype) return FailEntry(fmt::format("has a wrong or doubled {}", field_));
    entries.back().dtype = ParseDtype(value);
    if (!entries.back().dtype) {
      return FailEntry(fmt::format("has the type '{}', which this version does not know", value.substr(0, 40)));
    }
    return true;
  }
  bool null() override { return depth_ == 1 && in_metadata_ ? true : Fail("header has a null in a wrong place"); }
  bool boolean(bool) override { return Fail("header has true or false in a wrong place"); }
  bool binary(binary_t&) override { return Fail("header is no JSON"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Fail(fmt::format("header is no JSON (at byte {})", position));
  }

 private:
  bool Fail(std::string what) {
    if (error.empty()) error = std::move(what);
    return false;
  }
  bool FailEntry(const std::string& what) { return Fail(Quoted(entries.back().name) + " " + what); }

  int depth_ = 0;
  bool in_metadata_ = false;
  std::string field_;
  std::vector<int64_t>* list_ = nullptr;
  std::set<std::string, std::less<>> names_;
};

Status ReadFully(int fd, const std::string& path, uint64_t offset, void* dst, size_t bytes) {
  char* at = static_cast<char*>(dst);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, at, std::min<size_t>(bytes, 1u << 30), static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      return FileError("read", path, errno);
    }
    if (n == 0) return DamagedSafetensors(path, fmt::format("ends at byte {}, {} bytes early", offset, bytes));
    at += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return Status::Ok();
}

Status WriteFully(int fd, const std::string& path, uint64_t offset, const void* src, size_t bytes) {
  const char* at = static_cast<const char*>(src);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd, at, std::min<size_t>(bytes, 1u << 30), static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      return FileError("write", path, errno);
    }
    at += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return Status::Ok();
}

std::map<std::string, size_t, std::less<>> IndexOf(const std::vector<TensorInfo>& tensors) {
  std::map<std::string, size_t, std::less<>> index;
  for (size_t i = 0; i < tensors.size(); ++i) index.emplace(tensors[i].name, i);
  return index;
}

Status WrongSize(const std::string& path, const TensorInfo& tensor, size_t bytes) {
  return Status(Code::kInternal,
                fmt::format("'{}': {} is {} with {} bytes, the buffer has {}", path, Quoted(tensor.name),
                            DescribeTensor(tensor.dtype, tensor.shape), tensor.bytes, bytes));
}

}  // namespace

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text, uint64_t file_bytes,
                                                 const std::string& source) {
  if (file_bytes < 8 || text.size() > file_bytes - 8)
    return DamagedSafetensors(source, "header reaches past the end of the file");
  if (text.empty() || text[0] != '{') return DamagedSafetensors(source, "header does not start with '{'");
  HeaderHandler handler;
  const bool parsed = nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  if (!parsed || !handler.error.empty()) {
    return DamagedSafetensors(source, handler.error.empty() ? "header is no JSON" : handler.error);
  }

  SafetensorsHeader header;
  header.data_begin = 8 + text.size();
  header.metadata = std::move(handler.metadata);
  const uint64_t data_bytes = file_bytes - header.data_begin;
  for (HeaderHandler::Entry& entry : handler.entries) {
    const std::string who = Quoted(entry.name);
    Result<uint64_t> bytes = TensorBytes(*entry.dtype, *entry.shape);
    if (!bytes.ok()) return DamagedSafetensors(source, who + ": " + bytes.status().message());
    if (entry.offsets->size() != 2) return DamagedSafetensors(source, who + ": data_offsets must be two numbers");
    const uint64_t begin = static_cast<uint64_t>((*entry.offsets)[0]);
    const uint64_t end = static_cast<uint64_t>((*entry.offsets)[1]);
    if (begin > end || end > data_bytes) {
      return DamagedSafetensors(source, fmt::format("{} lies at {}..{} of {} data bytes", who, begin, end, data_bytes));
    }
    if (end - begin != *bytes) {
      return DamagedSafetensors(source, fmt::format("{} is {} and needs {} bytes, but has {}", who,
                                                    DescribeTensor(*entry.dtype, *entry.shape), *bytes, end - begin));
    }
    header.tensors.push_back({std::move(entry.name), *entry.dtype, std::move(*entry.shape), begin, *bytes});
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  uint64_t at = 0;
  for (TensorInfo& tensor : header.tensors) {
    if (tensor.offset != at) {
      return DamagedSafetensors(
          source, fmt::format("{} starts at data byte {} where the one before ends at {} ({})", Quoted(tensor.name),
                              tensor.offset, at, tensor.offset < at ? "overlap" : "hole"));
    }
    at += tensor.bytes;
    tensor.offset += header.data_begin;
  }
  if (at != data_bytes) {
    return DamagedSafetensors(source, fmt::format("has {} data bytes, its tensors {}", data_bytes, at));
  }
  return header;
}

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.fd_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.fd_) return FileError("open", path, errno);
  struct stat info{};
  if (::fstat(file.fd_.get(), &info) != 0) return FileError("read", path, errno);
  if (S_ISDIR(info.st_mode)) return FileError("read", path, EISDIR);
  if (!S_ISREG(info.st_mode)) return DamagedSafetensors(path, "is no regular file");
  file.file_bytes_ = static_cast<uint64_t>(info.st_size);
  if (file.file_bytes_ < 8) return DamagedSafetensors(path, fmt::format("has only {} bytes", file.file_bytes_));
  uint64_t length = 0;
  LOCKSTEP_RETURN_IF_ERROR(file.ReadAt(0, &length, 8));
  // Compared before anything is added to it: the length may be any 64 bits.
  if (length > file.file_bytes_ - 8 || length > kMaxHeader) {
    return DamagedSafetensors(path,
                              fmt::format("says its header has {} bytes, the file has {}", length, file.file_bytes_));
  }
  std::string text(length, '\0');
  LOCKSTEP_RETURN_IF_ERROR(file.ReadAt(8, text.data(), text.size()));
  Result<SafetensorsHeader> header = ParseSafetensorsHeader(text, file.file_bytes_, path);
  if (!header.ok()) return header.status();
  file.header_ = std::move(*header);
  file.index_ = IndexOf(file.header_.tensors);
  return file;
}

const TensorInfo* SafetensorsFile::Find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

Status SafetensorsFile::Read(std::string_view name, void* dst, size_t bytes) const {
  const TensorInfo* tensor = Find(name);
  if (tensor == nullptr) return Status(Code::kUsage, fmt::format("'{}' has no {}", path_, Quoted(name)));
  return Read(*tensor, dst, bytes);
}

Status SafetensorsFile::Read(const TensorInfo& tensor, void* dst, size_t bytes) const {
  if (bytes != tensor.bytes) return WrongSize(path_, tensor, bytes);
  Status status = ReadAt(tensor.offset, dst, bytes);
  return status.ok() ? status : status.Context(Quoted(tensor.name));
}

Status SafetensorsFile::ReadAt(uint64_t offset, void* dst, size_t bytes) const {
  return ReadFully(fd_.get(), path_, offset, dst, bytes);
}

Result<SafetensorsLayout> LayoutSafetensors(const std::vector<TensorSpec>& tensors,
                                            const std::map<std::string, std::string>& metadata) {
  SafetensorsLayout layout;
  for (const TensorSpec& spec : tensors) {
    Result<uint64_t> bytes = TensorBytes(spec.dtype, spec.shape);
    if (!bytes.ok()) return bytes.status().Context(Quoted(spec.name));
    if (spec.name == "__metadata__") return Status(Code::kUsage, "a tensor cannot be named '__metadata__'");
    layout.tensors.push_back({spec.name, spec.dtype, spec.shape, 0, *bytes});
  }
  // Widest first keeps every tensor aligned to its element.
  std::sort(layout.tensors.begin(), layout.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    const int left = DtypeBits(a.dtype), right = DtypeBits(b.dtype);
    return left != right ? left > right : a.name < b.name;
  });
  std::set<std::string_view> names;
  for (const TensorInfo& tensor : layout.tensors) {
    if (!names.insert(tensor.name).second) return Status(Code::kUsage, Quoted(tensor.name) + " is given twice");
  }

  std::string json = "{";
  uint64_t at = 0;
  try {
    if (!metadata.empty()) json += fmt::format("\"__metadata__\":{},", nlohmann::json(metadata).dump());
    for (TensorInfo& tensor : layout.tensors) {
      if (tensor.bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) - at) {
        return Status(Code::kUsage, Quoted(tensor.name) + ": the file would be too large");
      }
      json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},",
                          nlohmann::json(tensor.name).dump(), DtypeName(tensor.dtype), fmt::join(tensor.shape, ","), at,
                          at + tensor.bytes);
      tensor.offset = at;
      at += tensor.bytes;
    }
  } catch (const nlohmann::json::exception&) {
    return Status(Code::kUsage, "names and metadata of a safetensors file must be UTF-8");
  }
  if (json.back() == ',') json.pop_back();
  json += '}';
  json.append((64 - (8 + json.size()) % 64) % 64, ' ');  // data starts at a cache line
  if (json.size() > kMaxHeader) {
    return Status(Code::kUsage,
                  fmt::format("the header would have {} bytes, the format allows {}", json.size(), kMaxHeader));
  }
  const uint64_t length = json.size();
  layout.header.resize(8);
  std::memcpy(layout.header.data(), &length, 8);
  layout.header += json;
  for (TensorInfo& tensor : layout.tensors) tensor.offset += layout.header.size();
  layout.file_bytes = layout.header.size() + at;
  return layout;
}

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path, const std::vector<TensorSpec>& tensors,
                                                    const std::map<std::string, std::string>& metadata) {
  static std::atomic<uint32_t> counter{0};
  Result<SafetensorsLayout> layout = LayoutSafetensors(tensors, metadata);
  if (!layout.ok()) return layout.status().Context(path);
  SafetensorsWriter writer;
  writer.path_ = path;
  writer.layout_ = std::move(*layout);
  writer.index_ = IndexOf(writer.layout_.tensors);
  writer.written_.assign(writer.layout_.tensors.size(), 0);
  for (int tries = 0; tries < 16 && !writer.fd_; ++tries) {
    writer.temp_ = fmt::format("{}.tmp-{}-{}", path, ::getpid(), counter.fetch_add(1));
    writer.fd_.reset(::open(writer.temp_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!writer.fd_ && errno != EEXIST) return FileError("create", path, errno);
  }
  if (!writer.fd_) return FileError("create", path, EEXIST);
  LOCKSTEP_RETURN_IF_ERROR(
      WriteFully(writer.fd_.get(), path, 0, writer.layout_.header.data(), writer.layout_.header.size()));
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_) ::unlink(temp_.c_str());
}

Status SafetensorsWriter::Write(std::string_view name, const void* data, size_t bytes) {
  const auto found = index_.find(name);
  if (found == index_.end())
    return Status(Code::kInternal, fmt::format("'{}' was laid out without {}", path_, Quoted(name)));
  const TensorInfo& tensor = layout_.tensors[found->second];
  if (bytes != tensor.bytes) return WrongSize(path_, tensor, bytes);
  LOCKSTEP_RETURN_IF_ERROR(WriteFully(fd_.get(), path_, tensor.offset, data, bytes));
  written_[found->second] = 1;
  return Status::Ok();
}

Status SafetensorsWriter::Finish() {
  for (size_t i = 0; i < written_.size(); ++i) {
    if (written_[i] == 0) {
      return Status(Code::kInternal, fmt::format("'{}': {} was never written", path_, Quoted(layout_.tensors[i].name)));
    }
  }
  if (::fsync(fd_.get()) != 0) return FileError("sync", path_, errno);
  if (::rename(temp_.c_str(), path_.c_str()) != 0) return FileError("publish", path_, errno);
  fd_.reset();
  const size_t slash = path_.find_last_of('/');
  const std::string parent = slash == std::string::npos ? "." : path_.substr(0, std::max<size_t>(slash, 1));
  UniqueFd folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some network file systems cannot sync a folder; the name is durable there without.
  if (folder && ::fsync(folder.get()) != 0 && errno != EINVAL && errno != EBADF)
    return FileError("sync folder", parent, errno);
  return Status::Ok();
}

}  // namespace lockstep
