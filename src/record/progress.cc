#include "record/progress.h"

#include <iterator>

#include "record/progress_text.h"

namespace lockstep::record {
namespace {

constexpr std::string_view kCursorUp = "\x1b[A";

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

struct Counter {
  uint64_t step = 0;
  std::optional<uint64_t> total;
};

// Counts of something else: "micro_step=40", "max_steps: 1000".
bool OtherCount(std::string_view before) {
  static constexpr std::string_view kWords[] = {"micro", "max", "total", "num", "warmup", "eval", "save", "logging"};
  if (before.empty() || std::string_view("_- ").find(before.back()) == std::string_view::npos) return false;
  before.remove_suffix(1);
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](std::string_view word) { return before.ends_with(word); });
}

// How many there are, where a line of several fields says it in one of its own.
constexpr std::string_view kTotals[] = {
    "\"total_steps\":", "'total_steps':", "total_steps=", "\"max_steps\":", "'max_steps':"};

// (step|iter|iteration)s?[ :=#]*N( */ *M)?
std::optional<Counter> FindCounter(std::string_view text) {
  static constexpr std::string_view kWords[] = {"step", "iter"};
  for (size_t from = 0; from < text.size();) {
    size_t at = std::string_view::npos;
    for (std::string_view word : kWords) at = std::min(at, text.find(word, from));
    if (at == std::string_view::npos) return std::nullopt;
    from = at + 4;
    if (at > 0 && IsLetter(text[at - 1])) continue;
    if (OtherCount(text.substr(0, at))) continue;
    size_t i = at + 4;
    if (text.substr(i).starts_with("ation")) i += 5;
    if (i < text.size() && text[i] == 's') ++i;
    // "step': 10" and "step\": 10" come from printed dictionaries.
    while (i < text.size() && (text[i] == ' ' || text[i] == ':' || text[i] == '=' || text[i] == '#' ||
                               text[i] == '\'' || text[i] == '"' || text[i] == '[')) {
      ++i;
    }
    Counter counter;
    std::optional<uint64_t> step = ReadGrouped(text, i);
    if (!step) continue;
    if (i < text.size() && (IsLetter(text[i]) || (text[i] == '.' && i + 1 < text.size() && IsDigit(text[i + 1]))))
      continue;
    counter.step = *step;
    SkipSpaces(text, i);
    if (i < text.size() && text[i] == '/') {
      ++i;
      SkipSpaces(text, i);
      counter.total = ReadGrouped(text, i);
    }
    if (!counter.total) {
      for (const std::string_view name : kTotals) {
        if (const auto total = DecimalAfter(text, name)) counter.total = static_cast<uint64_t>(*total);
      }
    }
    return counter;
  }
  return std::nullopt;
}

// Lines of frameworks: which words make one, and where it says the seconds of a step.
struct LineGrammar {
  ProgressGrammar grammar;
  std::string_view words[2];  // all of them
  std::string_view seconds;   // before the number; empty: nowhere, or as StatedSeconds finds it
  double scale = 1;
};

constexpr LineGrammar kLineGrammars[] = {
    {ProgressGrammar::kMegatron, {"consumed samples", ""}, "elapsed time per iteration (ms):", 0.001},
    {ProgressGrammar::kMegatron, {"elapsed time per iteration", ""}, "elapsed time per iteration (ms):", 0.001},
    {ProgressGrammar::kDeepSpeed, {"iter time (s):", ""}, "iter time (s):"},
    {ProgressGrammar::kDeepSpeed, {"skipped=", "lr="}, ""},
    {ProgressGrammar::kDeepSpeed, {"global_step=", "samplespersec="}, ""},
    {ProgressGrammar::kTorchtitan, {"loss:", "tps:"}, ""},
    {ProgressGrammar::kKair, {"epoch:", "iter:"}, "time (data):"},
    {ProgressGrammar::kStepLoss, {"completed step:", "seconds:"}, "seconds:"},
};

}  // namespace

std::optional<double> StatedSeconds(std::string_view text) {
  if (const auto rate = StatedRate(text)) return rate;
  if (const auto milliseconds = StatedMilliseconds(text)) return milliseconds;
  const std::optional<double> seconds = NamedNumber(
      text, {"step_time", "iter_time", "time_per_step", "time_per_iter", "train_step_timing in s", "timing_s/step"});
  if (seconds && *seconds > 0) return seconds;
  const std::optional<double> speed = NamedNumber(text, {"steps_per_second", "steps_per_sec", "steps/sec", "ups"});
  return speed && *speed > 0 ? std::optional<double>(1 / *speed) : std::nullopt;
}

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
    case ProgressGrammar::kKair:
      return "KAIR";
    case ProgressGrammar::kStepLoss:
      return "step and loss";
    case ProgressGrammar::kEpochs:
      return "epochs";
    case ProgressGrammar::kCounter:
      return "step counter";
  }
  return "none";
}

std::optional<ProgressMark> ParseProgress(std::string_view line) {
  if (line.size() < 4) return std::nullopt;
  std::array<char, kLookAt> buffer;
  const std::string_view text = Normalize(line, buffer);
  if (std::optional<ProgressMark> mark = ParseBar(text)) {
    mark->nested = Has(line, kCursorUp);
    return mark;
  }
  const std::optional<Counter> counter = FindCounter(text);
  // A dictionary of Trainer, printed by Python or as JSON; it has a step only where a callback adds one.
  if (Has(text, "{") && (Has(text, "loss':") || Has(text, "loss\":")) &&
      (Has(text, "'epoch':") || Has(text, "\"epoch\":"))) {
    ProgressMark mark{.grammar = ProgressGrammar::kTrainer};
    if (counter) mark.step = counter->step, mark.total = counter->total;
    return mark;
  }
  if (!counter) return ParseEpochOnly(text);
  ProgressMark mark{.grammar = ProgressGrammar::kCounter, .step = counter->step, .total = counter->total};
  for (const LineGrammar& row : kLineGrammars) {
    if (!Has(text, row.words[0]) || !Has(text, row.words[1])) continue;
    mark.grammar = row.grammar;
    if (!row.seconds.empty()) mark.seconds_per_step = DecimalAfter(text, row.seconds);
    if (mark.seconds_per_step) *mark.seconds_per_step *= row.scale;
    return mark;
  }
  if (Has(text, "loss")) mark.grammar = ProgressGrammar::kStepLoss;
  mark.seconds_per_step = StatedSeconds(text);
  return mark;
}

std::optional<EpochNumber> ParseEpochHeading(std::string_view line) {
  constexpr size_t kHeading = 60;
  std::array<char, kLookAt> buffer;
  std::string_view text = Normalize(line.substr(0, kHeading), buffer);
  while (!text.empty() && !IsLetter(text.front())) text.remove_prefix(1);
  return text.starts_with("epoch") ? FindEpoch(text) : std::nullopt;
}

}  // namespace lockstep::record
