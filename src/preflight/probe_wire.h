// What probes say to each other. TCP: 37 bytes (secret, 'E' echo or 'R' rate, milliseconds in four digits), then either
// bytes that come back, or a stream until the end of file, answered by 16 digits (bit/s) and a stream back. UDP: 36
// bytes (secret, four digits) and filling; the 36 bytes come back. Private to probe*.cc.
#pragma once

#include <string>

#include "base/clock.h"

namespace lockstep::preflight {

inline constexpr size_t kStreamHeader = 37;
inline constexpr size_t kPacketHeader = 36;
inline constexpr size_t kResultSize = 16;

std::string StreamResult(double bits);
// Sends as fast as it goes for `time`.
void Stream(int fd, Millis time, TimePoint deadline);
// Receives to the end of the stream; bit/s from the first byte to the last.
double CountStream(int fd, TimePoint deadline);
void NoDelay(int fd);

}  // namespace lockstep::preflight
