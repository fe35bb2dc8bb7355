#include "data/npy.h"

#include <fmt/format.h>

#include <cstring>

#include "base/text.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr size_t kMostHeader = 1 << 20, kNpyAlign = 64;

Status NotNpy(const std::string& path, const std::string& why) {
  return Status(Code::kEnvironment, fmt::format("'{}' cannot be decoded: {}", path, why));
}

// What follows 'key': in the header, a Python dict literal; "" where there is none.
std::string_view ValueOf(std::string_view header, std::string_view key) {
  const size_t at = header.find(fmt::format("'{}'", key));
  if (at == std::string_view::npos) return {};
  const size_t colon = header.find(':', at);
  return colon == std::string_view::npos ? std::string_view{} : Trim(header.substr(colon + 1));
}

bool ParseShape(std::string_view text, std::vector<int64_t>* shape) {
  if (!text.starts_with('(')) return false;
  const size_t end = text.find(')');
  if (end == std::string_view::npos) return false;
  for (const std::string& part : lockstep::Split(text.substr(1, end - 1), ',')) {
    const std::string_view number = Trim(part);
    if (number.empty()) continue;
    int64_t value = 0;
    for (const char c : number) {
      if (c < '0' || c > '9' || value > (int64_t{1} << 40)) return false;
      value = value * 10 + (c - '0');
    }
    shape->push_back(value);
  }
  return true;
}

}  // namespace

Result<NpyFile> NpyFile::Open(const std::string& path) {
  Result<ListedFile> listed = OpenListed(path);
  if (!listed.ok()) return listed.status();
  NpyFile file;
  file.path_ = path;
  file.read_ = listed->read;
  std::string start(std::min<uint64_t>(listed->bytes, 12), '\0');
  LOCKSTEP_RETURN_IF_ERROR(file.read_(0, start.size(), start.data()));
  if (start.size() < 12 || !start.starts_with(kNpyMagic)) return NotNpy(path, "it is no .npy file");
  const int version = static_cast<uint8_t>(start[6]);
  uint32_t length = 0;
  std::memcpy(&length, start.data() + 8, version == 1 ? 2 : 4);
  file.data_ = (version == 1 ? 10 : 12) + uint64_t{length};
  if (version < 1 || version > 3) return NotNpy(path, fmt::format("version {} of .npy is not known", version));
  if (length > kMostHeader || file.data_ > listed->bytes) return NotNpy(path, "the file is truncated");
  std::string header(length, '\0');
  LOCKSTEP_RETURN_IF_ERROR(file.read_(file.data_ - length, length, header.data()));
  const std::string_view type = ValueOf(header, "descr");
  if (type.starts_with("'|u1'") || type.starts_with("'|b1'")) {
    file.type_ = ElementType::kU8;
    file.most_ = type.starts_with("'|b1'") ? 1 : 255;
  } else if (type.starts_with("'<f4'")) {
    file.type_ = ElementType::kF32;
  } else {
    return NotNpy(path,
                  fmt::format("its numbers are {}; expected uint8, bool or float32", type.substr(0, type.find(','))));
  }
  if (!ValueOf(header, "fortran_order").starts_with("False")) return NotNpy(path, "it is in Fortran order");
  if (!ParseShape(ValueOf(header, "shape"), &file.shape_)) return NotNpy(path, "its header has no shape");
  uint64_t bytes = SizeOf(file.type_);
  for (const int64_t n : file.shape_) {
    if (n > 0 && bytes > listed->bytes / static_cast<uint64_t>(n)) return NotNpy(path, "the file is truncated");
    bytes *= static_cast<uint64_t>(n);
  }
  if (file.data_ + bytes > listed->bytes) return NotNpy(path, "the file is truncated");
  return file;
}

Status NpyFile::ReadAll(std::byte* out) const {
  Field field{"", type_, shape_};
  return read_(data_, field.bytes(), reinterpret_cast<char*>(out));
}

Status NpyFile::ReadBox(int64_t top, int64_t left, int64_t height, int64_t width, std::byte* out) const {
  const size_t axes = shape_.size();
  if (axes < 2 || top < 0 || left < 0 || top + height > shape_[axes - 2] || left + width > shape_[axes - 1]) {
    return NotNpy(path_, fmt::format("an array of shape ({}) has no box of {} x {} at ({}, {})",
                                     fmt::join(shape_, ", "), height, width, top, left));
  }
  const size_t size = SizeOf(type_);
  const int64_t rows = shape_[axes - 2], columns = shape_[axes - 1];
  int64_t planes = 1;
  for (size_t i = 0; i + 2 < axes; ++i) planes *= shape_[i];
  std::string lines(static_cast<size_t>(height * columns) * size, '\0');
  for (int64_t plane = 0; plane < planes; ++plane) {
    const uint64_t at = data_ + static_cast<uint64_t>((plane * rows + top) * columns) * size;
    LOCKSTEP_RETURN_IF_ERROR(read_(at, lines.size(), lines.data()));
    for (int64_t y = 0; y < height; ++y) {
      std::memcpy(out, lines.data() + static_cast<size_t>(y * columns + left) * size,
                  static_cast<size_t>(width) * size);
      out += static_cast<size_t>(width) * size;
    }
  }
  return Status::Ok();
}

std::string EncodeNpy(ElementType type, std::span<const int64_t> shape, std::span<const std::byte> data) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                   type == ElementType::kU8    ? "|u1"
                                   : type == ElementType::kF32 ? "<f4"
                                                               : "<i8",
                                   fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  constexpr size_t kPrefix = 10;
  header.append((kNpyAlign - (kPrefix + header.size() + 1) % kNpyAlign) % kNpyAlign, ' ');
  header += '\n';
  std::string out(kNpyMagic);
  out += '\x01';
  out += '\0';
  out += static_cast<char>(header.size() & 255);
  out += static_cast<char>(header.size() >> 8);
  out += header;
  out.append(reinterpret_cast<const char*>(data.data()), data.size());
  return out;
}

}  // namespace lockstep::data
