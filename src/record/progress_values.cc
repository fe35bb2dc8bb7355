// Numbers that progress lines name: the loss, speeds, the learning rate, the norm of the gradients.
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <string>

#include "record/progress_text.h"

namespace lockstep::record {

std::optional<double> NamedNumber(std::string_view text, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + name.size())) {
      if (at > 0 && (IsLetter(text[at - 1]) || text[at - 1] == '_')) continue;
      size_t i = at + name.size();
      const size_t before = i;
      while (i < text.size() && std::string_view(" :='\"[(").find(text[i]) != std::string_view::npos) ++i;
      if (i == before) continue;
      size_t end = i;
      while (end < text.size() &&
             (IsDigit(text[end]) || std::string_view(".,e+-").find(text[end]) != std::string_view::npos)) {
        ++end;
      }
      // "5,432" is one number; a comma at the end separates.
      std::string number;
      for (const char c : text.substr(i, std::min<size_t>(end - i, 40))) {
        if (c != ',') number += c;
      }
      if (size_t comma = text.substr(i, end - i).find(", "); comma != std::string_view::npos) continue;
      char* stop = nullptr;
      const double value = std::strtod(number.c_str(), &stop);
      if (stop != number.c_str() && *stop == 0) return value;
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
    size_t end = at;
    while (end > 0 && text[end - 1] == ' ') --end;
    if (end > 0 && text[end - 1] == ',') continue;  // "312.1, tokens/s: 13042": of another name
    size_t begin = end;
    while (begin > 0 && (IsDigit(text[begin - 1]) || text[begin - 1] == '.' || text[begin - 1] == ',')) --begin;
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

// "eta: 1 day, 2:03:04", "ETA: 12s", "eta 7m38s" in seconds.
std::optional<double> StatedEta(std::string_view text) {
  for (size_t at = text.find("eta"); at != std::string_view::npos; at = text.find("eta", at + 3)) {
    if (at > 0 && (IsLetter(text[at - 1]) || text[at - 1] == '_')) continue;
    size_t i = at + 3;
    while (i < text.size() && std::string_view(" :='\"").find(text[i]) != std::string_view::npos) ++i;
    if (i == at + 3) continue;
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

}  // namespace

std::optional<double> ParseLoss(std::string_view line) {
  std::array<char, kLookAt> buffer;
  std::string_view text = Normalize(line, buffer);
  if (Has(text, "train_runtime")) return std::nullopt;  // the mean over the whole training, at its end
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
    for (const std::string_view more : {"_step", " is"}) {
      if (text.substr(i).starts_with(more)) i += more.size();
    }
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
  return NamedNumber(text, {"l_pix", "l_g_pix", "l_total"});  // BasicSR
}

ProgressValues ParseValues(std::string_view line) {
  std::array<char, kLookAt> buffer;
  const std::string_view text = Normalize(line, buffer);
  ProgressValues values;
  values.samples_per_second = NamedNumber(text, {"samples/sec", "samples/s", "samples per second", "currsamplespersec",
                                                 "samples_per_second", "samples_per_sec", "img/s"});
  if (!values.samples_per_second) values.samples_per_second = NumberWithUnit(text, {"samples/s", "img/s", "images/s"});
  values.tokens_per_second = NamedNumber(text, {"tps", "tokens/s", "tokens/sec", "tok/s", "tokens per second",
                                                "tokens_per_second", "tokens_per_sec", "tokens/s/device", "wps"});
  if (!values.tokens_per_second) values.tokens_per_second = NumberWithUnit(text, {"tokens/s", "tok/s"});
  values.learning_rate = NamedNumber(text, {"learning_rate", "learning rate", "lr"});
  values.gradient_norm = NamedNumber(text, {"grad_norm", "grad norm", "gradient norm", "gnorm"});
  values.eta = StatedEta(text);
  // "nan samples/s", or a number too large for one: no speed.
  for (std::optional<double>* rate : {&values.samples_per_second, &values.tokens_per_second}) {
    if (*rate && !(std::isfinite(**rate) && **rate >= 0)) rate->reset();
  }
  return values;
}

}  // namespace lockstep::record
