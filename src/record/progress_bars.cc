// Progress bars: of tqdm and what is built on it (Hugging Face, Lightning, accelerate), of rich, and lines that count
// inside brackets.
#include <iterator>

#include "record/progress_text.h"

namespace lockstep::record {
namespace {

constexpr size_t kLongestLabel = 120;

// "1.95it/s", "18.5s/it", "3.1batch/s" as seconds per step. Bytes per second is a download, not training.
struct Rate {
  bool steps = false;
  std::optional<double> seconds;
};

// scaled: the count is written with unit_scale ("46.1k/102k"), so the rate is, too: "1.02kimg/s".
Rate ReadRate(std::string_view text, size_t at, bool scaled) {
  Rate rate;
  SkipSpaces(text, at);
  std::optional<double> value;
  if (at < text.size() && text[at] == '?') {
    ++at;
  } else if (!(value = ReadDecimal(text, at))) {
    return rate;
  }
  if (size_t unit = at + 1; value && scaled && unit < text.size() && IsLetter(text[unit])) {
    const double scale = text[at] == 'k' ? 1e3 : text[at] == 'm' ? 1e6 : 1;
    *value *= scale;
    if (scale > 1) at = unit;
  }
  SkipSpaces(text, at);
  size_t end = at;
  while (end < text.size() && (IsLetter(text[end]) || text[end] == '/' || text[end] == '_')) ++end;
  std::string_view unit = text.substr(at, end - at);
  size_t slash = unit.find('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == unit.size()) return rate;
  std::string_view top = unit.substr(0, slash), bottom = unit.substr(slash + 1);
  std::string_view what = bottom == "s" ? top : bottom;
  if (bottom != "s" && top != "s") return rate;
  if (what.ends_with("b") || what == "bytes") return rate;
  // With unit_scale: "1.60kit/s".
  if (value && what == "kit") *value *= 1e3;
  if (value && what == "mit") *value *= 1e6;
  rate.steps = true;
  if (value && *value > 0) rate.seconds = bottom == "s" ? 1.0 / *value : *value;
  return rate;
}

// The words before a bar: letters and single blanks, up to the drawn part. Not of a dictionary that was printed into
// the same line.
std::string LabelOf(std::string_view before) {
  std::string label;
  if (const size_t brace = before.rfind('}'); brace != std::string_view::npos) before.remove_prefix(brace + 1);
  for (const char c : before.substr(0, kLongestLabel)) {
    if (c == '|' || static_cast<unsigned char>(c) >= 0x80) break;
    if (IsLetter(c)) {
      label += c;
    } else if (!label.empty() && label.back() != ' ') {
      label += ' ';
    }
  }
  if (label.ends_with(' ')) label.pop_back();
  return label;
}

// "Epoch 3:" before a bar, or a row of a table whose first column it is: "  13/30   2.95G  0.31  640: 50%|" (YOLO).
std::optional<EpochNumber> EpochBefore(std::string_view before) {
  if (const auto named = FindEpoch(before)) return named;
  size_t at = 0;
  SkipSpaces(before, at);
  if (at >= before.size() || !IsDigit(before[at])) return std::nullopt;
  const std::optional<Place> place = ReadPlace(before, at, ReadInteger);
  if (!place || !place->total || !before.substr(at).starts_with("  ")) return std::nullopt;
  SkipSpaces(before, at);
  if (at >= before.size() || !IsDigit(before[at])) return std::nullopt;
  return EpochNumber{.number = place->step, .of = place->total};
}

// tqdm and Lightning: "120/1000 [01:02<07:30, 1.95it/s, loss=2.1]", without a total "120it [01:02, 1.95it/s]".
std::optional<ProgressMark> ParseTqdm(std::string_view text) {
  for (size_t open = text.find('['); open != std::string_view::npos; open = text.find('[', open + 1)) {
    if (open == 0) continue;
    size_t end = open;
    while (end > 0 && text[end - 1] == ' ') --end;
    ProgressMark mark{.grammar = ProgressGrammar::kBar};
    size_t begin = end;
    const auto counts = [](char c) {
      return IsDigit(c) || std::string_view("./kmgt").find(c) != std::string_view::npos;
    };
    if (end >= 3 && text.substr(end - 2, 2) == "it") begin = end - 2;
    const bool endless = end >= 3 && text.substr(end - 2, 2) == "/?";  // Lightning
    if (endless) begin = end - 2;
    while (begin > 0 && counts(text[begin - 1])) --begin;
    while (begin < end && !IsDigit(text[begin])) ++begin;
    size_t at = begin;
    mark.step = ReadScaled(text, at);
    if (!mark.step || (endless && *mark.step == 0)) continue;
    if (endless) {
      if (at != end - 2) continue;
    } else if (at < end && text[at] == '/') {
      ++at;
      mark.total = ReadScaled(text, at);
      if (!mark.total) continue;
    } else if (text.substr(at, end - at) != "it") {
      continue;
    }
    // elapsed, optionally "<remaining", then ", rate"
    size_t close = text.find(']', open);
    size_t comma = text.find(',', open);
    size_t colon = text.find(':', open);
    if (colon == std::string_view::npos || colon > std::min(close, comma)) continue;
    mark.elapsed = ReadClock(text, open + 1);
    mark.loss_behind = !Has(text.substr(0, close), "loss");
    mark.label = LabelOf(text.substr(0, begin));
    mark.epoch = EpochBefore(text.substr(0, begin));
    if (comma == std::string_view::npos) return mark;
    const std::string_view count = text.substr(begin, end - begin);
    Rate rate = ReadRate(text, comma + 1, std::any_of(count.begin(), count.end(), IsLetter) && !count.ends_with("it"));
    // NeMo leaves the rate out: "12/10000 [01:02<5:00:00, v_num=0, loss=9.5]".
    const size_t word = text.find_first_not_of(' ', comma + 1);
    const bool values = text.find('<', open) < comma && word != std::string_view::npos && IsLetter(text[word]);
    if (!rate.steps && !values) continue;
    mark.seconds_per_step = rate.steps ? rate.seconds : StatedSeconds(text.substr(comma));
    return mark;
  }
  return std::nullopt;
}

// Bars without brackets (rich): "Epoch 0/9 ---- 120/1000 0:00:10 . 0:01:00 11.92it/s": the last pair before the rate.
std::optional<ProgressMark> ParseRichBar(std::string_view text) {
  size_t unit = text.find("it/s");
  bool inverse = false;
  if (unit == std::string_view::npos) {
    unit = text.find("s/it");
    inverse = true;
  }
  if (unit == std::string_view::npos || unit == 0) return std::nullopt;
  size_t number = unit;
  while (number > 0 && (IsDigit(text[number - 1]) || text[number - 1] == '.')) --number;
  if (number == unit) return std::nullopt;
  size_t slash = text.rfind('/', number);
  while (slash != std::string_view::npos && slash > 0) {
    if (IsDigit(text[slash - 1]) && slash + 1 < text.size() && IsDigit(text[slash + 1])) {
      size_t begin = slash;
      while (begin > 0 && IsDigit(text[begin - 1])) --begin;
      ProgressMark mark{.grammar = ProgressGrammar::kBar};
      mark.step = ReadInteger(text, begin);
      size_t at = slash + 1;
      mark.total = ReadInteger(text, at);
      mark.label = LabelOf(text.substr(0, slash));
      mark.epoch = EpochBefore(text.substr(0, slash));
      SkipSpaces(text, at);
      mark.elapsed = ReadClock(text, at);
      std::optional<double> rate = ReadDecimal(text, number);
      if (rate && *rate > 0) mark.seconds_per_step = inverse ? *rate : 1.0 / *rate;
      return mark;
    }
    slash = text.rfind('/', slash - 1);
  }
  return std::nullopt;
}

// Lines that count inside brackets, a line per so many steps: "Epoch: [0][ 10/5005] Time 0.25 Loss 6.9" (PyTorch's
// examples), "Epoch(train) [1][ 50/1000] lr: 1e-2 time: 0.25 loss: 1.2" (mmengine), "Train: 0 [ 50/1251 ( 4%)]
// Loss: 6.9" (timm), "Train: [0/300][10/1251] loss 6.9" (Swin). They are bars that begin again with each epoch. A line
// that begins with the count needs no word: "[500/1000] loss: 0.3".
std::optional<ProgressMark> ParseBracketed(std::string_view text) {
  std::optional<EpochNumber> first;
  for (size_t open = text.find('['); open != std::string_view::npos; open = text.find('[', open + 1)) {
    size_t at = open + 1;
    SkipSpaces(text, at);
    ProgressMark mark{.grammar = ProgressGrammar::kBar};
    mark.step = ReadInteger(text, at);
    SkipSpaces(text, at);
    if (!mark.step || at >= text.size() || text[at] != '/') continue;
    SkipSpaces(text, ++at);
    mark.total = ReadInteger(text, at);
    SkipSpaces(text, at);
    if (!mark.total || at >= text.size() || (text[at] != ']' && text[at] != '(')) continue;
    if (text.substr(at).starts_with("][")) {
      size_t next = at + 2;
      SkipSpaces(text, next);
      const std::optional<Place> inner = ReadPlace(text, next, ReadInteger);
      if (inner && inner->total) {
        first = EpochNumber{.number = *mark.step, .of = mark.total};
        continue;
      }
    }
    const std::string_view before = text.substr(0, open);
    const bool leads = std::none_of(before.begin(), before.end(), IsLetter) && ParseLoss(text);
    const size_t word = before.find_last_not_of(" :=#(");
    if (word != std::string_view::npos && before.substr(0, word + 1).ends_with("epoch")) continue;  // "Epoch [1/5]"
    if (!leads && !Has(before, "epoch") && !Has(before, "train") && !Has(before, "iter") && !Has(before, "step")) {
      continue;
    }
    mark.label = LabelOf(before);
    mark.epoch = first ? first : FindEpoch(before);
    // "Epoch(train) [1][", "Train: 0 ["
    const std::string_view name = Has(before, "epoch") ? "[" : "train: ";
    if (size_t digits = before.find(name); !mark.epoch && digits != std::string_view::npos) {
      digits += name.size();
      const std::optional<Place> place = ReadPlace(before, digits, ReadInteger);
      if (place) mark.epoch = EpochNumber{.number = place->step, .of = place->total};
    }
    mark.of_epoch = mark.begins_anew = mark.epoch.has_value();
    mark.seconds_per_step = StatedTime(text.substr(at));
    if (!mark.seconds_per_step) mark.seconds_per_step = StatedSeconds(text.substr(at));
    return mark;
  }
  return std::nullopt;
}

}  // namespace

// Words before "time" that make it another one than that of a step.
constexpr std::string_view kOtherTimes[] = {"elapsed", "total",    "remaining", "data",  "load", "loading",
                                            "forward", "backward", "optimizer", "epoch", "eval"};

// "time: 0.25", "Time  0.25 ( 0.50)", "time (data): 0.250 (0.003)" in seconds; no other time than that of a step.
std::optional<double> StatedTime(std::string_view text) {
  for (size_t at = text.find("time"); at != std::string_view::npos; at = text.find("time", at + 4)) {
    if (at > 0 && (IsLetter(text[at - 1]) || text[at - 1] == '_')) continue;
    std::string_view before = text.substr(0, at);
    while (before.ends_with(' ')) before.remove_suffix(1);
    if (std::any_of(std::begin(kOtherTimes), std::end(kOtherTimes),
                    [&](auto word) { return before.ends_with(word); })) {
      continue;
    }
    size_t i = at + 4;
    SkipSpaces(text, i);
    if (text.substr(i).starts_with("(data)")) i += 6;
    while (i < text.size() &&
           (text[i] == ' ' || text[i] == ':' || text[i] == '=' || text[i] == '\t' || text[i] == '"')) {
      ++i;
    }
    const size_t begin = i;
    const std::optional<double> value = ReadDecimal(text, i);
    const std::string_view rest = text.substr(i);
    if (!value || *value <= 0 || rest.starts_with(':')) continue;  // a clock
    if (rest.starts_with("ms") || rest.starts_with(" ms")) return *value / 1000;
    if (text.substr(begin, i - begin).find('.') == std::string_view::npos) continue;
    return value;
  }
  return std::nullopt;
}

std::optional<EpochNumber> FindEpoch(std::string_view text, size_t* end) {
  for (size_t at = text.find("epoch"); at != std::string_view::npos; at = text.find("epoch", at + 5)) {
    if (at > 0 && IsLetter(text[at - 1])) continue;
    size_t i = at + 5;
    const std::optional<Place> epoch = ReadPlace(text, i, ReadInteger);
    if (!epoch) continue;
    if (end != nullptr) *end = i;
    return EpochNumber{.number = epoch->step, .of = epoch->total};
  }
  return std::nullopt;
}

std::optional<ProgressMark> ParseBar(std::string_view text) {
  std::optional<ProgressMark> mark;
  const bool rate = Has(text, "/s") || Has(text, "s/");
  if (rate || Has(text, "<")) mark = ParseTqdm(text);
  if (!mark && rate) mark = ParseRichBar(text);
  if (!mark) mark = ParseKeras(text);
  if (!mark) mark = ParseEpochPlace(text);
  if (!mark && Has(text, "loss")) mark = ParseBracketed(text);
  if (mark && mark->total == uint64_t{0}) mark->total.reset();
  if (mark) mark->names_loss = Has(text, "loss");
  return mark;
}

}  // namespace lockstep::record
