// When a log line says it was written: ISO 8601 with or without zone, Python logging, glog, syslog, dmesg -T and their
// relatives. A stamp without zone is taken as UTC, one without year as of the year given. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace lockstep::record {

struct TimeStamp {
  double time = 0;    // seconds since 1970
  size_t length = 0;  // bytes of the text it took
};

// A stamp at the very start of the text. `year` serves stamps that have none.
std::optional<TimeStamp> ParseTimeStamp(std::string_view text, int year);

// "2026-01-01_10:00:00", "2026-01-01 10:00:00 +0000" and the like, as a whole value.
std::optional<double> ParseTime(std::string_view text);

}  // namespace lockstep::record
