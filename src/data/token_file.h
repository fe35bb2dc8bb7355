// Packed token files (docs/formats/tokens.md): the tokens of many documents one after another, with their places. The
// reader checks header and places when it opens a file, and each token when it is read; the checksum of the content is
// checked by VerifyTokenFile alone, since it reads everything. The writer streams: it holds the places in memory, not
// the tokens. Reading is const and safe from any thread; a writer is for one thread.
//
//   Result<TokenFileWriter> out = TokenFileWriter::Create("text.tokens", ByteVocabulary(), /*overwrite=*/false);
//   LOCKSTEP_RETURN_IF_ERROR(out->Add(tokens));
//   LOCKSTEP_RETURN_IF_ERROR(out->EndDocument());
//   LOCKSTEP_RETURN_IF_ERROR(out->Finish());
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "data/corpus.h"
#include "data/publish.h"

namespace lockstep::data {

struct TokenFileHeader {
  Vocabulary vocabulary;
  uint32_t width = 2;  // bytes of a token: 2 or 4
  uint64_t tokens = 0;
  uint64_t documents = 0;
  uint32_t crc = 0;  // of everything behind the header
};

class TokenFile {
 public:
  static Result<TokenFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const TokenFileHeader& header() const { return header_; }
  uint64_t documents() const { return header_.documents; }
  uint64_t tokens(uint64_t document) const { return places_[document + 1] - places_[document]; }
  Status Read(uint64_t document, uint64_t first, uint64_t count, int64_t* out) const;
  // Of the header, checksum of the content included.
  uint64_t digest() const { return digest_; }

 private:
  std::string path_;
  UniqueFd fd_;
  TokenFileHeader header_;
  uint64_t digest_ = 0;
  std::vector<uint64_t> places_;  // of each document, and the end
};

// Whether a file begins as one.
bool IsTokenFile(const std::string& path);

// Reads everything: the checksum, and that every token is in the vocabulary. `progress` may be null.
Status VerifyTokenFile(const std::string& path, const std::function<void(uint64_t done, uint64_t all)>& progress);

class TokenFileWriter {
 public:
  static Result<TokenFileWriter> Create(const std::string& path, const Vocabulary& vocabulary, bool overwrite);
  // Further tokens of the document under way.
  Status Add(std::span<const int64_t> tokens);
  Status EndDocument();
  // Publishes the file; an error without documents.
  Status Finish();
  const TokenFileHeader& header() const { return header_; }

 private:
  explicit TokenFileWriter(Publication place) : place_(std::move(place)) {}
  Status Write(const void* data, size_t bytes);
  Status Flush();

  Publication place_;
  UniqueFd fd_;
  TokenFileHeader header_;
  std::vector<uint64_t> places_ = {0};
  std::string buffer_;
};

}  // namespace lockstep::data
