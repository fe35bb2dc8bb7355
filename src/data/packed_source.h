// Documents packed into sequences of equal length: all documents of a corpus, each followed by the end token, form one
// stream that is cut every `length` tokens; what is left at the end is not used. A sample is one sequence, found by
// arithmetic and a search over the documents' places. Fields, all I64 [length]:
//
//   tokens     as in the stream
//   labels     the token that follows, also across the end of the sequence; -100 behind an end token: nothing is
//              predicted across documents
//   positions  0, 1, 2, ... from the start of the document or of the sequence
//   documents  0 for the first document of the sequence, 1 for the next, ...
//
// Any thread, as every Source.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/corpus.h"
#include "data/source.h"

namespace lockstep::data {

// Which documents a source packs, in order. At most one of them in part.
struct DocumentChoice {
  struct Part {
    uint32_t document = 0;
    uint64_t first = 0, count = 0;
  };
  std::vector<uint32_t> documents;
  std::optional<Part> part;
  uint64_t Tokens(const Corpus& corpus, uint32_t document) const;  // of one of them, without the end token
};

class PackedSource final : public Source {
 public:
  // At most `most` sequences (0: all). May have none.
  PackedSource(std::shared_ptr<const Corpus> corpus, DocumentChoice choice, uint64_t length, uint64_t most = 0);

  const std::vector<Field>& fields() const override { return fields_; }
  uint64_t size() const override { return size_; }
  std::string Name(uint64_t index) const override;
  Status Read(const Draw& draw, std::span<std::byte* const> out) const override;
  std::string Describe() const override;
  std::string Digest() const override;

  const Corpus& corpus() const { return *corpus_; }
  uint64_t length() const { return length_; }
  // Tokens of the stream, end tokens included.
  uint64_t tokens() const { return starts_.back(); }
  // Labels of a sequence that are not -100.
  uint64_t Labelled(uint64_t index) const;
  // The most documents that one sequence has.
  uint64_t most_documents() const { return most_documents_; }

 private:
  size_t DocumentAt(uint64_t place) const;

  std::shared_ptr<const Corpus> corpus_;
  DocumentChoice choice_;
  uint64_t length_;
  std::vector<Field> fields_;
  std::vector<uint64_t> starts_ = {0};  // of each document in the stream, and its end
  uint64_t size_ = 0, most_documents_ = 0;
};

struct PackedSplit {
  std::shared_ptr<const PackedSource> train, validation;  // validation: null where fraction is 0
};

// Divides the documents: each validates if a hash of (seed, its number) says so, which is true for `fraction` of them.
// Where that gives no sequence, or more than twice as many tokens as asked for (few documents, or very unequal ones),
// the last part of the data validates instead, within a document if need be. Errors: too little for one sequence on
// each side, more than 2^32 documents.
Result<PackedSplit> PackCorpus(std::shared_ptr<const Corpus> corpus, uint64_t length, double fraction,
                               uint64_t most_validation, uint64_t seed);

}  // namespace lockstep::data
