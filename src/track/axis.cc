#include "track/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::track {
namespace {

constexpr size_t kMostTicks = 200;

// The one of 1, 2 and 5 times a power of ten that is nearest by ratio.
double NiceStep(double raw) {
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double part = raw / power;  // 1 to 10; the borders are geometric means
  return power * (part < std::sqrt(2) ? 1 : part < std::sqrt(10) ? 2 : part < std::sqrt(50) ? 5 : 10);
}

std::vector<Tick> LinearTicks(const Axis& axis, int wanted) {
  const double step = NiceStep((axis.high - axis.low) / std::max(wanted, 1));
  std::vector<Tick> ticks;
  if (!std::isfinite(step) || step <= 0) return ticks;
  for (double n = std::ceil(axis.low / step - 1e-9); n * step <= axis.high + step * 1e-9; ++n) {
    if (ticks.size() == kMostTicks) break;  // neighbouring numbers of a huge magnitude
    ticks.push_back({n * step, TickText(n * step, step)});
  }
  return ticks;
}

std::vector<Tick> LogTicks(const Axis& axis, int wanted) {
  const int first = static_cast<int>(std::floor(std::log10(axis.low))),
            last = static_cast<int>(std::ceil(std::log10(axis.high)));
  const int decades = std::max(1, last - first);
  const int every = (decades + std::max(wanted, 1) - 1) / std::max(wanted, 1);  // which powers get a number
  const bool between = 2 * decades <= wanted;                                   // so do 2 and 5 times them
  std::vector<Tick> ticks;
  for (int exponent = first; exponent <= last && ticks.size() < kMostTicks; ++exponent) {
    const double power = std::pow(10, exponent);
    for (int factor = 1; factor < 10; ++factor) {
      if (every > 1 && factor > 1) break;
      const double value = factor * power;
      if (value < axis.low * (1 - 1e-9) || value > axis.high * (1 + 1e-9)) continue;
      const bool numbered = factor == 1 ? (exponent - first) % every == 0 : between && (factor == 2 || factor == 5);
      ticks.push_back({value, numbered ? TickText(value, value) : ""});
    }
  }
  return ticks;
}

}  // namespace

double Axis::Part(double value) const {
  if (!log) return (value - low) / (high - low);
  if (value <= 0) return -std::numeric_limits<double>::infinity();
  return std::log(value / low) / std::log(high / low);
}

void ValueRange::Add(double value) {
  if (!std::isfinite(value)) return;
  *this = empty() ? ValueRange{value, value} : ValueRange{std::min(low, value), std::max(high, value)};
}

void ValueRange::Add(const ValueRange& other) {
  if (other.empty()) return;
  Add(other.low);
  Add(other.high);
}

Axis MakeAxis(const ValueRange& range, double margin, bool log_allowed) {
  Axis axis;
  if (range.empty()) return axis;
  axis.low = range.low;
  axis.high = range.high;
  axis.log = log_allowed && range.low > 0 && range.high / range.low >= kLogSpan;
  if (axis.log) {
    const double factor = std::pow(axis.high / axis.low, margin);
    axis.low /= factor;
    axis.high *= factor;
    return axis;
  }
  // Halves, because the difference of the largest numbers is none.
  double half = axis.high / 2 - axis.low / 2;
  // One value, or values too near each other for ticks between them.
  if (half <= std::abs(axis.high) * 1e-12) half = std::max(std::abs(axis.high) * 0.05, 1e-12);
  const double middle = axis.low / 2 + axis.high / 2;
  half = std::min(half * (1 + 2 * margin), std::numeric_limits<double>::max() / 4);
  axis.low = middle - half;
  axis.high = middle + half;
  return axis;
}

std::vector<Tick> Ticks(const Axis& axis, int wanted) {
  return axis.log ? LogTicks(axis, wanted) : LinearTicks(axis, wanted);
}

std::string TickText(double value, double step) {
  const double size = std::abs(value);
  if (size < step * 1e-6) return "0";
  if (size < 1e-4 || size >= 1e12) return fmt::format("{:.4g}", value);
  static constexpr std::pair<double, const char*> kUnits[] = {{1e9, "G"}, {1e6, "M"}, {1e4, "k"}, {0, ""}};
  for (const auto& [from, unit] : kUnits) {
    if (size < from) continue;
    const double scale = from == 1e4 ? 1e3 : std::max(from, 1.0);
    const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(step / scale) - 1e-9)), 0, 6);
    return fmt::format("{:.{}f}{}", value / scale, digits, unit);
  }
  return "";
}

}  // namespace lockstep::track
