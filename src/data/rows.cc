#include "data/rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/safetensors.h"
#include "base/text.h"
#include "data/text_listing.h"

namespace lockstep::data {
namespace {

std::optional<ElementType> ElementOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kU8:
      return ElementType::kU8;
    case Dtype::kF32:
      return ElementType::kF32;
    case Dtype::kI64:
      return ElementType::kI64;
    default:
      return std::nullopt;
  }
}

class SafetensorsRows final : public Rows {
 public:
  SafetensorsRows(std::string path, SafetensorsFile file, TensorInfo tensor, Field field)
      : path_(std::move(path)), file_(std::move(file)), tensor_(std::move(tensor)), field_(std::move(field)) {}

  const Field& field() const override { return field_; }
  uint64_t size() const override { return static_cast<uint64_t>(tensor_.shape[0]); }
  const std::string& path() const override { return path_; }
  Status Read(uint64_t row, std::optional<uint64_t> slice, void* out) const override {
    uint64_t bytes = field_.bytes();
    uint64_t offset = tensor_.offset + row * bytes;
    if (slice) {
      bytes /= static_cast<uint64_t>(field_.shape[0]);
      offset += *slice * bytes;
    }
    return file_.ReadAt(offset, out, bytes);
  }

 private:
  std::string path_;
  SafetensorsFile file_;
  TensorInfo tensor_;
  Field field_;
};

// Rows of several files.
class JoinedRows final : public Rows {
 public:
  JoinedRows(std::string path, std::vector<std::unique_ptr<Rows>> parts)
      : path_(std::move(path)), parts_(std::move(parts)) {
    for (const auto& part : parts_) starts_.push_back(starts_.back() + part->size());
  }
  const Field& field() const override { return parts_[0]->field(); }
  uint64_t size() const override { return starts_.back(); }
  const std::string& path() const override { return path_; }
  Status Read(uint64_t row, std::optional<uint64_t> slice, void* out) const override {
    const auto part = std::ranges::upper_bound(starts_, row) - starts_.begin() - 1;
    return parts_[part]->Read(row - starts_[part], slice, out);
  }

 private:
  std::string path_;
  std::vector<std::unique_ptr<Rows>> parts_;
  std::vector<uint64_t> starts_ = {0};
};

const FileNames kSafetensorsFiles = {"*.safetensors",
                                     [](std::string_view name) { return name.ends_with(".safetensors"); }};
const FileNames kHdf5Files = {"*.h5 *.hdf5",
                              [](std::string_view name) { return name.ends_with(".h5") || name.ends_with(".hdf5"); }};

class RowSource final : public Source {
 public:
  RowSource(std::string what, std::vector<std::unique_ptr<Rows>> rows, std::string digest)
      : what_(std::move(what)), rows_(std::move(rows)), digest_(std::move(digest)) {
    for (const auto& array : rows_) fields_.push_back(array->field());
  }
  const std::vector<Field>& fields() const override { return fields_; }
  uint64_t size() const override { return rows_[0]->size(); }
  std::string Name(uint64_t index) const override { return fmt::format("{} row {}", rows_[0]->path(), index); }
  std::string Origin(uint64_t index) const override { return fmt::format("row {}", index); }
  Status Read(const Draw& draw, std::span<std::byte* const> out) const override {
    for (size_t i = 0; i < rows_.size(); ++i) {
      LOCKSTEP_RETURN_IF_ERROR(rows_[i]->Read(draw.index, std::nullopt, out[i]));
    }
    return Status::Ok();
  }
  std::string Describe() const override { return what_; }
  std::string Digest() const override { return digest_; }

 private:
  std::string what_;
  std::vector<std::unique_ptr<Rows>> rows_;
  std::string digest_;
  std::vector<Field> fields_;
};

}  // namespace

std::string DescribeField(const Field& field) {
  const Dtype dtype = field.type == ElementType::kU8    ? Dtype::kU8
                      : field.type == ElementType::kF32 ? Dtype::kF32
                                                        : Dtype::kI64;
  return DescribeTensor(dtype, field.shape);
}

Result<std::vector<TextFile>> ListRowFiles(const std::string& kind, const std::string& path) {
  return ListTextFiles(path, kind == "hdf5" ? kHdf5Files : kSafetensorsFiles);
}

Result<std::unique_ptr<Rows>> OpenSafetensorsRows(const std::string& path, const std::string& name) {
  Result<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return file.status();
  const TensorInfo* tensor = file->Find(name);
  if (tensor == nullptr) {
    std::vector<std::string> known;
    for (const TensorInfo& one : file->tensors()) known.push_back(one.name);
    const std::string some = Join({known.begin(), known.begin() + std::min<size_t>(known.size(), 8)}, ", ");
    return Status(Code::kUsage, fmt::format("'{}' has no tensor '{}'{}", path, name, DidYouMean(name, known)),
                  "it has: " + (some.empty() ? "none" : some));
  }
  const std::optional<ElementType> type = ElementOf(tensor->dtype);
  if (!type || tensor->shape.empty()) {
    return Status(Code::kUsage, fmt::format("'{}': tensor '{}' is {}; expected U8, F32 or I64 with one row a sample",
                                            path, name, DescribeTensor(tensor->dtype, tensor->shape)));
  }
  Field field{name, *type, {tensor->shape.begin() + 1, tensor->shape.end()}};
  TensorInfo info = *tensor;
  return std::unique_ptr<Rows>(
      std::make_unique<SafetensorsRows>(path, std::move(*file), std::move(info), std::move(field)));
}

Result<std::unique_ptr<Rows>> OpenRows(const std::string& kind, const std::string& path, const std::string& name) {
  Result<std::vector<TextFile>> files = ListRowFiles(kind, path);
  if (!files.ok()) return files.status();
  std::vector<std::unique_ptr<Rows>> parts;
  for (const TextFile& file : *files) {
    auto part = kind == "hdf5" ? OpenHdf5Rows(file.path, name) : OpenSafetensorsRows(file.path, name);
    if (!part.ok()) return part.status();
    const Field &field = (*part)->field(), &first = parts.empty() ? field : parts[0]->field();
    if (field.type != first.type || field.shape != first.shape) {
      return Status(Code::kUsage, fmt::format("rows of '{}' are {} in '{}' and {} in '{}'", name, DescribeField(first),
                                              parts[0]->path(), DescribeField(field), file.path));
    }
    if ((*part)->size() > 0) parts.push_back(std::move(*part));
  }
  if (parts.empty()) return Status(Code::kUsage, fmt::format("'{}': '{}' has no rows", path, name));
  if (parts.size() == 1) return std::move(parts[0]);
  return std::unique_ptr<Rows>(std::make_unique<JoinedRows>(path, std::move(parts)));
}

Result<std::unique_ptr<Source>> OpenRowSource(const std::string& kind, const std::string& path,
                                              const std::vector<std::string>& names) {
  if (names.empty()) return Status(Code::kUsage, "no array is named: expected the names of those that form a sample");
  Result<std::vector<TextFile>> files = ListRowFiles(kind, path);
  if (!files.ok()) return files.status();
  std::vector<std::unique_ptr<Rows>> arrays;
  for (const std::string& name : names) {
    auto rows = OpenRows(kind, path, name);
    if (!rows.ok()) return rows.status();
    if (!arrays.empty() && (*rows)->size() != arrays[0]->size()) {
      return Status(Code::kUsage,
                    fmt::format("'{}': '{}' has {} rows and '{}' has {}", path, names[0], arrays[0]->size(), name,
                                (*rows)->size()),
                    "every array needs one row for each sample");
    }
    arrays.push_back(std::move(*rows));
  }
  const std::string what = fmt::format("{}: {} rows of {} in {}", kind, arrays[0]->size(), Join(names, ", "), path);
  return std::unique_ptr<Source>(
      std::make_unique<RowSource>(what, std::move(arrays), DigestOfFiles(*files, Join(names, "\n"))));
}

}  // namespace lockstep::data
