// Text drawn from a seed: lines of a few kinds (sums, counting, days, spelling, brackets, small sentences) whose rules
// a model can learn, so that a training shows whether it works without a file. Document d is a function of (seed, d).
#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <string_view>

#include "base/text.h"
#include "base/units.h"
#include "data/corpus.h"
#include "data/random.h"

namespace lockstep::data {
namespace {

constexpr uint64_t kSentencesVersion = 1;  // a training on other sentences does not go on with these

template <size_t N>
std::string_view PickWord(const std::array<std::string_view, N>& words, Random& random) {
  return words[random.Below(N)];
}

constexpr std::array<std::string_view, 7> kWeekdays = {"monday", "tuesday",  "wednesday", "thursday",
                                                       "friday", "saturday", "sunday"};
constexpr std::array<std::string_view, 8> kAnimals = {"cat", "dog", "horse", "bird", "mouse", "fox", "goat", "duck"};
constexpr std::array<std::string_view, 6> kQualities = {"small", "old", "quick", "quiet", "brown", "happy"};
constexpr std::array<std::string_view, 6> kVerbs = {"sees", "follows", "likes", "hears", "finds", "meets"};
constexpr std::array<std::string_view, 6> kPlaces = {"house", "river", "garden", "bridge", "forest", "tower"};

std::string Sum(Random& random) {
  const uint64_t a = random.Below(10), b = random.Below(10);
  return fmt::format("{} plus {} is {}.", a, b, a + b);
}

std::string Counting(Random& random) {
  const uint64_t first = random.Below(20), last = first + 3 + random.Below(5);
  std::string text = fmt::format("count from {} to {}:", first, last);
  for (uint64_t n = first; n <= last; ++n) text += fmt::format(" {}", n);
  return text + ".";
}

std::string Weekday(Random& random) {
  const uint64_t day = random.Below(7);
  return random.Chance(0.5) ? fmt::format("the day after {} is {}.", kWeekdays[day], kWeekdays[(day + 1) % 7])
                            : fmt::format("the day before {} is {}.", kWeekdays[day], kWeekdays[(day + 6) % 7]);
}

std::string Spelling(Random& random) {
  const std::string_view word = random.Chance(0.5) ? PickWord(kAnimals, random) : PickWord(kPlaces, random);
  std::string text = fmt::format("spell {}:", word);
  for (const char letter : word) text += fmt::format(" {}", letter);
  return text + ".";
}

std::string Brackets(Random& random) {
  constexpr std::string_view kOpen = "([{", kClose = ")]}";
  std::string text, open;
  for (uint64_t left = 3 + random.Below(4); left > 0 || !open.empty();) {
    if (left > 0 && (open.empty() || random.Chance(0.6))) {
      const uint64_t kind = random.Below(3);
      text += kOpen[kind];
      open += kClose[kind];
      --left;
    } else {
      text += open.back();
      open.pop_back();
    }
  }
  return text;
}

std::string Sentence(Random& random) {
  return fmt::format("the {} {} {} a {} near the {}.", PickWord(kQualities, random), PickWord(kAnimals, random),
                     PickWord(kVerbs, random), PickWord(kAnimals, random), PickWord(kPlaces, random));
}

constexpr std::array<std::string (*)(Random&), 6> kLineKinds = {Sum, Counting, Weekday, Spelling, Brackets, Sentence};

std::string Document(uint64_t seed, uint64_t index) {
  Random random(seed, 0, index, Purpose::kText);
  std::string text;
  for (uint64_t lines = 4 + random.Below(12); lines > 0; --lines)
    text += kLineKinds[random.Below(kLineKinds.size())](random) + "\n";
  return text;
}

class GeneratedCorpus final : public Corpus {
 public:
  GeneratedCorpus(uint64_t documents, uint64_t seed) : seed_(seed) {
    for (uint64_t d = 0; d < documents; ++d) texts_.push_back(Document(seed, d));
  }
  uint64_t documents() const override { return texts_.size(); }
  uint64_t tokens(uint64_t document) const override { return texts_[document].size(); }
  Status Read(uint64_t document, uint64_t first, uint64_t count, int64_t* out) const override {
    for (uint64_t i = 0; i < count; ++i) out[i] = static_cast<unsigned char>(texts_[document][first + i]);
    return Status::Ok();
  }
  std::string Name(uint64_t document) const override { return fmt::format("generated document {}", document); }
  std::string Describe() const override {
    uint64_t bytes = 0;
    for (const std::string& text : texts_) bytes += text.size();
    return fmt::format("generated: {} with {} of text from seed {}",
                       Count(static_cast<int64_t>(texts_.size()), "document"), FormatSize(bytes), seed_);
  }
  std::string Digest() const override {
    const uint64_t identity[] = {kSentencesVersion, seed_, texts_.size()};
    return fmt::format("xxh64:{:016x}", static_cast<uint64_t>(XXH64(identity, sizeof identity, 0)));
  }

 private:
  uint64_t seed_;
  std::vector<std::string> texts_;
};

}  // namespace

std::shared_ptr<const Corpus> GenerateText(uint64_t documents, uint64_t seed) {
  return std::make_shared<GeneratedCorpus>(documents, seed);
}

}  // namespace lockstep::data
