#include "data/packed_source.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "data/random.h"

namespace lockstep::data {
namespace {

constexpr int64_t kIgnored = -100;

DocumentChoice All(uint64_t count) {
  DocumentChoice all;
  all.documents.resize(count);
  for (uint64_t d = 0; d < count; ++d) all.documents[d] = static_cast<uint32_t>(d);
  return all;
}

uint64_t StreamTokens(const Corpus& corpus, const DocumentChoice& choice) {
  uint64_t tokens = 0;
  for (const uint32_t document : choice.documents) tokens += choice.Tokens(corpus, document) + 1;
  return tokens;
}

// Training and validation by document.
std::pair<DocumentChoice, DocumentChoice> ByDocument(const Corpus& corpus, double fraction, uint64_t seed) {
  std::pair<DocumentChoice, DocumentChoice> sides;
  const uint64_t key = Random(seed, 0, 0, Purpose::kSplit).Next();
  for (uint64_t d = 0; d < corpus.documents(); ++d) {
    const bool validates = Random(Fold(key, d)).Chance(fraction);
    (validates ? sides.second : sides.first).documents.push_back(static_cast<uint32_t>(d));
  }
  return sides;
}

// The last `wanted` tokens validate.
std::pair<DocumentChoice, DocumentChoice> ByPlace(const Corpus& corpus, uint64_t wanted) {
  std::pair<DocumentChoice, DocumentChoice> sides;
  auto& [train, validation] = sides;
  uint64_t left = wanted;
  for (uint64_t d = corpus.documents(); d-- > 0;) {
    const auto document = static_cast<uint32_t>(d);
    const uint64_t tokens = corpus.tokens(d);
    if (left > 0) validation.documents.push_back(document);
    if (left == 0 || left < tokens) train.documents.push_back(document);
    if (left > 0 && left < tokens) {
      train.part = DocumentChoice::Part{document, 0, tokens - left};
      validation.part = DocumentChoice::Part{document, tokens - left, left};
    }
    left -= std::min(left, tokens + 1);
  }
  std::ranges::reverse(train.documents);
  std::ranges::reverse(validation.documents);
  return sides;
}

}  // namespace

uint64_t DocumentChoice::Tokens(const Corpus& corpus, uint32_t document) const {
  return part && part->document == document ? part->count : corpus.tokens(document);
}

PackedSource::PackedSource(std::shared_ptr<const Corpus> corpus, DocumentChoice choice, uint64_t length, uint64_t most)
    : corpus_(std::move(corpus)), choice_(std::move(choice)), length_(length) {
  for (const char* name : {"tokens", "labels", "positions", "documents"}) {
    fields_.push_back({name, ElementType::kI64, {static_cast<int64_t>(length)}});
  }
  starts_.reserve(choice_.documents.size() + 1);
  for (const uint32_t document : choice_.documents) {
    starts_.push_back(starts_.back() + choice_.Tokens(*corpus_, document) + 1);
  }
  size_ = starts_.back() / length_;
  if (most > 0) size_ = std::min(size_, most);
  uint64_t first = 0, last = 0;  // documents of a sequence
  for (uint64_t i = 0; i < size_; ++i) {
    while (starts_[first + 1] <= i * length_) ++first;
    last = std::max(last, first);
    while (starts_[last + 1] < (i + 1) * length_) ++last;
    most_documents_ = std::max(most_documents_, last - first + 1);
  }
}

size_t PackedSource::DocumentAt(uint64_t place) const {
  return static_cast<size_t>(std::ranges::upper_bound(starts_, place) - starts_.begin()) - 1;
}

std::string PackedSource::Name(uint64_t index) const {
  return fmt::format("sequence {} ({})", index, corpus_->Name(choice_.documents[DocumentAt(index * length_)]));
}

uint64_t PackedSource::Labelled(uint64_t index) const {
  const uint64_t begin = index * length_;
  const auto ends = std::ranges::upper_bound(starts_, begin + length_) - std::ranges::upper_bound(starts_, begin);
  return length_ - static_cast<uint64_t>(ends);
}

Status PackedSource::Read(const Draw& draw, std::span<std::byte* const> out) const {
  int64_t* const tokens = reinterpret_cast<int64_t*>(out[0]);
  int64_t* const labels = reinterpret_cast<int64_t*>(out[1]);
  int64_t* const positions = reinterpret_cast<int64_t*>(out[2]);
  int64_t* const documents = reinterpret_cast<int64_t*>(out[3]);
  const int64_t end = corpus_->vocabulary().end;
  const uint64_t begin = draw.index * length_;
  std::vector<int64_t> piece;
  uint64_t filled = 0;
  int64_t number = 0;
  for (size_t at = DocumentAt(begin); filled < length_; ++at, ++number) {
    const uint32_t document = choice_.documents[at];
    const uint64_t text = starts_[at + 1] - starts_[at] - 1;  // its tokens before the end token
    const uint64_t skip = filled == 0 ? begin - starts_[at] : 0;
    const uint64_t count = std::min(text + 1 - skip, length_ - filled);
    // One more than fits, where there is one: the label of the last.
    const uint64_t wanted = std::min(text - skip, count + 1);
    piece.resize(wanted);
    const uint64_t first = choice_.part && choice_.part->document == document ? choice_.part->first : 0;
    LOCKSTEP_RETURN_IF_ERROR(corpus_->Read(document, first + skip, wanted, piece.data()));
    piece.resize(count + 1, end);
    if (skip + count > text) piece[count] = kIgnored;  // the end token itself is the last
    for (uint64_t i = 0; i < count; ++i) {
      tokens[filled + i] = piece[i];
      labels[filled + i] = piece[i + 1];
      positions[filled + i] = static_cast<int64_t>(i);
      documents[filled + i] = number;
    }
    filled += count;
  }
  return Status::Ok();
}

std::string PackedSource::Describe() const {
  return fmt::format("{}; {} of {} tokens", corpus_->Describe(), Count(static_cast<int64_t>(size_), "sequence"),
                     length_);
}

std::string PackedSource::Digest() const {
  const std::string base = corpus_->Digest();
  uint64_t digest = XXH64(base.data(), base.size(), length_);
  digest = XXH64(choice_.documents.data(), choice_.documents.size() * sizeof(uint32_t), digest);
  if (choice_.part) {
    const uint64_t part[] = {choice_.part->document, choice_.part->first, choice_.part->count};
    digest = XXH64(part, sizeof part, digest);
  }
  return fmt::format("xxh64:{:016x}", digest);
}

Result<PackedSplit> PackCorpus(std::shared_ptr<const Corpus> corpus, uint64_t length, double fraction,
                               uint64_t most_validation, uint64_t seed) {
  const uint64_t count = corpus->documents();
  if (count > std::numeric_limits<uint32_t>::max()) {
    return Status(Code::kUsage, fmt::format("{} documents, at most 2^32 are possible", count), "join short documents");
  }
  const uint64_t sides = fraction > 0 ? 2 : 1;
  const uint64_t tokens = StreamTokens(*corpus, All(count));
  if (tokens < sides * (length + 1)) {
    return Status(Code::kUsage,
                  fmt::format("the data have {} tokens with the ends of documents; {} of data.length {} needs {} ({})",
                              tokens, sides == 2 ? "one sequence to train on and one to validate with" : "one sequence",
                              length, sides * (length + 1), corpus->Describe()),
                  fmt::format("give more text, or lower data.length{}",
                              sides == 2 ? ", or data.validation.fraction: 0 for no validation" : ""));
  }
  if (sides == 1) return PackedSplit{std::make_shared<PackedSource>(corpus, All(count), length), nullptr};
  const double wanted = std::max(fraction * static_cast<double>(tokens), static_cast<double>(length));
  auto parts = ByDocument(*corpus, fraction, seed);
  const uint64_t chosen = StreamTokens(*corpus, parts.second);
  if (chosen < length || static_cast<double>(chosen) > 2 * wanted || tokens - chosen < length) {
    parts = ByPlace(*corpus, static_cast<uint64_t>(wanted));
  }
  PackedSplit split;
  split.train = std::make_shared<PackedSource>(corpus, std::move(parts.first), length);
  split.validation = std::make_shared<PackedSource>(corpus, std::move(parts.second), length, most_validation);
  if (split.train->size() == 0 || split.validation->size() == 0) {
    return Status(Code::kUsage,
                  fmt::format("data.validation.fraction {} leaves {} to train on and {} to validate with", fraction,
                              Count(static_cast<int64_t>(split.train->size()), "sequence"),
                              Count(static_cast<int64_t>(split.validation->size()), "sequence")),
                  "give more text, or lower data.length");
  }
  return split;
}

}  // namespace lockstep::data
