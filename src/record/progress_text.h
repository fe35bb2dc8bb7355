// Pieces of progress lines, shared by the files that parse them (progress.h). Pure functions, any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "base/digits.h"
#include "record/progress.h"

namespace lockstep::record {

inline constexpr size_t kLookAt = 2048;

inline bool IsLetter(char c) { return c >= 'a' && c <= 'z'; }

// Lower case and without terminal colours (torchtitan colours every field), so that one spelling has to be matched.
inline std::string_view Normalize(std::string_view line, std::array<char, kLookAt>& buffer) {
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

inline bool Has(std::string_view text, std::string_view word) { return text.find(word) != std::string_view::npos; }

inline void SkipSpaces(std::string_view text, size_t& at) {
  while (at < text.size() && text[at] == ' ') ++at;
}

inline std::optional<uint64_t> ReadInteger(std::string_view text, size_t& at) {
  std::string_view rest = text.substr(at);
  const std::optional<uint64_t> value = TakeDigits<uint64_t>(&rest);
  at = text.size() - rest.size();
  return value;
}

// Digits and one point only: std::from_chars for doubles is not in every standard library this is built with.
inline std::optional<double> ReadDecimal(std::string_view text, size_t& at) {
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

// Digits, also in groups of three ("20,000", "20_000").
inline std::optional<uint64_t> ReadGrouped(std::string_view text, size_t& at) {
  const size_t begin = at;
  std::optional<uint64_t> value = ReadInteger(text, at);
  const auto group = [&] {
    if (at + 3 >= text.size() || (text[at] != ',' && text[at] != '_')) return false;
    for (size_t i = 1; i <= 3; ++i) {
      if (!IsDigit(text[at + i])) return false;
    }
    return at + 4 >= text.size() || !IsDigit(text[at + 4]);
  };
  if (!value || at - begin > 3) return value;
  while (*value < 1'000'000'000'000 && group()) {
    ++at;
    *value = *value * 1000 + *ReadInteger(text, at);
  }
  return value;
}

// Digits, also scaled as tqdm's unit_scale writes them: "9.90k", "1.25M".
inline std::optional<uint64_t> ReadScaled(std::string_view text, size_t& at) {
  static constexpr std::pair<char, double> kScales[] = {{'k', 1e3}, {'m', 1e6}, {'g', 1e9}, {'t', 1e12}};
  size_t end = at;
  const std::optional<double> number = ReadDecimal(text, end);
  for (const auto& [letter, scale] : kScales) {
    if (!number || *number >= 1e4 || end >= text.size() || text[end] != letter) continue;
    at = end + 1;
    return static_cast<uint64_t>(*number * scale + 0.5);
  }
  return ReadInteger(text, at);
}

// A count as programs print it: "20,000", "31K" (LeRobot), "1.2M", "1e5". `at`: behind it then.
inline std::optional<uint64_t> ReadCount(std::string_view text, size_t& at) {
  size_t end = at;
  if (const std::optional<double> number = ReadDecimal(text, end); number && *number < 1e4 && end < text.size()) {
    double scale = text[end] == 'k' ? 1e3 : text[end] == 'm' ? 1e6 : 0;
    const bool power = text[end] == 'e';
    size_t behind = end + 1;
    if (const auto exponent = power ? ReadInteger(text, behind) : std::nullopt; exponent && *exponent <= 12) {
      scale = 1;
      for (uint64_t i = 0; i < *exponent; ++i) scale *= 10;
    }
    if (scale > 0 && (behind >= text.size() || !(IsLetter(text[behind]) || IsDigit(text[behind])))) {
      at = behind;
      return static_cast<uint64_t>(*number * scale + 0.5);
    }
  }
  return ReadGrouped(text, at);
}

// "01:02" and "1:02:03" as seconds.
inline std::optional<double> ReadClock(std::string_view text, size_t at) {
  std::optional<uint64_t> seconds = ReadInteger(text, at);
  int parts = 1;
  for (; seconds && parts < 3 && at + 1 < text.size() && text[at] == ':' && IsDigit(text[at + 1]); ++parts) {
    ++at;
    *seconds = *seconds * 60 + *ReadInteger(text, at);
  }
  return seconds && parts > 1 ? std::optional<double>(static_cast<double>(*seconds)) : std::nullopt;
}

// A number and how many there are: [ :=#[(]*S(( */ *| of )T)?, no percentage and no fraction. `at`: behind it then.
struct Place {
  uint64_t step = 0;
  std::optional<uint64_t> total;
};

inline std::optional<Place> ReadPlace(std::string_view text, size_t& at,
                                      std::optional<uint64_t> (*read)(std::string_view, size_t&) = ReadCount) {
  while (at < text.size() && std::string_view(" :=#[(").find(text[at]) != std::string_view::npos) ++at;
  const std::optional<uint64_t> step = read(text, at);
  const bool fraction = at + 1 < text.size() && text[at] == '.' && IsDigit(text[at + 1]);
  if (!step || fraction || (at < text.size() && (text[at] == '%' || IsLetter(text[at])))) return std::nullopt;
  Place place{.step = *step, .total = std::nullopt};
  SkipSpaces(text, at);
  const std::string_view rest = text.substr(at);
  const size_t between = rest.starts_with('/') ? 1 : rest.starts_with("of ") ? 3 : 0;
  if (between > 0) {
    at += between;
    SkipSpaces(text, at);
    place.total = read(text, at);
  }
  return place;
}

inline std::optional<double> DecimalAfter(std::string_view text, std::string_view words) {
  size_t at = text.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  at += words.size();
  SkipSpaces(text, at);
  return ReadDecimal(text, at);
}

// Whether the words right before a count say that it is not the training that is counted: "valid step:", "[eval] iter",
// "saved checkpoint at step".
bool NamesOtherWork(std::string_view before);

// Parts of ParseProgress, over normalized text.
std::optional<ProgressMark> ParseBar(std::string_view text);
std::optional<ProgressMark> ParseEpochPlace(std::string_view text);  // "Epoch [1/5], Step [100/600], Loss: 0.3"
std::optional<ProgressMark> ParseKeras(std::string_view text);       // " 10/938 [....] - ETA: 12s - loss: 2.2"
std::optional<ProgressMark> ParseEpochOnly(std::string_view text);   // "Epoch 3/50 - train loss: 0.3 - val loss: 0.4"
std::optional<EpochNumber> FindEpoch(std::string_view text, size_t* end = nullptr);  // end: behind its numbers
std::optional<double> StatedSeconds(std::string_view text);                          // of a step
std::optional<double> StatedTime(std::string_view text);                             // "time: 0.25" of a step

// Whether a line says of itself that it tells of an evaluation: "mode": "val", split=test, collection=infer_eval.
bool NamesOtherSplit(std::string_view text);

// A number as programs print it: "1.5e-05", "nan", "5,432.1", "1,95" with a decimal comma, "12.3K". Nothing where a
// comma may mean either ("1,952"), unless `grouped`: then it groups. `rest`: letters that stand right behind it.
std::optional<double> ReadNumber(std::string_view text, bool grouped, std::string_view* rest);

// The number after one of these names, with signs of assignment and quotes between.
std::optional<double> NamedNumber(std::string_view text, std::initializer_list<std::string_view> names);

}  // namespace lockstep::record
