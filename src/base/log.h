// Messages of the program about itself, to stderr, one line each: "lockstep: warning: ...". The level comes from
// LOCKSTEP_LOG_LEVEL (debug, info, warn, error, off; default info). Any thread; lines are never mixed. A thin cover
// over spdlog, whose headers stay out of everybody else's compile time.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace lockstep {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

bool LogEnabled(LogLevel level);
void LogText(LogLevel level, std::string_view text);
// For tests and flags such as --quiet; wins over the environment.
void SetLogLevel(LogLevel level);

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(level)) LogText(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kDebug, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogWarn(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kWarn, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kError, format, std::forward<Args>(args)...);
}

}  // namespace lockstep
