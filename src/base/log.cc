#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

std::optional<LogLevel> FromName(std::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info" || name.empty()) return LogLevel::kInfo;
  if (name == "warn" || name == "warning") return LogLevel::kWarn;
  if (name == "error") return LogLevel::kError;
  if (name == "off") return LogLevel::kOff;
  return std::nullopt;
}

spdlog::logger& Logger() {
  // Never destroyed: threads may still log while the process ends.
  static spdlog::logger* logger = [] {
    auto* made = new spdlog::logger("lockstep", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    made->flush_on(spdlog::level::debug);
    const char* wanted = std::getenv("LOCKSTEP_LOG_LEVEL");
    std::optional<LogLevel> level = FromName(wanted != nullptr ? wanted : "");
    made->set_level(ToSpdlog(level.value_or(LogLevel::kInfo)));
    if (!level) {
      made->warn("lockstep: warning: LOCKSTEP_LOG_LEVEL: expected debug, info, warn, error or off, found '{}'", wanted);
    }
    return made;
  }();
  return *logger;
}

constexpr std::string_view kPrefix[] = {"lockstep: debug: ", "lockstep: ", "lockstep: warning: ", "lockstep: error: "};

}  // namespace

bool LogEnabled(LogLevel level) { return level != LogLevel::kOff && Logger().should_log(ToSpdlog(level)); }

void LogText(LogLevel level, std::string_view text) {
  if (!LogEnabled(level)) return;
  std::string line(kPrefix[static_cast<int>(level)]);
  line += text;
  Logger().log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

void SetLogLevel(LogLevel level) { Logger().set_level(ToSpdlog(level)); }

}  // namespace lockstep
