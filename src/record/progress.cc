#include "record/progress.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "base/digits.h"

namespace lockstep::record {
namespace {

constexpr size_t kLookAt = 2048;
constexpr size_t kLongestLabel = 120;
constexpr std::string_view kCursorUp = "\x1b[A";

bool IsLetter(char c) { return c >= 'a' && c <= 'z'; }

// Lower case and without terminal colours (torchtitan colours every field), so that one spelling has to be matched.
std::string_view Normalize(std::string_view line, std::array<char, kLookAt>& buffer) {
  size_t n = 0;
  const size_t end = std::min(line.size(), kLookAt);
  for (size_t i = 0; i < end; ++i) {
    char c = line[i];
    if (c == '\x1b' && i + 1 < end && line[i + 1] == '[') {
      i += 2;
      while (i < end && (line[i] < '@' || line[i] > '~')) ++i;
      continue;
    }
    buffer[n++] = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  return {buffer.data(), n};
}

bool Has(std::string_view text, std::string_view word) { return text.find(word) != std::string_view::npos; }

void SkipSpaces(std::string_view text, size_t& at) {
  while (at < text.size() && text[at] == ' ') ++at;
}

std::optional<uint64_t> ReadInteger(std::string_view text, size_t& at) {
  std::string_view rest = text.substr(at);
  const std::optional<uint64_t> value = TakeDigits<uint64_t>(&rest);
  at = text.size() - rest.size();
  return value;
}

// Digits and one point only: std::from_chars for doubles is not in every standard library this is built with.
std::optional<double> ReadDecimal(std::string_view text, size_t& at) {
  size_t i = at;
  double value = 0;
  bool any = false;
  for (; i < text.size() && IsDigit(text[i]); ++i, any = true) value = value * 10 + (text[i] - '0');
  if (!any) return std::nullopt;
  if (i + 1 < text.size() && text[i] == '.' && IsDigit(text[i + 1])) {
    double scale = 0.1;
    for (++i; i < text.size() && IsDigit(text[i]); ++i, scale /= 10) value += (text[i] - '0') * scale;
  }
  at = i;
  return value;
}

std::optional<double> DecimalAfter(std::string_view text, std::string_view words) {
  size_t at = text.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  at += words.size();
  SkipSpaces(text, at);
  return ReadDecimal(text, at);
}

// "1.95it/s", "18.5s/it", "3.1batch/s" as seconds per step. Bytes per second is a download, not training.
struct Rate {
  bool steps = false;
  std::optional<double> seconds;
};

Rate ReadRate(std::string_view text, size_t at) {
  Rate rate;
  SkipSpaces(text, at);
  std::optional<double> value;
  if (at < text.size() && text[at] == '?') {
    ++at;
  } else if (!(value = ReadDecimal(text, at))) {
    return rate;
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
  rate.steps = true;
  if (value && *value > 0) rate.seconds = bottom == "s" ? 1.0 / *value : *value;
  return rate;
}

bool IsStep(std::string_view word) {
  if (word.ends_with('s')) word.remove_suffix(1);
  return word == "it" || word == "iter" || word == "iteration" || word == "step" || word == "batch";
}

std::optional<double> SecondsIn(std::string_view unit) {
  if (unit == "ms") return 0.001;
  if (unit == "s" || unit == "sec" || unit == "second" || unit == "seconds") return 1;
  return std::nullopt;
}

// The number that ends before `end`, blanks between them.
std::optional<double> NumberBefore(std::string_view text, size_t end, size_t* begin) {
  while (end > 0 && text[end - 1] == ' ') --end;
  *begin = end;
  while (*begin > 0 && (IsDigit(text[*begin - 1]) || text[*begin - 1] == '.')) --*begin;
  size_t at = *begin;
  return at == end ? std::nullopt : ReadDecimal(text, at);
}

// "0.52 s/it", "12.5 ms/step", "8.1 steps/s" anywhere in a line, as seconds.
std::optional<double> StatedRate(std::string_view text) {
  for (size_t slash = text.find('/'); slash != std::string_view::npos; slash = text.find('/', slash + 1)) {
    size_t begin = slash, end = slash + 1, number = 0;
    while (begin > 0 && IsLetter(text[begin - 1])) --begin;
    while (end < text.size() && IsLetter(text[end])) ++end;
    const std::string_view top = text.substr(begin, slash - begin), bottom = text.substr(slash + 1, end - slash - 1);
    const std::optional<double> per_step = SecondsIn(top), per_second = SecondsIn(bottom);
    const std::optional<double> value = NumberBefore(text, begin, &number);
    if (!value || *value <= 0) continue;
    if (per_step && IsStep(bottom)) return *value * *per_step;
    if (per_second && IsStep(top)) return *per_second / *value;
  }
  return std::nullopt;
}

// "time 123.4ms" (nanoGPT), "time: 12.3 ms", "98.50 ms" (llm.c). Where a line has several such numbers, the one called
// time or step is it.
std::optional<double> StatedMilliseconds(std::string_view text) {
  std::optional<double> first;
  for (size_t at = text.find("ms"); at != std::string_view::npos; at = text.find("ms", at + 2)) {
    if (at + 2 < text.size() && IsLetter(text[at + 2])) continue;
    size_t begin = 0;
    const std::optional<double> value = NumberBefore(text, at, &begin);
    if (!value) continue;
    while (begin > 0 && !IsLetter(text[begin - 1]) && text[begin - 1] != '|' && text[begin - 1] != ',') --begin;
    const std::string_view before = text.substr(0, begin);
    if (before.ends_with("time") || before.ends_with("step") || before.ends_with("iter") || before.ends_with("dt")) {
      return *value / 1000;
    }
    if (!first) first = *value / 1000;
  }
  return first;
}

std::optional<double> StatedSeconds(std::string_view text) {
  const std::optional<double> rate = StatedRate(text);
  return rate ? rate : StatedMilliseconds(text);
}

// "01:02" and "1:02:03" as seconds.
std::optional<double> ReadClock(std::string_view text, size_t at) {
  std::optional<uint64_t> seconds = ReadInteger(text, at);
  int parts = 1;
  for (; seconds && parts < 3 && at + 1 < text.size() && text[at] == ':' && IsDigit(text[at + 1]); ++parts) {
    ++at;
    *seconds = *seconds * 60 + *ReadInteger(text, at);
  }
  return seconds && parts > 1 ? std::optional<double>(static_cast<double>(*seconds)) : std::nullopt;
}

// The words before a bar: letters and single blanks, up to the drawn part.
std::string LabelOf(std::string_view before) {
  std::string label;
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

// epoch[ :=#[(]*N(( */ *| of )M)?, no percentage and no fraction.
std::optional<EpochNumber> FindEpoch(std::string_view text) {
  for (size_t at = text.find("epoch"); at != std::string_view::npos; at = text.find("epoch", at + 5)) {
    if (at > 0 && IsLetter(text[at - 1])) continue;
    size_t i = at + 5;
    while (i < text.size() && std::string_view(" :=#[(").find(text[i]) != std::string_view::npos) ++i;
    const std::optional<uint64_t> number = ReadInteger(text, i);
    const bool fraction = i + 1 < text.size() && text[i] == '.' && IsDigit(text[i + 1]);
    if (!number || fraction || (i < text.size() && (text[i] == '%' || IsLetter(text[i])))) continue;
    EpochNumber epoch{.number = *number, .of = std::nullopt};
    SkipSpaces(text, i);
    const std::string_view rest = text.substr(i);
    const size_t between = rest.starts_with('/') ? 1 : rest.starts_with("of ") ? 3 : 0;
    if (between > 0) {
      i += between;
      SkipSpaces(text, i);
      epoch.of = ReadInteger(text, i);
    }
    return epoch;
  }
  return std::nullopt;
}

// tqdm and Lightning: "120/1000 [01:02<07:30, 1.95it/s, loss=2.1]", without a total "120it [01:02, 1.95it/s]".
std::optional<ProgressMark> ParseTqdm(std::string_view text) {
  for (size_t open = text.find('['); open != std::string_view::npos; open = text.find('[', open + 1)) {
    if (open == 0) continue;
    size_t end = open;
    while (end > 0 && text[end - 1] == ' ') --end;
    ProgressMark mark{.grammar = ProgressGrammar::kBar};
    size_t begin = end;
    while (begin > 0 && (IsDigit(text[begin - 1]) || text[begin - 1] == '/')) --begin;
    if (begin == end && end >= 3 && text.substr(end - 2, 2) == "it") {
      begin = end - 2;
      while (begin > 0 && IsDigit(text[begin - 1])) --begin;
    }
    size_t at = begin;
    mark.step = ReadInteger(text, at);
    if (!mark.step) continue;
    if (at < end && text[at] == '/') {
      ++at;
      mark.total = ReadInteger(text, at);
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
    mark.label = LabelOf(text.substr(0, begin));
    mark.epoch = FindEpoch(text.substr(0, begin));
    if (comma == std::string_view::npos) return mark;
    Rate rate = ReadRate(text, comma + 1);
    if (!rate.steps) continue;
    mark.seconds_per_step = rate.seconds;
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
      mark.epoch = FindEpoch(text.substr(0, slash));
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

struct Counter {
  uint64_t step = 0;
  std::optional<uint64_t> total;
};

// (step|iter|iteration)s?[ :=#]*N( */ *M)?
std::optional<Counter> FindCounter(std::string_view text) {
  static constexpr std::string_view kWords[] = {"step", "iter"};
  for (size_t from = 0; from < text.size();) {
    size_t at = std::string_view::npos;
    for (std::string_view word : kWords) at = std::min(at, text.find(word, from));
    if (at == std::string_view::npos) return std::nullopt;
    from = at + 4;
    if (at > 0 && IsLetter(text[at - 1])) continue;
    size_t i = at + 4;
    if (text.substr(i).starts_with("ation")) i += 5;
    if (i < text.size() && text[i] == 's') ++i;
    // "step': 10" and "step\": 10" come from printed dictionaries.
    while (i < text.size() && (text[i] == ' ' || text[i] == ':' || text[i] == '=' || text[i] == '#' ||
                               text[i] == '\'' || text[i] == '"' || text[i] == '[')) {
      ++i;
    }
    Counter counter;
    std::optional<uint64_t> step = ReadInteger(text, i);
    if (!step) continue;
    if (i < text.size() && (IsLetter(text[i]) || (text[i] == '.' && i + 1 < text.size() && IsDigit(text[i + 1]))))
      continue;
    counter.step = *step;
    SkipSpaces(text, i);
    if (i < text.size() && text[i] == '/') {
      ++i;
      SkipSpaces(text, i);
      counter.total = ReadInteger(text, i);
    }
    return counter;
  }
  return std::nullopt;
}

}  // namespace

const char* ProgressGrammarName(ProgressGrammar grammar) {
  switch (grammar) {
    case ProgressGrammar::kNone:
      return "none";
    case ProgressGrammar::kBar:
      return "progress bar";
    case ProgressGrammar::kTrainer:
      return "Hugging Face Trainer";
    case ProgressGrammar::kMegatron:
      return "Megatron";
    case ProgressGrammar::kDeepSpeed:
      return "DeepSpeed";
    case ProgressGrammar::kTorchtitan:
      return "torchtitan";
    case ProgressGrammar::kStepLoss:
      return "step and loss";
    case ProgressGrammar::kCounter:
      return "step counter";
  }
  return "none";
}

std::optional<ProgressMark> ParseProgress(std::string_view line) {
  if (line.size() < 4) return std::nullopt;
  std::array<char, kLookAt> buffer;
  std::string_view text = Normalize(line, buffer);

  if (Has(text, "/s") || Has(text, "s/")) {
    std::optional<ProgressMark> mark = ParseTqdm(text);
    if (!mark) mark = ParseRichBar(text);
    if (mark) {
      mark->nested = Has(line, kCursorUp);
      mark->names_loss = Has(text, "loss");
      return mark;
    }
  }
  if (Has(text, "loss':") && Has(text, "'epoch':") && Has(text, "{'")) {
    return ProgressMark{.grammar = ProgressGrammar::kTrainer};
  }

  std::optional<Counter> counter = FindCounter(text);
  if (!counter) return std::nullopt;
  ProgressMark mark{.grammar = ProgressGrammar::kCounter, .step = counter->step, .total = counter->total};
  if (Has(text, "consumed samples") || Has(text, "elapsed time per iteration")) {
    mark.grammar = ProgressGrammar::kMegatron;
    if (auto ms = DecimalAfter(text, "elapsed time per iteration (ms):")) mark.seconds_per_step = *ms / 1000;
  } else if (Has(text, "iter time (s):")) {
    mark.grammar = ProgressGrammar::kDeepSpeed;
    mark.seconds_per_step = DecimalAfter(text, "iter time (s):");
  } else if (Has(text, "skipped=")) {
    mark.grammar = ProgressGrammar::kDeepSpeed;
  } else if (Has(text, "loss:") && Has(text, "tps:")) {
    mark.grammar = ProgressGrammar::kTorchtitan;
  } else {
    if (Has(text, "loss")) mark.grammar = ProgressGrammar::kStepLoss;
    mark.seconds_per_step = StatedSeconds(text);
  }
  return mark;
}

std::optional<EpochNumber> ParseEpochHeading(std::string_view line) {
  constexpr size_t kHeading = 60;
  std::array<char, kLookAt> buffer;
  std::string_view text = Normalize(line.substr(0, kHeading), buffer);
  while (!text.empty() && !IsLetter(text.front())) text.remove_prefix(1);
  return text.starts_with("epoch") ? FindEpoch(text) : std::nullopt;
}

std::optional<double> ParseLoss(std::string_view line) {
  std::array<char, kLookAt> buffer;
  std::string_view text = Normalize(line, buffer);
  for (size_t at = text.find("loss"); at != std::string_view::npos; at = text.find("loss", at + 4)) {
    // The word it belongs to: "train_loss", "eval_loss", "val loss".
    size_t begin = at;
    while (begin > 0 && (IsLetter(text[begin - 1]) || text[begin - 1] == '_' || text[begin - 1] == '/')) --begin;
    std::string_view word = text.substr(begin, at - begin);
    if (word.empty() && begin > 0 && text[begin - 1] == ' ') {
      size_t before = begin - 1;
      while (before > 0 && IsLetter(text[before - 1])) --before;
      word = text.substr(before, begin - 1 - before);
    }
    if (Has(word, "val") || Has(word, "test")) continue;
    size_t i = at + 4;
    while (i < text.size() && (text[i] == ' ' || text[i] == ':' || text[i] == '=' || text[i] == '\'' || text[i] == '"'))
      ++i;
    size_t end = i;
    while (end < text.size() &&
           (IsDigit(text[end]) || IsLetter(text[end]) || text[end] == '.' || text[end] == '-' || text[end] == '+'))
      ++end;
    const std::string number(text.substr(i, std::min<size_t>(end - i, 40)));
    if (number.empty() || number.starts_with("0x")) continue;
    char* stop = nullptr;
    double value = std::strtod(number.c_str(), &stop);
    // "loss scale" has no number; "0.5s" is a duration.
    if (stop != number.c_str() && *stop == 0) return value;
  }
  return std::nullopt;
}

}  // namespace lockstep::record
