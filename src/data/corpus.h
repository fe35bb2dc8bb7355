// Documents of tokens, whatever they lie in: text files, JSON lines, packed token files, or drawn from a seed. Opening
// lists the documents with their lengths and reads no more than that needs; tokens are read on demand, by pread. Every
// member is const and may be called from any thread at once. Ranks that open the same data get equal corpora; nothing
// is collective.
//
//   kind         what `path` is                                                    a document is
//   text         a file, or a folder that is searched with its subfolders          a file
//   jsonl        a file, or a folder with *.jsonl files                            the text in `field` of a line
//   tokens       a packed token file (docs/formats/tokens.md), or a folder of them what the file says
//   generated    not used: sentences drawn from a seed, no file needed             some lines of one seed
//   auto         generated without a path; else by the names of the files
//
// Text becomes tokens byte by byte: tokens 0 to 255 are the bytes, 256 ends a document.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"

namespace lockstep::data {

struct Vocabulary {
  std::string tokenizer;  // "bytes", or what a packed file says
  uint64_t size = 0;
  int64_t end = 0;  // the token between documents
  friend bool operator==(const Vocabulary&, const Vocabulary&) = default;
};

constexpr const char* kByteTokenizer = "bytes";
inline Vocabulary ByteVocabulary() { return {kByteTokenizer, 257, 256}; }

class Corpus {
 public:
  virtual ~Corpus() = default;
  virtual Vocabulary vocabulary() const { return ByteVocabulary(); }
  virtual uint64_t documents() const = 0;
  // Without the end token, which no corpus holds.
  virtual uint64_t tokens(uint64_t document) const = 0;
  virtual Status Read(uint64_t document, uint64_t first, uint64_t count, int64_t* out) const = 0;
  // For messages: a path, or "notes.jsonl line 17".
  virtual std::string Name(uint64_t document) const = 0;
  virtual std::string Describe() const = 0;
  // "xxh64:<16 hex digits>" over what identifies the documents: names and sizes of files, or their checksums.
  virtual std::string Digest() const = 0;
};

struct CorpusConfig {
  std::string kind = "auto";
  std::string path;
  std::string field = "text";  // of a JSON line
  uint64_t documents = 4096;   // of kind `generated`
  uint64_t seed = 0;           // of kind `generated`
  // What IndexCorpus found on another rank: nothing is parsed again.
  std::shared_ptr<const std::string> index;
  // Called now and then while documents are listed: bytes looked at, and all. May be null.
  std::function<void(uint64_t done, uint64_t all)> progress;
};

Result<std::shared_ptr<const Corpus>> OpenCorpus(const CorpusConfig& given);

// For JSON lines, which must all be parsed to know the lengths of their texts: places and lengths, as bytes that one
// rank makes and the others put into `index`. Empty for the other kinds, which every rank lists for itself.
Result<std::string> IndexCorpus(const CorpusConfig& given);

// The kinds, one file each.
Result<std::shared_ptr<const Corpus>> OpenTextFiles(const CorpusConfig& config);
Result<std::shared_ptr<const Corpus>> OpenJsonLines(const CorpusConfig& config);
Result<std::string> IndexJsonLines(const CorpusConfig& config);
Result<std::shared_ptr<const Corpus>> OpenTokenFiles(const CorpusConfig& config);
std::shared_ptr<const Corpus> GenerateText(uint64_t documents, uint64_t seed);

}  // namespace lockstep::data
