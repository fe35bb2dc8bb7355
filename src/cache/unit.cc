#include "cache/unit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "cache/folder.h"

namespace lockstep::cache {
namespace {

constexpr char kUnitFormat[] = "lockstep-cache-unit";
constexpr char kKeys[] = "__key__";
constexpr char kSums[] = "__xxh3_64__";
constexpr char kTable[] = "__table__";
constexpr uint64_t kTableBytes = 16;

struct Place {
  std::string name;
  Dtype dtype;
  std::vector<int64_t> shape;
  uint64_t offset, bytes;  // from the start of the data
};

// The tensors of a unit in the order of the file; the data begin at a multiple of kBlock.
std::vector<Place> Places(const std::vector<Column>& columns, uint64_t rows) {
  std::vector<Place> places;
  uint64_t at = 0;
  const auto add = [&](std::string name, Dtype dtype, std::vector<int64_t> shape, uint64_t bytes) {
    places.push_back({std::move(name), dtype, std::move(shape), at, bytes});
    at += bytes;
  };
  const auto n = static_cast<int64_t>(rows);
  add(kKeys, Dtype::kU8, {n, 32}, rows * sizeof(Digest));
  add(kSums, Dtype::kU64, {n, static_cast<int64_t>(columns.size())}, rows * columns.size() * 8);
  add(kTable, Dtype::kU8, {static_cast<int64_t>(kTableBytes)}, kTableBytes);
  for (size_t i = 0; i < columns.size(); ++i) {
    const uint64_t pad = (kBlock - at % kBlock) % kBlock;
    add(fmt::format("__pad_{}__", i), Dtype::kU8, {static_cast<int64_t>(pad)}, pad);
    std::vector<int64_t> shape = {n};
    shape.insert(shape.end(), columns[i].shape.begin(), columns[i].shape.end());
    add(columns[i].name, columns[i].dtype, std::move(shape), rows * columns[i].bytes);
  }
  return places;
}

std::string HeaderOf(const std::vector<Place>& places, const std::map<std::string, std::string>& metadata) {
  std::string json = fmt::format("{{\"__metadata__\":{}", nlohmann::json(metadata).dump());
  for (const Place& place : places) {
    json += fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                        nlohmann::json(place.name).dump(), DtypeName(place.dtype), nlohmann::json(place.shape).dump(),
                        place.offset, place.offset + place.bytes);
  }
  json += "}";
  json.append((kBlock - (8 + json.size()) % kBlock) % kBlock, ' ');
  const uint64_t length = json.size();
  std::string header(8, '\0');
  std::memcpy(header.data(), &length, 8);
  return header + json;
}

// A temporary file that is removed unless it was published.
struct Temporary {
  std::string path;
  UniqueFd fd;
  ~Temporary() {
    if (!path.empty()) ::unlink(path.c_str());
  }
};

// Whether writes pass the page cache by.
bool SetDirect(int fd, bool direct) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

Status WriteAll(int fd, const std::string& path, uint64_t offset, const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd, at, std::min<size_t>(bytes, 1u << 30), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    // Some file systems let O_DIRECT be set and then refuse it, or go on in the middle of a block.
    if (n < 0 && errno == EINVAL && (::fcntl(fd, F_GETFL) & O_DIRECT) != 0 && SetDirect(fd, false)) continue;
    if (n < 0) return FileError("write", path, errno);
    at += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return Status::Ok();
}

// What the file system asks of direct reads (often 512 bytes, where rows of features end more often than at 4,096).
uint64_t DirectGrain(int fd) {
#ifdef STATX_DIOALIGN
  struct statx found{};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) == 0 && (found.stx_mask & STATX_DIOALIGN) != 0) {
    const uint64_t grain = std::max(found.stx_dio_mem_align, found.stx_dio_offset_align);
    if (grain > 0 && kBlock % grain == 0) return grain;
  }
#endif
  return kBlock;
}

Status Damaged(const std::string& path, const std::string& what) {
  return Status(Code::kEnvironment, fmt::format("'{}': {}", path, what),
                "`lockstep cache repair` takes damaged units out; a build makes them again");
}

}  // namespace

uint64_t RowSum(const Digest& key, const void* data, size_t bytes) {
  uint64_t seed = 0;
  std::memcpy(&seed, key.data(), sizeof seed);
  return Checksum64(data, bytes, seed);
}

UnitBuilder::UnitBuilder(std::vector<Column> columns, uint64_t expected_rows) : columns_(std::move(columns)) {
  data_.resize(columns_.size());
  keys_.reserve(expected_rows);
  for (size_t i = 0; i < columns_.size(); ++i) data_[i].Grow(WholeBlocks(expected_rows * columns_[i].bytes));
}

uint64_t UnitBuilder::bytes() const {
  uint64_t row = 0;
  for (const Column& column : columns_) row += column.bytes;
  return row * rows();
}

bool UnitBuilder::Has(const Digest& key) const { return std::find(keys_.begin(), keys_.end(), key) != keys_.end(); }

std::vector<std::byte*> UnitBuilder::Add(const Digest& key) {
  keys_.push_back(key);
  std::vector<std::byte*> out;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const size_t begin = (keys_.size() - 1) * columns_[i].bytes, end = begin + columns_[i].bytes;
    if (WholeBlocks(end) > data_[i].room() && data_[i].Grow(2 * WholeBlocks(end), begin) == nullptr) {
      throw std::bad_alloc();
    }
    std::memset(data_[i].data() + end, 0, WholeBlocks(end) - end);
    out.push_back(data_[i].data() + begin);
  }
  return out;
}

Result<bool> UnitBuilder::Publish(const std::string& path, const std::map<std::string, std::string>& metadata) const {
  static std::atomic<uint32_t> counter{0};
  std::map<std::string, std::string> all = metadata;
  all["format"] = kUnitFormat;
  all["version"] = std::to_string(kFormatVersion);
  const std::vector<Place> places = Places(columns_, rows());
  std::string head = HeaderOf(places, all);
  const uint64_t data_begin = head.size();
  for (const Digest& key : keys_) head.append(reinterpret_cast<const char*>(key.data()), key.size());
  for (uint64_t row = 0; row < rows(); ++row) {
    for (size_t i = 0; i < columns_.size(); ++i) {
      const uint64_t sum = RowSum(keys_[row], data_[i].data() + row * columns_[i].bytes, columns_[i].bytes);
      head.append(reinterpret_cast<const char*>(&sum), sizeof sum);
    }
  }
  Checksum table;
  table.Update(head.data(), head.size());
  const auto bytes = table.Bytes();
  head.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  head.append(places[3].bytes, '\0');  // the first padding

  Temporary file;
  file.path = fmt::format("{}.tmp-{}-{}", path, ::getpid(), counter.fetch_add(1));
  file.fd.reset(::open(file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.fd) {
    const Status failed = FileError("create", file.path, errno);
    file.path.clear();
    return failed;
  }
  // Whole blocks: the head with the first padding, each column with the padding after it. Nothing is copied into the
  // page cache, where the encoder's input has better use of the memory.
  BlockMemory first;
  if (first.Grow(head.size()) == nullptr) throw std::bad_alloc();
  std::memcpy(first.data(), head.data(), head.size());
  SetDirect(file.fd.get(), true);
  LOCKSTEP_RETURN_IF_ERROR(WriteAll(file.fd.get(), path, 0, first.data(), head.size()));
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Place& column = places[4 + 2 * i];
    LOCKSTEP_RETURN_IF_ERROR(
        WriteAll(file.fd.get(), path, data_begin + column.offset, data_[i].data(), WholeBlocks(column.bytes)));
  }
  const uint64_t end = data_begin + places.back().offset + places.back().bytes;
  if (::ftruncate(file.fd.get(), static_cast<off_t>(end)) != 0) return FileError("write", path, errno);
  if (::fsync(file.fd.get()) != 0) return FileError("sync", path, errno);
  file.fd.reset();
  Result<bool> published = PublishNew(file.path, path);
  if (published.ok()) file.path.clear();
  return published;
}

Result<std::shared_ptr<const UnitFile>> UnitFile::Open(const std::string& path, const std::string& namespace_id,
                                                       const std::vector<Column>& columns, bool direct) {
  const Result<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return file.status();
  const auto meta = [&](const char* key) {
    const auto found = file->metadata().find(key);
    return found == file->metadata().end() ? std::string() : found->second;
  };
  if (meta("format") != kUnitFormat || meta("version") != std::to_string(kFormatVersion)) {
    return Damaged(path, fmt::format("it is no unit of a feature cache of version {}", kFormatVersion));
  }
  if (meta("namespace") != namespace_id) {
    return Damaged(path, fmt::format("it belongs to the namespace {}, not to {}", meta("namespace"), namespace_id));
  }
  const TensorInfo* keys = file->Find(kKeys);
  if (keys == nullptr || keys->shape.size() != 2) return Damaged(path, "it has no keys");
  auto unit = std::shared_ptr<UnitFile>(new UnitFile());
  unit->path_ = path;
  unit->rows_ = static_cast<uint64_t>(keys->shape[0]);
  unit->file_bytes_ = file->file_bytes();
  unit->metadata_ = file->metadata();
  unit->columns_ = columns;
  // A file of this format has one layout for its columns and rows.
  if (unit->rows_ > unit->file_bytes_) return Damaged(path, "it has more rows than bytes");
  const std::vector<Place> places = Places(columns, unit->rows_);
  const uint64_t data_begin = file->data_begin();
  bool same = data_begin % kBlock == 0;
  size_t present = 0;
  for (const Place& place : places) {
    const TensorInfo* found = file->Find(place.name);
    same = same && found != nullptr && found->dtype == place.dtype && found->shape == place.shape &&
           found->offset == data_begin + place.offset;
    ++present;
  }
  if (!same || present != file->tensors().size()) {
    return Damaged(path, "its tensors are not the columns that the namespace describes");
  }
  const uint64_t table_at = data_begin + places[2].offset;
  std::string head(table_at + kTableBytes, '\0');
  LOCKSTEP_RETURN_IF_ERROR(file->ReadAt(0, head.data(), head.size()));
  Checksum sum;
  sum.Update(head.data(), table_at);
  const auto expected = sum.Bytes();
  if (std::memcmp(expected.data(), head.data() + table_at, kTableBytes) != 0) {
    return Damaged(path, "the checksum of its table is wrong");
  }
  unit->keys_.resize(unit->rows_);
  unit->sums_.resize(unit->rows_ * columns.size());
  if (unit->rows_ > 0) {
    std::memcpy(unit->keys_.data(), head.data() + data_begin, unit->rows_ * sizeof(Digest));
    std::memcpy(unit->sums_.data(), head.data() + data_begin + places[1].offset, unit->sums_.size() * 8);
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    unit->pads_.emplace_back(data_begin + places[3 + 2 * i].offset, places[3 + 2 * i].bytes);
    unit->begins_.push_back(data_begin + places[4 + 2 * i].offset);
  }
  if (direct) unit->fd_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  unit->direct_ = unit->fd_.valid();
  if (unit->direct_) unit->grain_ = DirectGrain(unit->fd_.get());
  if (!unit->fd_) unit->fd_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!unit->fd_) return FileError("open", path, errno);
  if (!unit->direct_) static_cast<void>(::posix_fadvise(unit->fd_.get(), 0, 0, POSIX_FADV_RANDOM));
  return std::shared_ptr<const UnitFile>(std::move(unit));
}

Status UnitFile::Verify() const {
  UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FileError("open", path_, errno);
  const auto read = [&](uint64_t offset, std::vector<char>* out) -> Status {
    size_t done = 0;
    while (done < out->size()) {
      const ssize_t n = ::pread(fd.get(), out->data() + done, out->size() - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FileError("read", path_, errno);
      if (n == 0) return Damaged(path_, "it ends early");
      done += static_cast<size_t>(n);
    }
    return Status::Ok();
  };
  std::vector<char> buffer;
  for (size_t column = 0; column < columns_.size(); ++column) {
    buffer.resize(columns_[column].bytes);
    for (uint64_t row = 0; row < rows_; ++row) {
      LOCKSTEP_RETURN_IF_ERROR(read(offset(row, column), &buffer));
      if (RowSum(keys_[row], buffer.data(), buffer.size()) != sum(row, column)) {
        return Damaged(path_, fmt::format("row {} of '{}' is damaged", row, columns_[column].name));
      }
    }
  }
  for (const auto& [at, bytes] : pads_) {
    buffer.resize(bytes);
    LOCKSTEP_RETURN_IF_ERROR(read(at, &buffer));
    if (std::any_of(buffer.begin(), buffer.end(), [](char c) { return c != 0; })) {
      return Damaged(path_, "its padding is not zero");
    }
  }
  return Status::Ok();
}

}  // namespace lockstep::cache
