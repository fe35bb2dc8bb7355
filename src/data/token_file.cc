#include "data/token_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/files.h"
#include "base/text.h"
#include "base/zip.h"

namespace lockstep::data {
namespace {

// As on disk; all numbers little-endian, as on every machine this is built for.
struct RawHeader {
  char magic[8];
  uint32_t version, width;
  uint64_t vocabulary, end, tokens, documents;
  char tokenizer[24];  // zero-padded
  uint32_t content_crc;
  uint32_t header_crc;  // of the bytes before it
};
static_assert(sizeof(RawHeader) == 80);
constexpr char kTokenMagic[8] = {'L', 'S', 'T', 'O', 'K', 'E', 'N', 'S'};
constexpr uint32_t kTokenFileVersion = 1;
constexpr size_t kTokenBlock = 1u << 20;

constexpr const char* kRemedy = "write it again with `lockstep tokens`, or as docs/formats/tokens.md says";

Status DamagedTokens(const std::string& path, const std::string& what) {
  return Status(Code::kUsage, fmt::format("'{}': {}", path, what), kRemedy);
}

uint64_t PaddedTo8(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

Status ReadTokensAt(int fd, const std::string& path, uint64_t offset, void* dst, uint64_t bytes) {
  auto* at = static_cast<char*>(dst);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, at, std::min<uint64_t>(bytes, 1u << 30), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("read", path, errno);
    if (n == 0) return DamagedTokens(path, fmt::format("ends at byte {}, {} bytes early", offset, bytes));
    at += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<uint64_t>(n);
  }
  return Status::Ok();
}

Status CheckHeader(const std::string& path, const RawHeader& raw, uint64_t file_bytes) {
  if (std::memcmp(raw.magic, kTokenMagic, sizeof kTokenMagic) != 0) {
    return DamagedTokens(path, fmt::format("expected a packed token file, which begins with LSTOKENS, found '{}'",
                                           Printable(std::string_view(raw.magic, sizeof raw.magic))));
  }
  if (raw.version != kTokenFileVersion) {
    return DamagedTokens(path,
                         fmt::format("has version {} of the format, expected {}", raw.version, kTokenFileVersion));
  }
  const uint32_t crc = Crc32(0, &raw, offsetof(RawHeader, header_crc));
  if (crc != raw.header_crc) {
    return DamagedTokens(path, fmt::format("the header has CRC {:08x} and says {:08x}", crc, raw.header_crc));
  }
  if (raw.width != 2 && raw.width != 4) {
    return DamagedTokens(path, fmt::format("tokens of {} bytes, expected 2 or 4", raw.width));
  }
  const uint64_t most = raw.width == 2 ? uint64_t{1} << 16 : uint64_t{1} << 32;
  if (raw.vocabulary < 2 || raw.vocabulary > most || raw.end >= raw.vocabulary) {
    return DamagedTokens(path,
                         fmt::format("a vocabulary of {} with end token {}, expected 2 to {} and an end token in it",
                                     raw.vocabulary, raw.end, most));
  }
  constexpr uint64_t kMost = uint64_t{1} << 56;
  if (raw.documents == 0 || raw.tokens > kMost || raw.documents > kMost) {
    return DamagedTokens(path, fmt::format("{} documents with {} tokens", raw.documents, raw.tokens));
  }
  const uint64_t expected = sizeof(RawHeader) + PaddedTo8(raw.tokens * raw.width) + (raw.documents + 1) * 8;
  if (file_bytes != expected) {
    return DamagedTokens(path, fmt::format("has {} bytes, expected {} for {} tokens in {} documents", file_bytes,
                                           expected, raw.tokens, raw.documents));
  }
  return Status::Ok();
}

template <typename T>
void Widen(const std::string& bytes, int64_t* out) {
  for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    T token{};
    std::memcpy(&token, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = token;
  }
}

}  // namespace

bool IsTokenFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char start[sizeof kTokenMagic];
  return fd && ::pread(fd.get(), start, sizeof start, 0) == sizeof start &&
         std::memcmp(start, kTokenMagic, sizeof kTokenMagic) == 0;
}

Result<TokenFile> TokenFile::Open(const std::string& path) {
  TokenFile file;
  file.path_ = path;
  file.fd_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.fd_) return FileError("open", path, errno);
  struct stat info{};
  if (::fstat(file.fd_.get(), &info) != 0) return FileError("read", path, errno);
  RawHeader raw{};
  const auto bytes = static_cast<uint64_t>(info.st_size);
  LOCKSTEP_RETURN_IF_ERROR(ReadTokensAt(file.fd_.get(), path, 0, &raw, std::min<uint64_t>(bytes, sizeof raw)));
  LOCKSTEP_RETURN_IF_ERROR(CheckHeader(path, raw, bytes));
  const std::string tokenizer(raw.tokenizer, strnlen(raw.tokenizer, sizeof raw.tokenizer));
  file.header_ = {{tokenizer, raw.vocabulary, static_cast<int64_t>(raw.end)},
                  raw.width,
                  raw.tokens,
                  raw.documents,
                  raw.content_crc};
  file.digest_ = XXH64(&raw, sizeof raw, 0);
  file.places_.resize(raw.documents + 1);
  LOCKSTEP_RETURN_IF_ERROR(ReadTokensAt(file.fd_.get(), path, sizeof raw + PaddedTo8(raw.tokens * raw.width),
                                        file.places_.data(), file.places_.size() * 8));
  if (file.places_.front() != 0 || file.places_.back() != raw.tokens || !std::ranges::is_sorted(file.places_)) {
    return DamagedTokens(path, "the places of its documents do not ascend from 0 to the number of tokens");
  }
  return file;
}

Status TokenFile::Read(uint64_t document, uint64_t first, uint64_t count, int64_t* out) const {
  std::string bytes(count * header_.width, '\0');
  LOCKSTEP_RETURN_IF_ERROR(ReadTokensAt(
      fd_.get(), path_, sizeof(RawHeader) + (places_[document] + first) * header_.width, bytes.data(), bytes.size()));
  (header_.width == 2 ? Widen<uint16_t> : Widen<uint32_t>)(bytes, out);
  const int64_t* wrong = std::find_if(
      out, out + count, [&](int64_t token) { return token >= static_cast<int64_t>(header_.vocabulary.size); });
  if (wrong == out + count) return Status::Ok();
  return DamagedTokens(
      path_, fmt::format("token {} of document {} is {}, and the vocabulary has {}",
                         first + static_cast<uint64_t>(wrong - out), document, *wrong, header_.vocabulary.size));
}

Status VerifyTokenFile(const std::string& path, const std::function<void(uint64_t done, uint64_t all)>& progress) {
  Result<TokenFile> file = TokenFile::Open(path);
  if (!file.ok()) return file.status();
  const TokenFileHeader& header = file->header();
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FileError("open", path, errno);
  const uint64_t tokens = header.tokens * header.width;  // bytes
  const uint64_t all = PaddedTo8(tokens) + (header.documents + 1) * 8;
  std::string block(kTokenBlock, '\0');
  std::vector<int64_t> values(kTokenBlock / header.width);
  uint32_t crc = 0;
  for (uint64_t at = 0; at < all; at += kTokenBlock) {
    block.resize(std::min<uint64_t>(kTokenBlock, all - at));
    LOCKSTEP_RETURN_IF_ERROR(ReadTokensAt(fd.get(), path, sizeof(RawHeader) + at, block.data(), block.size()));
    crc = Crc32(crc, block.data(), block.size());
    if (progress) progress(at + block.size(), all);
    if (at >= tokens) continue;
    block.resize(std::min<uint64_t>(block.size(), tokens - at));
    values.resize(block.size() / header.width);
    (header.width == 2 ? Widen<uint16_t> : Widen<uint32_t>)(block, values.data());
    const int64_t largest = *std::ranges::max_element(values);
    if (largest >= static_cast<int64_t>(header.vocabulary.size)) {
      return DamagedTokens(path,
                           fmt::format("one of tokens {} to {} is {}, and the vocabulary has {}", at / header.width,
                                       at / header.width + values.size() - 1, largest, header.vocabulary.size));
    }
  }
  if (crc == header.crc) return Status::Ok();
  return DamagedTokens(path, fmt::format("the content has CRC {:08x}, the header says {:08x}", crc, header.crc));
}

Result<TokenFileWriter> TokenFileWriter::Create(const std::string& path, const Vocabulary& vocabulary, bool overwrite) {
  Result<Publication> place = Publication::File(path, overwrite);
  if (!place.ok()) return place.status();
  if (vocabulary.tokenizer.size() > sizeof(RawHeader::tokenizer)) {
    return Status(Code::kUsage, fmt::format("the tokenizer's name '{}' is longer than {} bytes", vocabulary.tokenizer,
                                            sizeof(RawHeader::tokenizer)));
  }
  TokenFileWriter writer(std::move(*place));
  writer.header_.vocabulary = vocabulary;
  writer.header_.width = vocabulary.size <= uint64_t{1} << 16 ? 2 : 4;
  const std::string& temporary = writer.place_.temporary();
  writer.fd_.reset(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!writer.fd_) return FileError("write", temporary, errno);
  const RawHeader room{};
  LOCKSTEP_RETURN_IF_ERROR(writer.Write(&room, sizeof room));
  return writer;
}

Status TokenFileWriter::Write(const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd_.get(), at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("write", place_.path(), errno);
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return Status::Ok();
}

Status TokenFileWriter::Flush() {
  header_.crc = Crc32(header_.crc, buffer_.data(), buffer_.size());
  LOCKSTEP_RETURN_IF_ERROR(Write(buffer_.data(), buffer_.size()));
  buffer_.clear();
  return Status::Ok();
}

Status TokenFileWriter::Add(std::span<const int64_t> tokens) {
  for (const int64_t token : tokens) {
    if (token < 0 || static_cast<uint64_t>(token) >= header_.vocabulary.size) {
      return Status(Code::kUsage,
                    fmt::format("token {} is outside the vocabulary of {}", token, header_.vocabulary.size));
    }
    const auto narrow = static_cast<uint32_t>(token);
    buffer_.append(reinterpret_cast<const char*>(&narrow), header_.width);
  }
  header_.tokens += tokens.size();
  return buffer_.size() < kTokenBlock ? Status::Ok() : Flush();
}

Status TokenFileWriter::EndDocument() {
  places_.push_back(header_.tokens);
  ++header_.documents;
  return Status::Ok();
}

Status TokenFileWriter::Finish() {
  if (header_.documents == 0) return Status(Code::kUsage, "a packed token file needs at least one document");
  buffer_.resize(buffer_.size() + PaddedTo8(header_.tokens * header_.width) - header_.tokens * header_.width, '\0');
  buffer_.append(reinterpret_cast<const char*>(places_.data()), places_.size() * 8);
  LOCKSTEP_RETURN_IF_ERROR(Flush());
  RawHeader raw{};
  std::memcpy(raw.magic, kTokenMagic, sizeof kTokenMagic);
  raw.version = kTokenFileVersion;
  raw.width = header_.width;
  raw.vocabulary = header_.vocabulary.size;
  raw.end = static_cast<uint64_t>(header_.vocabulary.end);
  raw.tokens = header_.tokens;
  raw.documents = header_.documents;
  std::memcpy(raw.tokenizer, header_.vocabulary.tokenizer.data(), header_.vocabulary.tokenizer.size());
  raw.content_crc = header_.crc;
  raw.header_crc = Crc32(0, &raw, offsetof(RawHeader, header_crc));
  if (::lseek(fd_.get(), 0, SEEK_SET) != 0) return FileError("write", place_.path(), errno);
  LOCKSTEP_RETURN_IF_ERROR(Write(&raw, sizeof raw));
  fd_.reset();
  return place_.Publish();
}

}  // namespace lockstep::data
