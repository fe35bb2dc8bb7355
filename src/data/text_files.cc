// Text files as documents, byte by byte. Any encoding will do; a file with NUL bytes near its start is no text.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"
#include "data/corpus.h"
#include "data/text_listing.h"

namespace lockstep::data {
namespace {

constexpr uint64_t kLookedAt = 64u << 10;  // bytes of each file
constexpr size_t kNamesShown = 5;

class TextFilesCorpus final : public Corpus {
 public:
  TextFilesCorpus(std::string path, std::vector<TextFile> files, uint64_t empty)
      : path_(std::move(path)), files_(std::move(files)), empty_(empty) {}

  uint64_t documents() const override { return files_.size(); }
  uint64_t tokens(uint64_t document) const override { return files_[document].bytes; }
  std::string Name(uint64_t document) const override { return files_[document].path; }
  Status Read(uint64_t document, uint64_t first, uint64_t count, int64_t* out) const override {
    std::string bytes(count, '\0');
    LOCKSTEP_RETURN_IF_ERROR(ReadPart(files_[document].path, first, count, bytes.data()));
    std::ranges::transform(bytes, out, [](char c) { return static_cast<int64_t>(static_cast<unsigned char>(c)); });
    return Status::Ok();
  }
  std::string Describe() const override {
    uint64_t bytes = 0;
    for (const TextFile& file : files_) bytes += file.bytes;
    std::string text = fmt::format("text: {} with {} in {}", Count(static_cast<int64_t>(files_.size()), "file"),
                                   FormatSize(bytes), path_);
    if (empty_ > 0) text += fmt::format("; {} left out", Count(static_cast<int64_t>(empty_), "empty file"));
    return text;
  }
  std::string Digest() const override { return DigestOfFiles(files_, "text"); }

 private:
  std::string path_;
  std::vector<TextFile> files_;
  uint64_t empty_;
};

Result<bool> IsBinary(const TextFile& file) {
  std::string start(std::min(file.bytes, kLookedAt), '\0');
  LOCKSTEP_RETURN_IF_ERROR(ReadPart(file.path, 0, start.size(), start.data()));
  return start.find('\0') != std::string::npos;
}

}  // namespace

Result<std::shared_ptr<const Corpus>> OpenTextFiles(const CorpusConfig& config) {
  Result<std::vector<TextFile>> files = ListTextFiles(config.path, kAnyFile);
  if (!files.ok()) return files.status();
  const size_t all = files->size();
  std::erase_if(*files, [](const TextFile& file) { return file.bytes == 0; });
  if (files->empty()) {
    return Status(Code::kUsage,
                  all == 1 ? fmt::format("'{}' is empty", config.path)
                           : fmt::format("all {} files in '{}' are empty", all, config.path),
                  "check the path of the data");
  }
  std::vector<std::string> binary;
  for (const TextFile& file : *files) {
    Result<bool> is = IsBinary(file);
    if (!is.ok()) return is.status();
    if (*is) binary.push_back(file.path);
  }
  if (!binary.empty()) {
    const size_t count = binary.size();
    if (count > kNamesShown) binary.resize(kNamesShown);
    return Status(Code::kUsage,
                  fmt::format("{} binary, not text (NUL bytes in the first 64 KiB): {}{}",
                              count == 1 ? "a file is" : fmt::format("{} files are", count), Join(binary, ", "),
                              count > binary.size() ? ", ..." : ""),
                  "move what is not text out of the folder; packed tokens are kind: tokens");
  }
  const uint64_t empty = all - files->size();
  return std::shared_ptr<const Corpus>(std::make_shared<TextFilesCorpus>(config.path, std::move(*files), empty));
}

}  // namespace lockstep::data
