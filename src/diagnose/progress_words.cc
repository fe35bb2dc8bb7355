#include "diagnose/progress_words.h"

#include <re2/re2.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "base/digits.h"
#include "record/progress.h"

namespace lockstep::diagnose {

// The expressions are compiled once and immutable afterwards.

std::optional<bool> LossIsFinite(std::string_view line) {
  const std::optional<double> loss = record::ParseLoss(line);
  static const RE2 lost_evaluation(R"((?i)\b(?:eval|val|valid|test)_loss['"]?\s*[:=]\s*['"]?-?nan\b)");
  if (!loss) {
    if (RE2::PartialMatch(re2::StringPiece(line.data(), line.size()), lost_evaluation)) return false;
    return std::nullopt;
  }
  static const RE2 lost_gradient(R"((?i)grad[_ ]?norm['"]?\s*[:=]?\s*['"]?-?nan\b)");
  return std::isfinite(*loss) && !RE2::PartialMatch(re2::StringPiece(line.data(), line.size()), lost_gradient);
}

std::optional<uint64_t> EpochPosition(std::string_view line) {
  static const RE2 pattern(
      R"((?i)\b(?:epoch|train|iter)s?(?:\(train\))?:? {0,2}\[? {0,3}(\d+)\]?(?:[\s,:]*\[\s*(\d+)/\d+|/(\d+))?)");
  static const RE2 pair(R"(\[(\d+), +(\d+)\] \w*loss)");  // "[3,   450] loss: 0.117"
  const std::string_view start = line.substr(0, 200);
  const re2::StringPiece piece(start.data(), start.size());
  const size_t close = start.find("] ");
  const bool paired = close != std::string_view::npos && start.find("loss", close) < close + 20;
  std::string epoch, step;
  if (!(paired && RE2::PartialMatch(piece, pair, &epoch, &step)) && !RE2::PartialMatch(piece, pattern, &epoch, &step)) {
    return std::nullopt;
  }
  return LeadingDigits<uint64_t>(epoch).value_or(0) * 1'000'000'000 + LeadingDigits<uint64_t>(step).value_or(0);
}

}  // namespace lockstep::diagnose
