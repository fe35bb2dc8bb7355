// Packed token files as a corpus: one, or all *.tokens files of a folder, of one vocabulary.
#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "base/text.h"
#include "data/corpus.h"
#include "data/text_listing.h"
#include "data/token_file.h"

namespace lockstep::data {
namespace {

class TokenCorpus final : public Corpus {
 public:
  TokenCorpus(std::string path, std::vector<TokenFile> files) : path_(std::move(path)), files_(std::move(files)) {
    for (const TokenFile& file : files_) firsts_.push_back(firsts_.back() + file.documents());
  }

  Vocabulary vocabulary() const override { return files_.front().header().vocabulary; }
  uint64_t documents() const override { return firsts_.back(); }
  uint64_t tokens(uint64_t document) const override {
    const size_t file = FileOf(document);
    return files_[file].tokens(document - firsts_[file]);
  }
  Status Read(uint64_t document, uint64_t first, uint64_t count, int64_t* out) const override {
    const size_t file = FileOf(document);
    return files_[file].Read(document - firsts_[file], first, count, out);
  }
  std::string Name(uint64_t document) const override {
    const size_t file = FileOf(document);
    return fmt::format("{} document {}", files_[file].path(), document - firsts_[file]);
  }
  std::string Describe() const override {
    uint64_t tokens = 0;
    for (const TokenFile& file : files_) tokens += file.header().tokens;
    return fmt::format("tokens: {} with {} tokens of '{}' (vocabulary {}) in {}",
                       Count(static_cast<int64_t>(documents()), "document"), tokens, vocabulary().tokenizer,
                       vocabulary().size, path_);
  }
  std::string Digest() const override {
    uint64_t digest = 0;
    for (const TokenFile& file : files_) {
      const uint64_t of_file = file.digest();
      digest = XXH64(&of_file, sizeof of_file, digest);
    }
    return fmt::format("xxh64:{:016x}", digest);
  }

 private:
  size_t FileOf(uint64_t document) const {
    return static_cast<size_t>(std::ranges::upper_bound(firsts_, document) - firsts_.begin()) - 1;
  }

  std::string path_;
  std::vector<TokenFile> files_;
  std::vector<uint64_t> firsts_ = {0};  // number of each file's first document
};

}  // namespace

Result<std::shared_ptr<const Corpus>> OpenTokenFiles(const CorpusConfig& config) {
  Result<std::vector<TextFile>> listed = ListTextFiles(config.path, kTokenFiles);
  if (!listed.ok()) return listed.status();
  std::vector<TokenFile> files;
  for (const TextFile& one : *listed) {
    Result<TokenFile> file = TokenFile::Open(one.path);
    if (!file.ok()) return file.status();
    const Vocabulary& found = file->header().vocabulary;
    if (!files.empty() && found != files.front().header().vocabulary) {
      const Vocabulary& first = files.front().header().vocabulary;
      return Status(
          Code::kUsage,
          fmt::format("'{}' has a vocabulary of {} ('{}', end {}), '{}' one of {} ('{}', end {})", files.front().path(),
                      first.size, first.tokenizer, first.end, one.path, found.size, found.tokenizer, found.end),
          "keep files of different tokenizers in different folders");
    }
    files.push_back(std::move(*file));
  }
  return std::shared_ptr<const Corpus>(std::make_shared<TokenCorpus>(config.path, std::move(files)));
}

}  // namespace lockstep::data
