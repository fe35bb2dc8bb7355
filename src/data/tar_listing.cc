#include "data/tar_listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/digits.h"
#include "base/text.h"

namespace lockstep::data {
namespace {

constexpr uint64_t kBlock = 512;
constexpr uint64_t kMostHeaderText = 1 << 20;  // of a long name or a pax header

// Fields of a header block: offset and length.
struct HeaderField {
  size_t at, size;
};
constexpr HeaderField kNameField{0, 100}, kSizeField{124, 12}, kChecksumField{148, 8}, kTypeField{156, 1},
    kMagicField{257, 6}, kPrefixField{345, 155};

std::string_view Raw(const char* block, HeaderField slot) { return {block + slot.at, slot.size}; }
// Up to the first zero byte.
std::string_view Text(const char* block, HeaderField slot) {
  const std::string_view raw = Raw(block, slot);
  return raw.substr(0, std::min(raw.find('\0'), raw.size()));
}

// Octal digits with blanks and zeros around them, or GNU's binary form for large values.
std::optional<uint64_t> Number(std::string_view field) {
  const auto first = static_cast<unsigned char>(field[0]);
  uint64_t value = 0;
  if (first == 0x80) {
    for (size_t i = 1; i < field.size(); ++i) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(field[i]);
    }
    return value;
  }
  size_t i = field.find_first_not_of(' ');
  bool any = false;
  for (; i < field.size() && field[i] >= '0' && field[i] <= '7'; ++i, any = true) {
    value = value << 3 | static_cast<uint64_t>(field[i] - '0');
  }
  if (i > field.size() || !any) return std::nullopt;
  for (; i < field.size(); ++i) {
    if (field[i] != ' ' && field[i] != '\0') return std::nullopt;
  }
  return value;
}

bool ChecksumFits(const char* block) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const bool inside = i >= kChecksumField.at && i < kChecksumField.at + kChecksumField.size;
    sum += inside ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return Number(Raw(block, kChecksumField)) == sum;
}

// "27 path=some/long/name\n", as many as fit; false: not in this form.
struct PaxFields {
  std::optional<std::string> path;
  std::optional<uint64_t> size;
  bool Parse(std::string_view text) {
    while (!text.empty() && text[0] != '\0') {
      const size_t blank = text.find(' ');
      if (blank == std::string_view::npos) return false;
      const std::optional<size_t> length = ParseDigits<size_t>(text.substr(0, blank));
      if (!length || *length <= blank + 1 || *length > text.size() || text[*length - 1] != '\n') return false;
      const std::string_view entry = text.substr(blank + 1, *length - blank - 2);
      const size_t equals = entry.find('=');
      if (equals == std::string_view::npos) return false;
      const std::string_view key = entry.substr(0, equals), value = entry.substr(equals + 1);
      if (key == "path") path = std::string(value);
      if (key == "size") {
        size = ParseDigits<uint64_t>(value);
        if (!size) return false;
      }
      text.remove_prefix(*length);
    }
    return true;
  }
};

class Lister {
 public:
  Lister(const ReadAt& read, uint64_t bytes, const std::string& name) : read_(read), bytes_(bytes), name_(name) {}

  Result<std::vector<TarMember>> List() {
    for (;;) {
      Result<bool> more = Step();
      if (!more.ok()) return more.status();
      if (!*more) return std::move(members_);
    }
  }

 private:
  Status Wrong(const std::string& what) const {
    return Status(Code::kEnvironment, fmt::format("'{}' is no usable tar file: {}", name_, what));
  }

  // One member; false at the end.
  Result<bool> Step() {
    char block[kBlock];
    // Members that were lost leave no other trace than this.
    if (bytes_ - at_ < kBlock) {
      return Wrong(fmt::format("it ends at byte {} without an end mark: it was cut, or its writer did not close it",
                               bytes_))
          .WithHint("fetch the file again, or write it again and close it");
    }
    LOCKSTEP_RETURN_IF_ERROR(read_(at_, kBlock, block));
    if (std::ranges::all_of(block, [](char c) { return c == '\0'; })) return false;
    if (!ChecksumFits(block)) return BadHeader(block);
    const char type = block[kTypeField.at];
    std::optional<uint64_t> size = Number(Raw(block, kSizeField));
    if (type != 'x' && type != 'g' && type != 'L' && type != 'K' && pax_.size) size = pax_.size;
    if (!size) return Wrong(fmt::format("the header at byte {} has no size", at_));
    const uint64_t begin = at_ + kBlock;
    if (*size > bytes_ - begin) {
      return Wrong(fmt::format("member '{}' has {} bytes, {} are left: the file is truncated", Printable(NameOf(block)),
                               *size, bytes_ - begin))
          .WithHint("fetch the file again");
    }
    LOCKSTEP_RETURN_IF_ERROR(Take(type, block, begin, *size));
    at_ = begin + std::min((*size + kBlock - 1) / kBlock * kBlock, bytes_ - begin);
    return true;
  }

  Status BadHeader(const char* block) const {
    const std::string_view head(block, kBlock);
    if (at_ == 0 && (head.starts_with("\x1f\x8b") || head.starts_with("BZh") ||
                     head.starts_with("\xfd"
                                      "7zXZ") ||
                     head.starts_with("\x28\xb5\x2f\xfd"))) {
      return Wrong("it is compressed, and members of a compressed file cannot be read by their place")
          .WithHint("unpack it: pictures and videos do not become smaller by it");
    }
    return Wrong(fmt::format("the header at byte {} has a wrong checksum", at_));
  }

  std::string NameOf(const char* block) const {
    if (pax_.path) return *pax_.path;
    if (!long_name_.empty()) return long_name_;
    const std::string_view prefix =
        Raw(block, kMagicField) == std::string_view("ustar\0", 6) ? Text(block, kPrefixField) : "";
    return prefix.empty() ? std::string(Text(block, kNameField))
                          : fmt::format("{}/{}", prefix, Text(block, kNameField));
  }

  Status Take(char type, const char* block, uint64_t begin, uint64_t size) {
    if (type == 'x' || type == 'g' || type == 'L' || type == 'K') {
      if (size > kMostHeaderText) return Wrong(fmt::format("a header of {} bytes at byte {}", size, at_));
      std::string text(size, '\0');
      LOCKSTEP_RETURN_IF_ERROR(read_(begin, text.size(), text.data()));
      if (type == 'L') long_name_ = text.substr(0, text.find('\0'));
      if (type == 'x' && !pax_.Parse(text)) return Wrong(fmt::format("a pax header without form at byte {}", at_));
      return Status::Ok();
    }
    if (type == 'S') return Wrong(fmt::format("'{}' is stored with holes", Printable(NameOf(block))));
    if (type == '0' || type == '\0' || type == '7') {
      std::string name = NameOf(block);
      while (name.starts_with("./")) name.erase(0, 2);
      if (name.empty() || name.find('\0') != std::string::npos) {
        return Wrong(fmt::format("the member at byte {} has no usable name", at_));
      }
      if (!name.ends_with('/')) members_.push_back({std::move(name), begin, size});
    }
    pax_ = {};
    long_name_.clear();
    return Status::Ok();
  }

  const ReadAt& read_;
  uint64_t bytes_;
  const std::string& name_;
  uint64_t at_ = 0;
  PaxFields pax_;
  std::string long_name_;
  std::vector<TarMember> members_;
};

}  // namespace

Result<std::vector<TarMember>> ListTar(const ReadAt& read, uint64_t file_bytes, const std::string& name) {
  return Lister(read, file_bytes, name).List();
}

Result<std::vector<TarMember>> ListTar(const std::string& path) {
  Result<ListedFile> file = OpenListed(path);
  if (!file.ok()) return file.status();
  return ListTar(file->read, file->bytes, path);
}

std::pair<std::string_view, std::string_view> SplitSampleName(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t dot = name.find('.', slash == std::string_view::npos ? 0 : slash + 1);
  if (dot == std::string_view::npos) return {name, ""};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

}  // namespace lockstep::data
