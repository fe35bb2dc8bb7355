// The end of a rank's log as it is sent to node 0 for a diagnosis. Reads files only; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::logs {

struct LogExcerpt {
  std::string text;         // whole lines, valid UTF-8; only the beginning of a very long one
  uint64_t first_line = 1;  // number of its first line in the file; 1 where the file is too large to count
  // The last traceback or crash before `text`, where there is one: what was said before a flood of other words.
  std::string earlier;
  uint64_t earlier_line = 0;
};

LogExcerpt ReadExcerpt(const std::string& path, size_t bytes);

}  // namespace lockstep::logs
