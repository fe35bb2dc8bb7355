#include "track/score_text.h"

#include <fmt/format.h>

namespace lockstep::track {
namespace {

struct Known {
  std::string_view name, title, unit;
  int digits;
};
constexpr Known kKnown[] = {{"psnr", "PSNR", "dB", 2}, {"ssim", "SSIM", "", 4}, {"lpips", "LPIPS", "", 4}};

const Known* Find(std::string_view name) {
  for (const Known& known : kKnown) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

}  // namespace

std::string ScoreText(std::string_view name, double value) {
  const Known* known = Find(name);
  if (known == nullptr) return fmt::format("{} {:.4g}", name, value);
  return fmt::format("{} {:.{}f}{}{}", known->title, value, known->digits, known->unit.empty() ? "" : " ", known->unit);
}

std::string ScoreLabel(std::string_view name) {
  const Known* known = Find(name);
  if (known == nullptr) return std::string(name);
  return known->unit.empty() ? std::string(known->title) : fmt::format("{} ({})", known->title, known->unit);
}

}  // namespace lockstep::track
