// Lines of hand-written loops, which name an epoch and a place in it, and of fairseq and Keras. Where they say how many
// steps an epoch has, they are bars that begin again with each epoch.
#include "record/progress_text.h"

namespace lockstep::record {
namespace {

// The first "step 10/100", "iter [10/100]", "Batch(10/100)"; of a batch also without how many there are.
std::optional<Place> FindPlace(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size())) {
      if (at > 0 && IsLetter(text[at - 1])) continue;
      size_t end = at + word.size();
      const std::optional<Place> place = ReadPlace(text, end);
      if (place && (place->total || word == "batch")) return place;
    }
  }
  return std::nullopt;
}

ProgressMark MarkAt(const Place& place, std::string_view text) {
  ProgressMark mark{.grammar = place.total ? ProgressGrammar::kBar : ProgressGrammar::kStepLoss};
  mark.step = place.step;
  mark.total = place.total;
  mark.seconds_per_step = StatedSeconds(text);
  return mark;
}

// "[1,  2000] loss: 2.2"
std::optional<ProgressMark> ParsePair(std::string_view text) {
  size_t at = 0;
  SkipSpaces(text, at);
  if (at >= text.size() || text[at++] != '[') return std::nullopt;
  if (!ReadInteger(text, at) || at >= text.size() || text[at++] != ',') return std::nullopt;
  SkipSpaces(text, at);
  const std::optional<uint64_t> step = ReadInteger(text, at);
  if (!step || !text.substr(at).starts_with("] loss")) return std::nullopt;
  return MarkAt({.step = *step, .total = std::nullopt}, text);
}

}  // namespace

std::optional<ProgressMark> ParseEpochPlace(std::string_view text) {
  if (!Has(text, "loss") && !Has(text, "ppl")) return std::nullopt;
  size_t end = 0;
  const std::optional<EpochNumber> epoch = FindEpoch(text, &end);
  if (!epoch) {
    // "Batch(100/1879) done. Loss: 5.9": the epoch stands in a line of its own.
    const std::optional<Place> place = FindPlace(text, {"batch"});
    if (!place || !place->total) return ParsePair(text);
    ProgressMark mark = MarkAt(*place, text);
    mark.unsure = true;
    return mark;
  }
  std::optional<Place> place = FindPlace(text, {"step", "iteration", "iter", "batch"});
  // "epoch 001:    100 / 1923 loss=13.2" (fairseq; without a colon in its first versions), "Epoch  1, 50/900; ppl: 9"
  if (!place && end < text.size() && (text[end] == ':' || text[end] == ',' || IsDigit(text[end]))) {
    if (!IsDigit(text[end])) ++end;
    SkipSpaces(text, end);
    if (end < text.size() && IsDigit(text[end])) place = ReadPlace(text, end);
    if (place && !place->total) place.reset();
  }
  if (!place) return std::nullopt;
  // "global step 110, epoch: 1, batch: 109": the count of the run.
  if (!place->total && Has(text, "global")) return std::nullopt;
  ProgressMark mark = MarkAt(*place, text);
  mark.label = "epoch";
  mark.of_epoch = place->total.has_value();
  mark.side = NamesOtherWork(text.substr(0, text.find("epoch")));
  mark.epoch = epoch;
  return mark;
}

std::optional<ProgressMark> ParseKeras(std::string_view text) {
  size_t at = 0;
  SkipSpaces(text, at);
  if (at >= text.size() || !IsDigit(text[at]) || !Has(text, " - ")) return std::nullopt;
  if (!Has(text, "eta:") && !Has(text, "s/step") && !Has(text, "s/epoch") && !Has(text, "loss:")) return std::nullopt;
  const std::optional<Place> place = ReadPlace(text, at);
  if (!place || !place->total) return std::nullopt;
  SkipSpaces(text, at);
  // Up to the drawn part, "[====>...]" or "━━━━"; of a line per epoch (verbose=2) to its time: "938/938 - 3s - loss:
  // 0.2".
  const std::string_view rest = text.substr(at);
  const bool drawn = !rest.empty() && (rest[0] == '[' || static_cast<unsigned char>(rest[0]) >= 0x80);
  size_t unit = 2;
  const bool timed = rest.starts_with("- ") && ReadInteger(rest, unit) && rest.substr(unit).starts_with("s ");
  return drawn || timed ? std::optional<ProgressMark>(MarkAt(*place, text)) : std::nullopt;
}

std::optional<ProgressMark> ParseEpochOnly(std::string_view text) {
  const std::optional<EpochNumber> epoch = Has(text, "loss") ? FindEpoch(text) : std::nullopt;
  if (!epoch) return std::nullopt;
  return ProgressMark{.grammar = ProgressGrammar::kEpochs, .step = epoch->number, .total = epoch->of};
}

}  // namespace lockstep::record
