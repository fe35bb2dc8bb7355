#include "data/tensor_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/files.h"

namespace lockstep::data {
namespace {

constexpr size_t kHeaderRoom = 4096;  // a header of one tensor and a few words of metadata

Status WriteAt(int fd, const std::string& path, uint64_t offset, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd, data, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("write", path, errno);
    data += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return Status::Ok();
}

}  // namespace

Result<TensorStreamReader> TensorStreamReader::Open(const std::string& path, const std::string& name) {
  Result<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return file.status();
  const TensorInfo* tensor = file->Find(name);
  if (tensor == nullptr) {
    std::vector<std::string> found;
    for (const TensorInfo& each : file->tensors()) {
      if (found.size() < 8) found.push_back(fmt::format("'{}'", each.name));
    }
    return Status(Code::kUsage, fmt::format("'{}' has no tensor '{}'; it has {}", path, name,
                                            found.empty() ? "none" : fmt::format("{}", fmt::join(found, ", "))));
  }
  if (tensor->shape.size() != 5 || std::ranges::any_of(tensor->shape, [](int64_t size) { return size < 1; })) {
    return Status(
        Code::kUsage,
        fmt::format("'{}': tensor '{}' is {}, expected (clips, time, channels, height, width), none of them 0", path,
                    name, DescribeTensor(tensor->dtype, tensor->shape)));
  }
  if (DtypeBits(tensor->dtype) % 8 != 0) {
    return Status(Code::kUsage, fmt::format("'{}': tensor '{}' holds {}", path, name, DtypeName(tensor->dtype)),
                  "convert it to F32");
  }
  TensorStreamReader reader(std::move(*file));
  reader.name_ = name;
  const TensorInfo& own = reader.tensor();
  reader.step_bytes_ = own.bytes / static_cast<uint64_t>(own.shape[0]) / static_cast<uint64_t>(own.shape[1]);
  return reader;
}

Result<int64_t> TensorStreamReader::Next(int64_t steps, void* dst) {
  const TensorInfo& own = tensor();
  const int64_t n = std::min(steps, own.shape[1] - next_);
  if (n <= 0) return int64_t{0};
  const size_t bytes = static_cast<size_t>(n) * step_bytes_;
  for (int64_t clip = 0; clip < own.shape[0]; ++clip) {
    const uint64_t offset = own.offset + static_cast<uint64_t>(clip * own.shape[1] + next_) * step_bytes_;
    LOCKSTEP_RETURN_IF_ERROR(file_.ReadAt(offset, static_cast<char*>(dst) + static_cast<size_t>(clip) * bytes, bytes));
  }
  next_ += n;
  return n;
}

Result<TensorStreamWriter> TensorStreamWriter::Create(const std::string& path, const std::string& name, Dtype dtype,
                                                      const std::vector<int64_t>& shape, bool overwrite) {
  if (shape.size() < 2 || shape[0] < 1 || (shape[1] < 0 && shape[0] != 1)) {
    return Status(Code::kInternal,
                  fmt::format("'{}': [{}] cannot be written step by step", path, fmt::join(shape, ", ")));
  }
  std::vector<int64_t> step(shape.begin() + 2, shape.end());
  Result<uint64_t> bytes = TensorBytes(dtype, step);
  if (!bytes.ok()) return bytes.status().Context(path);
  Result<Publication> place = Publication::File(path, overwrite);
  if (!place.ok()) return place.status();
  TensorStreamWriter writer(std::move(*place));
  writer.spec_ = {name, dtype, shape};
  writer.step_bytes_ = *bytes;
  writer.fd_.reset(::open(writer.place_.temporary().c_str(), O_WRONLY | O_CLOEXEC));
  if (!writer.fd_) return FileError("create", path, errno);
  return writer;
}

Status TensorStreamWriter::Write(const void* data, int64_t steps) {
  const int64_t total = spec_.shape[1];
  if (total >= 0 && written_ + steps > total) {
    return Status(Code::kInternal,
                  fmt::format("'{}': {} steps where {} were announced", place_.path(), written_ + steps, total));
  }
  const size_t bytes = static_cast<size_t>(steps) * step_bytes_;
  for (int64_t clip = 0; clip < spec_.shape[0]; ++clip) {
    const uint64_t at =
        kHeaderRoom + static_cast<uint64_t>(clip * std::max<int64_t>(total, 0) + written_) * step_bytes_;
    LOCKSTEP_RETURN_IF_ERROR(WriteAt(fd_.get(), place_.path(), at,
                                     static_cast<const char*>(data) + static_cast<size_t>(clip) * bytes, bytes));
  }
  written_ += steps;
  return Status::Ok();
}

Status TensorStreamWriter::Finish(const std::map<std::string, std::string>& metadata) {
  if (written_ == 0) return Status(Code::kEnvironment, fmt::format("'{}': there is nothing to write", place_.path()));
  if (spec_.shape[1] >= 0 && written_ != spec_.shape[1]) {
    return Status(Code::kInternal,
                  fmt::format("'{}': {} steps where {} were announced", place_.path(), written_, spec_.shape[1]));
  }
  spec_.shape[1] = written_;
  Result<SafetensorsLayout> layout = LayoutSafetensors({spec_}, metadata);
  if (!layout.ok()) return layout.status().Context(place_.path());
  std::string header = layout->header;
  if (header.size() > kHeaderRoom) {
    return Status(Code::kInternal,
                  fmt::format("'{}': a header of {} bytes does not fit", place_.path(), header.size()));
  }
  header.resize(kHeaderRoom, ' ');  // blanks behind the JSON are part of the format
  const uint64_t length = kHeaderRoom - 8;
  std::memcpy(header.data(), &length, 8);
  LOCKSTEP_RETURN_IF_ERROR(WriteAt(fd_.get(), place_.path(), 0, header.data(), header.size()));
  if (::close(fd_.release()) != 0) return FileError("write", place_.path(), errno);
  return place_.Publish();
}

}  // namespace lockstep::data
