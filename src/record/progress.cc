#include "record/progress.h"

#include <cmath>
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

// "time 123.4ms" (nanoGPT), "time: 12.3 ms", "98.50 ms" (llm.c), "step_avg:98.5ms". Where a line has several such
// numbers, the one called time or step is it; what has passed since the start is not.
std::optional<double> StatedMilliseconds(std::string_view text) {
  std::optional<double> first;
  for (size_t at = text.find("ms"); at != std::string_view::npos; at = text.find("ms", at + 2)) {
    if (at + 2 < text.size() && IsLetter(text[at + 2])) continue;
    size_t begin = 0;
    const std::optional<double> value = NumberBefore(text, at, &begin);
    if (!value) continue;
    while (begin > 0 && !IsLetter(text[begin - 1]) && text[begin - 1] != '|' && text[begin - 1] != ',') --begin;
    const std::string_view before = text.substr(0, begin);
    const auto ends = [&](std::string_view word) { return before.ends_with(word); };
    if (ends("train_time") || ends("total_time") || ends("total time") || ends("elapsed") || ends("elapsed time")) {
      continue;
    }
    if (ends("time") || ends("step") || ends("iter") || ends("dt") || ends("step_avg")) return *value / 1000;
    if (!first) first = *value / 1000;
  }
  return first;
}

struct Counter {
  size_t at = 0;  // of its name
  uint64_t step = 0;
  std::optional<uint64_t> total;
};

// Counts of something else: "micro_step=40", "max_steps: 1000".
bool OtherCount(std::string_view before) {
  static constexpr std::string_view kWords[] = {"micro", "max",  "total",  "total optimization", "num", "warmup",
                                                "eval",  "save", "logging"};
  if (before.empty() || std::string_view("_- ").find(before.back()) == std::string_view::npos) return false;
  before.remove_suffix(1);
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](std::string_view word) { return before.ends_with(word); });
}

// How many there are, where a line of several fields says it in one of its own.
constexpr std::string_view kTotals[] = {
    "\"total_steps\":", "'total_steps':", "total_steps=", "\"max_steps\":", "'max_steps':"};

// (step|iter|iteration)s?[ :=#]*N( */ *M)?, from a place in the line on.
std::optional<Counter> FindCounterFrom(std::string_view text, size_t from) {
  static constexpr std::string_view kWords[] = {"step", "iter"};
  while (from < text.size()) {
    size_t at = std::string_view::npos;
    for (std::string_view word : kWords) at = std::min(at, text.find(word, from));
    if (at == std::string_view::npos) return std::nullopt;
    from = at + 4;
    if (at > 0 && IsLetter(text[at - 1])) continue;
    if (OtherCount(text.substr(0, at))) continue;
    size_t i = at + 4;
    if (text.substr(i).starts_with("ation")) i += 5;
    if (i < text.size() && text[i] == 's') ++i;
    for (const std::string_view of : {"/max_steps", "/total_steps"}) {  // "'global_step/max_steps': '10/300'"
      if (text.substr(i).starts_with(of)) i += of.size();
    }
    // "step': 10" and "step\": 10" come from printed dictionaries.
    while (i < text.size() && std::string_view(" \t:=#'\"[").find(text[i]) != std::string_view::npos) ++i;
    Counter counter{.at = at};
    std::optional<uint64_t> step = ReadCount(text, i);
    if (!step) continue;
    if (i < text.size() && (IsLetter(text[i]) || (text[i] == '.' && i + 1 < text.size() && IsDigit(text[i + 1]))))
      continue;
    counter.step = *step;
    SkipSpaces(text, i);
    const bool of = text.substr(i).starts_with("of ") && i + 3 < text.size() && IsDigit(text[i + 3]);
    if (of || (i < text.size() && text[i] == '/')) {
      i += of ? 3 : 1;
      SkipSpaces(text, i);
      counter.total = ReadCount(text, i);
      if (counter.total == uint64_t{0}) counter.total.reset();
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

// Beside the count of an epoch ("STEP: 24/377 -- GLOBAL_STEP: 370025"), the one of the run is it.
std::optional<Counter> FindCounter(std::string_view text) {
  for (const std::string_view name : {"global_step", "global step"}) {
    const size_t at = text.find(name);
    if (at == std::string_view::npos) continue;
    if (const std::optional<Counter> counter = FindCounterFrom(text, at)) return counter;
  }
  return FindCounterFrom(text, 0);
}

// clu's log writer (Flax, T5X): "[100] accuracy=0.1, loss=6.9", behind the logger's own words or at the beginning.
std::optional<Counter> FindBracketedStep(std::string_view text) {
  for (size_t open = text.find('['); open != std::string_view::npos; open = text.find('[', open + 1)) {
    if (text.find_first_not_of(' ') != open && !text.substr(0, open).ends_with("] ")) continue;
    size_t at = open + 1;
    const std::optional<uint64_t> step = ReadInteger(text, at);
    if (!step || !text.substr(at).starts_with("] ")) continue;
    const size_t name = text.find_first_not_of(' ', at + 1);
    if (name == std::string_view::npos || !IsLetter(text[name])) continue;
    size_t sign = name;
    while (sign < text.size() && (IsLetter(text[sign]) || IsDigit(text[sign]) || Has("_/.-", text.substr(sign, 1)))) {
      ++sign;
    }
    SkipSpaces(text, sign);
    if (sign >= text.size() || text[sign] != '=') continue;
    return Counter{.at = open, .step = *step, .total = std::nullopt};
  }
  return std::nullopt;
}

// Composer: "[batch=10/4800]:", the loss stands on one of the next lines.
std::optional<Counter> FindBatchHeading(std::string_view text) {
  const size_t at = text.find("[batch=");
  size_t number = at + 7;
  const std::optional<Place> place = at == std::string_view::npos ? std::nullopt : ReadPlace(text, number);
  if (!place || !place->total) return std::nullopt;
  return Counter{.at = at + 1, .step = place->step, .total = place->total};
}

// Lines of frameworks: which words make one, and where it says the seconds of a step.
struct LineGrammar {
  ProgressGrammar grammar;
  std::string_view words[2];  // all of them
  std::string_view seconds;   // before the number; empty: nowhere, or as StatedSeconds finds it
  double scale = 1;
};

constexpr LineGrammar kLineGrammars[] = {
    {ProgressGrammar::kMegatron, {"elapsed time per iteration (s):", ""}, "elapsed time per iteration (s):"},
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

namespace {

std::optional<double> AnySeconds(std::string_view text) {
  if (const auto rate = StatedRate(text)) return rate;
  if (const auto milliseconds = StatedMilliseconds(text)) return milliseconds;
  const std::optional<double> seconds = NamedNumber(
      text, {"step_time", "step time", "iter_time", "iter time", "time_per_step", "time_per_iter",
             "train_step_timing in s", "timing_s/step", "batch_cost", "avg_batch_cost", "train_speed(s/it)"});
  if (seconds && *seconds > 0) return seconds;
  if (const auto ms = NamedNumber(text, {"elapsed_time_per_iteration_ms"}); ms && *ms > 0) return *ms / 1000;
  // Where the time of the data stands beside it, "time" is that of a step; alone it may be the time since the start.
  if (Has(text, "data_time") || Has(text, " data: ")) {
    if (const auto time = StatedTime(text)) return time;
  }
  const std::optional<double> speed =
      NamedNumber(text, {"steps_per_second", "steps_per_sec", "steps/sec", "steps/s", "it/sec", "it/s", "iter/s",
                         "global_step/sec", "throughput/batches_per_sec", "ups", "train_speed(iter/s)"});
  return speed && *speed > 0 ? std::optional<double>(1 / *speed) : std::nullopt;
}

}  // namespace

std::optional<double> StatedSeconds(std::string_view text) {
  const std::optional<double> seconds = AnySeconds(text);
  return seconds && std::isfinite(*seconds) ? seconds : std::nullopt;
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

namespace {

std::optional<ProgressMark> ParseMark(std::string_view line) {
  if (line.size() < 4) return std::nullopt;
  std::array<char, kLookAt> buffer;
  const std::string_view text = Normalize(line, buffer);
  if (std::optional<ProgressMark> mark = ParseBar(text)) {
    mark->nested = Has(line, kCursorUp);
    return mark;
  }
  std::optional<Counter> counter = FindCounter(text);
  // A dictionary of Trainer or fairseq, printed by Python or as JSON; Trainer's has a step only where a callback adds
  // one.
  if (Has(text, "{") && (Has(text, "loss':") || Has(text, "loss\":")) &&
      (Has(text, "'epoch':") || Has(text, "\"epoch\":"))) {
    ProgressMark mark{.grammar = ProgressGrammar::kTrainer, .names_loss = true};
    if (counter) mark.step = counter->step, mark.total = counter->total;
    if (!counter) {
      const std::optional<double> updates = NamedNumber(text, {"num_updates", "train_num_updates"});
      if (updates && *updates >= 0 && *updates < 1e15) mark.step = static_cast<uint64_t>(*updates);
    }
    mark.epochs_done = NamedNumber(text, {"epoch"});
    mark.side = NamesOtherSplit(text);
    if (mark.step) mark.seconds_per_step = StatedSeconds(text);
    return mark;
  }
  if (!counter) counter = FindBatchHeading(text);
  const bool bracketed = !counter && (counter = FindBracketedStep(text)).has_value();
  if (!counter) return ParseEpochOnly(text);
  const bool loss = Has(text, "loss");
  ProgressMark mark{.grammar = ProgressGrammar::kCounter,
                    .step = counter->step,
                    .total = counter->total,
                    .side = NamesOtherWork(text.substr(0, counter->at)) || NamesOtherSplit(text),
                    .names_loss = loss};
  for (const LineGrammar& row : kLineGrammars) {
    if (!Has(text, row.words[0]) || !Has(text, row.words[1])) continue;
    mark.grammar = row.grammar;
    if (!row.seconds.empty()) mark.seconds_per_step = DecimalAfter(text, row.seconds);
    if (mark.seconds_per_step) *mark.seconds_per_step *= row.scale;
    if (!mark.seconds_per_step) mark.seconds_per_step = StatedSeconds(text);
    return mark;
  }
  // "[3] loss=0.5" may as well begin with the number of a process: it has to rise first, unless clu's writer says it.
  const bool sure = !bracketed || Has(text.substr(0, counter->at), "logging_writer.py");
  // "[step=10/100" of OLMo: the loss stands on one of the next lines.
  const bool heading = counter->total && text.substr(0, counter->at).ends_with('[');
  if ((loss && sure) || heading) mark.grammar = ProgressGrammar::kStepLoss;
  mark.seconds_per_step = StatedSeconds(text);
  return mark;
}

}  // namespace

std::optional<ProgressMark> ParseProgress(std::string_view line) {
  std::optional<ProgressMark> mark = ParseMark(line);
  if (!mark) return mark;
  // "1e999 s/it", "0.0 it/s": no time. Whatever form the line has, it is judged here.
  for (std::optional<double>* number : {&mark->seconds_per_step, &mark->elapsed, &mark->epochs_done}) {
    if (*number && !(std::isfinite(**number) && **number >= 0)) number->reset();
  }
  return mark;
}

namespace {

constexpr size_t kHeadingBytes = 200;

std::optional<uint64_t> CountAfter(std::string_view text, std::string_view words) {
  size_t at = text.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  at += words.size();
  return ReadGrouped(text, at);
}

}  // namespace

std::optional<uint64_t> ParseEpochCount(std::string_view line) {
  std::array<char, kLookAt> buffer;
  return CountAfter(Normalize(line.substr(0, kHeadingBytes), buffer), "num epochs = ");
}

std::optional<uint64_t> ParseStepCount(std::string_view line) {
  if (!Has(line.substr(0, kHeadingBytes), "ptimization")) return std::nullopt;
  std::array<char, kLookAt> buffer;
  const std::optional<uint64_t> count =
      CountAfter(Normalize(line.substr(0, kHeadingBytes), buffer), "total optimization steps = ");
  return count && *count < 1'000'000'000'000'000 ? count : std::nullopt;
}

std::optional<double> ParseSpeed(std::string_view line) {
  if (!Has(line.substr(0, kHeadingBytes), "sec")) return std::nullopt;
  std::array<char, kLookAt> buffer;
  const std::optional<double> speed =
      NamedNumber(Normalize(line.substr(0, kHeadingBytes), buffer), {"global_step/sec", "throughput/batches_per_sec"});
  return speed && *speed > 0 && std::isfinite(*speed) ? std::optional<double>(1 / *speed) : std::nullopt;
}

bool NamesOtherWork(std::string_view before) {
  static constexpr std::string_view kEvaluation[] = {"val",     "valid", "validation", "validate", "validating", "test",
                                                     "testing", "eval",  "evaluation", "evaluate", "evaluating", "dev"};
  static constexpr std::string_view kMention[] = {"best",       "saved",     "saving",   "save",
                                                  "checkpoint", "resumed",   "resuming", "resume",
                                                  "restored",   "restoring", "loaded",   "loading"};
  const auto is = [](std::string_view word, const auto& list) {
    return std::find(std::begin(list), std::end(list), word) != std::end(list);
  };
  bool path = false;
  for (int words = 0; words < 5; ++words) {
    while (!before.empty() && !IsLetter(before.back())) before.remove_suffix(1);
    size_t begin = before.size();
    while (begin > 0 && IsLetter(before[begin - 1])) --begin;
    const std::string_view word = before.substr(begin);
    if (word.empty()) return false;
    // "[checkpoint.py:12] step 10" is where it was printed.
    if (!path && ((words < 2 && is(word, kEvaluation)) || is(word, kMention))) return true;
    path = begin > 0 && before[begin - 1] == '.';
    before = before.substr(0, begin);
  }
  return false;
}

bool NamesOtherSplit(std::string_view text) {
  for (const std::string_view name : {"mode", "split", "collection", "phase", "subset"}) {
    for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + name.size())) {
      if (at > 0 && (IsLetter(text[at - 1]) || text[at - 1] == '_')) continue;
      size_t begin = at + name.size();
      while (begin < text.size() && std::string_view(" :='\"").find(text[begin]) != std::string_view::npos) ++begin;
      size_t end = begin;
      while (end < text.size() && (IsLetter(text[end]) || text[end] == '_')) ++end;
      const std::string_view value = text.substr(begin, end - begin);
      if (begin == at + name.size()) continue;
      if (value.starts_with("val") || value.starts_with("test") || value == "dev" || Has(value, "eval")) return true;
    }
  }
  return false;
}

std::optional<EpochNumber> ParseEpochHeading(std::string_view line) {
  constexpr size_t kHeading = 60;
  std::array<char, kLookAt> buffer;
  std::string_view text = Normalize(line.substr(0, kHeading), buffer);
  while (!text.empty() && !IsLetter(text.front())) text.remove_prefix(1);
  return text.starts_with("epoch") ? FindEpoch(text) : std::nullopt;
}

}  // namespace lockstep::record
