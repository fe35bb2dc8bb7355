#include "watch/numbers.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cmath>
#include <ctime>

#include "base/units.h"

namespace lockstep::watch {
namespace {

// Four characters of a number: "0.04", "61.5", "1234".
std::string FourDigits(double value) {
  const double size = std::abs(value);
  if (size < 9.995) return fmt::format("{:.2f}", value);
  if (size < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

bool Sensible(const std::optional<double>& value) { return value && *value >= 0 && *value < 1e18; }

}  // namespace

std::string LossText(const std::optional<double>& loss) {
  if (!loss) return kUnknown;
  if (!std::isfinite(*loss) || (std::abs(*loss) >= 0.001 && std::abs(*loss) < 1e4)) return fmt::format("{:.4f}", *loss);
  return fmt::format("{:.3e}", *loss);
}

std::string SecondsText(const std::optional<double>& seconds) {
  if (!Sensible(seconds)) return kUnknown;
  return *seconds < 10 ? fmt::format("{:.3f}", *seconds)
                       : fmt::format("{:.{}f}", *seconds,
                                     *seconds < 100    ? 2
                                     : *seconds < 1000 ? 1
                                                       : 0);
}

std::string PerSecondText(const std::optional<double>& value) {
  if (!Sensible(value)) return kUnknown;
  if (*value < 0.1) return fmt::format("{:.3f}", *value);
  if (*value < 1e4) return FourDigits(*value);
  if (*value < 1e7) return fmt::format("{}k", FourDigits(*value / 1e3));
  return fmt::format("{}M", FourDigits(*value / 1e6));
}

std::string TimeText(double seconds) {
  if (!(seconds >= 0 && seconds < 1e10)) return kUnknown;
  return FormatDuration(std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
}

std::string AgeText(double seconds) {
  if (!(seconds >= 0 && seconds < 1e10)) return kUnknown;
  if (seconds < 10) return fmt::format("{:.1f}s", seconds);
  if (seconds < 120) return fmt::format("{:.0f}s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f}m", seconds / 60);
  if (seconds < 172800) return fmt::format("{:.0f}h", seconds / 3600);
  return fmt::format("{:.0f}d", seconds / 86400);
}

std::string BytesText(const std::optional<double>& bytes) {
  return Sensible(bytes) ? FormatSize(static_cast<uint64_t>(*bytes)) : kUnknown;
}

std::string ShortBytes(const std::optional<double>& bytes) {
  if (!Sensible(bytes)) return kUnknown;
  static constexpr std::array kUnits = {"", "K", "M", "G", "T", "P"};
  double value = *bytes;
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) value /= 1024, ++unit;
  const bool fraction = unit >= 3 && value < 99.95;
  return fmt::format("{:.{}f}{}", value, fraction ? 1 : 0, kUnits[unit]);
}

std::string RateText(const std::optional<double>& bytes) {
  if (!Sensible(bytes)) return kUnknown;
  static constexpr std::array kUnits = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  double value = *bytes;
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) value /= 1000, ++unit;
  return fmt::format("{:.{}f} {}", value, unit > 0 && value < 99.95 ? 1 : 0, kUnits[unit]);
}

std::string PercentText(const std::optional<double>& part) {
  return Sensible(part) ? fmt::format("{:.0f}%", 100 * *part) : kUnknown;
}

std::string WholeText(const std::optional<double>& value) {
  return Sensible(value) ? fmt::format("{:.0f}", *value) : kUnknown;
}

std::string StepText(const std::optional<uint64_t>& step, const std::optional<uint64_t>& total) {
  if (!step) return kUnknown;
  return total ? fmt::format("{}/{}", *step, *total) : fmt::format("{}", *step);
}

std::string ClockTime(double unix_seconds) {
  if (!(unix_seconds > 0 && unix_seconds < 1e11)) return "--:--:--";
  const auto whole = static_cast<std::time_t>(unix_seconds);
  std::tm local{};
  if (::localtime_r(&whole, &local) == nullptr) return "--:--:--";
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

}  // namespace lockstep::watch
