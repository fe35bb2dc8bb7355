// Numbers as the table and the screen write them: short, of a width that hardly changes from step to step. What is
// unknown is "-". Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::watch {

inline constexpr char kUnknown[] = "-";

std::string LossText(const std::optional<double>& loss);        // "0.0123", "1.234e+06", "nan"
std::string SecondsText(const std::optional<double>& seconds);  // "0.520", "12.31", "184.2"
std::string PerSecondText(const std::optional<double>& value);  // "61.5", "0.042", "12,345"
std::string TimeText(double seconds);                           // "7m38s"
std::string AgeText(double seconds);                            // "0.3s", "12s", "5m", "3h", "2d"
std::string BytesText(const std::optional<double>& bytes);      // "8.0 GiB"
std::string ShortBytes(const std::optional<double>& bytes);     // "8.0G", "512M"
std::string RateText(const std::optional<double>& bytes);       // of bytes per second: "1.2G/s"
std::string PercentText(const std::optional<double>& part);     // of 0 to 1: "3%"
std::string WholeText(const std::optional<double>& value);      // "61"
std::string StepText(const std::optional<uint64_t>& step, const std::optional<uint64_t>& total);
std::string ClockTime(double unix_seconds);  // "12:01:33", local

}  // namespace lockstep::watch
