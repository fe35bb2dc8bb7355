// Numbers that progress lines name: the loss, speeds, the learning rate, the norm of the gradients.
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <string>

#include "record/progress_text.h"

namespace lockstep::record {

std::optional<double> ReadNumber(std::string_view text, bool grouped, std::string_view* rest) {
  constexpr size_t kLongest = 40;
  const auto digit = [&](size_t at) { return at < text.size() && IsDigit(text[at]); };
  size_t end = 0;
  while (end < std::min(text.size(), kLongest) &&
         (IsDigit(text[end]) || IsLetter(text[end]) || Has(".+-", text.substr(end, 1)) ||
          (text[end] == ',' && end > 0 && digit(end - 1) && digit(end + 1)))) {
    ++end;
  }
  std::string_view token = text.substr(0, end);
  while (token.ends_with('.')) token.remove_suffix(1);
  std::string number(token);
  if (const size_t comma = token.find(','); comma != std::string_view::npos) {
    bool threes = true;
    size_t last = comma;
    for (size_t at = comma; at != std::string_view::npos; at = token.find(',', at + 1)) {
      threes = threes && digit(at + 1) && digit(at + 2) && digit(at + 3) && !digit(at + 4);
      last = at;
    }
    const std::string_view first = token.substr(0, comma);
    const bool whole = first.find_first_not_of("+-0123456789") == std::string_view::npos;
    if (!whole || (last != comma && !threes)) {  // "0.5,0.4": a list
      number = first;
    } else if (threes && first != "0" && first != "-0" && token.find('e', comma) == std::string_view::npos) {
      if (!grouped && last == comma && token.find('.', comma) == std::string_view::npos) return std::nullopt;
      number.erase(std::remove(number.begin(), number.end(), ','), number.end());
    } else {
      number[comma] = '.';
    }
  }
  if (number.empty() || number.starts_with("0x")) return std::nullopt;
  char* stop = nullptr;
  const double value = std::strtod(number.c_str(), &stop);
  if (stop == number.c_str()) return std::nullopt;
  *rest = token.substr(token.size() - (number.c_str() + number.size() - stop));
  return value;
}

std::optional<double> NamedNumber(std::string_view text, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + name.size())) {
      if (at > 0 && (IsLetter(text[at - 1]) || text[at - 1] == '_')) continue;
      size_t i = at + name.size();
      const size_t before = i;
      while (i < text.size() && std::string_view(" :='\"[(").find(text[i]) != std::string_view::npos) ++i;
      if (i == before || i >= text.size() || (!IsDigit(text[i]) && !Has("+-.", text.substr(i, 1)))) continue;
      std::string_view rest;
      const std::optional<double> value = ReadNumber(text.substr(i), true, &rest);
      if (!value) continue;
      return *value * (rest == "k" ? 1e3 : rest == "m" ? 1e6 : rest == "g" ? 1e9 : 1);
    }
  }
  return std::nullopt;
}

namespace {

// The number before one of these units: "61.5 samples/s".
std::optional<double> NumberWithUnit(std::string_view text, std::initializer_list<std::string_view> units) {
  for (const std::string_view unit : units) {
    const size_t at = text.find(unit);
    if (at == std::string_view::npos) continue;
    size_t end = at, behind = at + unit.size();
    SkipSpaces(text, behind);
    if (behind < text.size() && Has(":=", text.substr(behind, 1))) continue;  // "lr 1e-4 tok/s: nan": a name
    while (end > 0 && text[end - 1] == ' ') --end;
    if (end > 0 && text[end - 1] == ',') continue;  // "312.1, tokens/s: 13042": of another name
    size_t begin = end;
    while (begin > 0 && (IsDigit(text[begin - 1]) || text[begin - 1] == '.' || text[begin - 1] == ',')) --begin;
    if (begin > 0 && text[begin - 1] == '/') continue;  // "2081/2351 tok/s": of source and target
    std::string number;
    for (const char c : text.substr(begin, end - begin)) {
      if (c != ',') number += c;
    }
    char* stop = nullptr;
    const double value = std::strtod(number.c_str(), &stop);
    if (!number.empty() && *stop == 0) return value;
  }
  return std::nullopt;
}

// "| norm 3.1 |" (llm.c): a field of that name alone, no "weight norm".
std::optional<double> FieldNorm(std::string_view text) {
  for (size_t at = text.find("norm"); at != std::string_view::npos; at = text.find("norm", at + 4)) {
    const size_t before = at == 0 ? std::string_view::npos : text.find_last_not_of(' ', at - 1);
    if (before != std::string_view::npos && text[before] != '|' && text[before] != ',') continue;
    if (const auto norm = NamedNumber(text.substr(at), {"norm"})) return norm;
  }
  return std::nullopt;
}

// "2h 10m", "27m54s", "12s", "1.5 h"
std::optional<double> ReadDuration(std::string_view text, size_t at) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {{"d", 86400},  {"h", 3600}, {"min", 60},
                                                                   {"ms", 0.001}, {"m", 60},   {"s", 1}};
  std::optional<double> sum;
  while (at < text.size()) {
    SkipSpaces(text, at);
    const std::optional<double> value = ReadDecimal(text, at);
    if (!value) break;
    SkipSpaces(text, at);
    const auto* unit = std::find_if(std::begin(kUnits), std::end(kUnits),
                                    [&](const auto& one) { return text.substr(at).starts_with(one.first); });
    if (unit == std::end(kUnits)) break;
    at += unit->first.size();
    sum = sum.value_or(0) + *value * unit->second;
  }
  return sum;
}

// "eta: 1 day, 2:03:04", "ETA: 12s", "eta 7m38s", "remaining time: 0:01:54" in seconds.
std::optional<double> EtaAfter(std::string_view text, std::string_view name) {
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + name.size())) {
    if (at > 0 && (IsLetter(text[at - 1]) || text[at - 1] == '_')) continue;
    size_t i = at + name.size();
    while (i < text.size() && std::string_view(" :='\"").find(text[i]) != std::string_view::npos) ++i;
    if (i == at + name.size()) continue;
    double days = 0;
    size_t after = i;
    if (const auto number = ReadInteger(text, after)) {
      SkipSpaces(text, after);
      if (text.substr(after).starts_with("day")) {
        days = static_cast<double>(*number);
        i = after + 3;
        while (i < text.size() && !IsDigit(text[i]) && std::string_view("s, ").find(text[i]) != std::string_view::npos)
          ++i;
      }
    }
    const std::optional<double> clock = ReadClock(text, i);
    const std::optional<double> rest = clock ? clock : ReadDuration(text, i);
    if (rest || days > 0) return days * 86400 + rest.value_or(0);
  }
  return std::nullopt;
}

std::optional<double> StatedEta(std::string_view text) {
  for (const std::string_view name : {"eta", "remaining time", "remaining_time", "time remaining", "time left"}) {
    if (const std::optional<double> eta = EtaAfter(text, name)) return eta;
  }
  return std::nullopt;
}

// How much a loss of this name is the one that is trained: several may stand in a line.
int LossRank(std::string_view attached, std::string_view before) {
  static constexpr std::string_view kParts[] = {"kl", "aux", "mtp", "entropy", "surrogate", "balancing"};
  const std::string_view name = attached.empty() ? before : attached;
  if (!Has(name, "cross") &&
      std::any_of(std::begin(kParts), std::end(kParts), [&](std::string_view part) { return Has(name, part); })) {
    return 0;
  }
  if (attached.empty()) return 3;
  // "actor/loss" beside "actor/pg_loss" is that of the actor.
  return Has(name, "train") || Has(name, "total") || Has(name, "step") || name.ends_with('/') ? 2 : 1;
}

bool OfEvaluation(std::string_view name) {
  return Has(name, "val") || Has(name, "test") || name == "dev" || name.starts_with("dev_");
}

}  // namespace

std::optional<double> ParseLoss(std::string_view line) {
  std::array<char, kLookAt> buffer;
  std::string_view text = Normalize(line, buffer);
  if (Has(text, "train_runtime")) return std::nullopt;  // the mean over the whole training, at its end
  std::optional<double> best;
  int best_rank = -1;
  for (size_t at = text.find("loss"); at != std::string_view::npos; at = text.find("loss", at + 4)) {
    // The word it belongs to and the one before: "train_loss", "eval_loss", "val loss", "eval  CrossEntropyLoss".
    size_t begin = at;
    while (begin > 0 && (IsLetter(text[begin - 1]) || text[begin - 1] == '_' || text[begin - 1] == '/')) --begin;
    const std::string_view word = text.substr(begin, at - begin);
    size_t end = begin;
    while (end > 0 && text[end - 1] == ' ') --end;
    size_t start = end;
    while (start > 0 && (IsLetter(text[start - 1]) || IsDigit(text[start - 1]) || text[start - 1] == '_')) --start;
    const std::string_view before = end < begin ? text.substr(start, end - start) : std::string_view();
    if (OfEvaluation(word) || OfEvaluation(before)) continue;
    size_t i = at + 4;
    for (const std::string_view more : {"_step", " is", "/train/total", "/train", " train", " (curr)"}) {
      if (text.substr(i).starts_with(more)) i += more.size();
    }
    for (const std::string_view count : {" at step ", " at iteration "}) {  // "loss at step 100: 2.5"
      size_t behind = i + count.size();
      if (text.substr(i).starts_with(count) && ReadGrouped(text, behind)) i = behind;
    }
    while (i < text.size() && std::string_view(" :='\"|").find(text[i]) != std::string_view::npos) ++i;
    for (const std::string_view type : {"tensor(", "array("}) {
      if (text.substr(i).starts_with(type)) i += type.size();
    }
    std::string_view rest;
    const std::optional<double> value = ReadNumber(text.substr(i), false, &rest);
    // "loss scale" has no number; "0.5s" is a duration.
    if (!value || !rest.empty()) continue;
    if (const int rank = LossRank(word, before); rank > best_rank) best_rank = rank, best = value;
  }
  return best ? best : NamedNumber(text, {"l_pix", "l_g_pix", "l_total"});  // BasicSR
}

ProgressValues ParseValues(std::string_view line) {
  std::array<char, kLookAt> buffer;
  const std::string_view text = Normalize(line, buffer);
  ProgressValues values;
  values.samples_per_second = NamedNumber(text, {"samples/sec", "samples/s", "samples per second", "currsamplespersec",
                                                 "samples_per_second", "samples_per_sec", "img/s"});
  if (!values.samples_per_second) values.samples_per_second = NumberWithUnit(text, {"samples/s", "img/s", "images/s"});
  values.tokens_per_second =
      NamedNumber(text, {"tps", "tokens/s", "tokens/sec", "tok/s", "tok/sec", "tokens per second", "tokens_per_second",
                         "tokens_per_sec", "tokens/s/device", "wps"});
  if (!values.tokens_per_second) values.tokens_per_second = NumberWithUnit(text, {"tokens/s", "tok/s"});
  values.learning_rate = NamedNumber(text, {"learning_rate", "learning rate", "lr"});
  values.gradient_norm = NamedNumber(text, {"grad_norm", "grad norm", "gradient norm", "gradient_norm", "gnorm"});
  if (!values.gradient_norm) values.gradient_norm = FieldNorm(text);
  values.eta = StatedEta(text);
  // "nan samples/s", or a number too large for one: no speed.
  for (std::optional<double>* rate : {&values.samples_per_second, &values.tokens_per_second}) {
    if (*rate && !(std::isfinite(**rate) && **rate >= 0)) rate->reset();
  }
  return values;
}

}  // namespace lockstep::record
