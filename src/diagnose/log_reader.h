// A log of any size in chunks of whole lines, with a fixed buffer. A line longer than the buffer comes in pieces. One
// reader, one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"

namespace lockstep::diagnose {

// Calls `chunk` for each piece; every piece but the last ends in a newline unless a line is longer than the buffer. An
// error names the file; compressed files are refused with how to read them.
Status ReadLog(int fd, const std::string& path, const std::function<void(std::string_view)>& chunk);

}  // namespace lockstep::diagnose
