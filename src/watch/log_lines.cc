#include "watch/log_lines.h"

#include "base/columns.h"
#include "watch/log_progress.h"

namespace lockstep::watch {
namespace {

constexpr size_t kMostBytes = 1000;         // of a line that is shown
constexpr size_t kLongestPart = 64u << 10;  // of a line without an end
constexpr size_t kReadAtOnce = 4u << 20;    // of one look: a log that grows faster is passed over
constexpr size_t kBytesPerLine = 4096;

}  // namespace

LogLines::LogLines(std::string path, std::optional<int> only, size_t most)
    : tail_(std::move(path)), only_(only), most_(most) {
  tail_.SkipToLast(only ? most * 8 : most, most * kBytesPerLine);
}

void LogLines::Take(std::string_view line, bool complete) {
  if (only_) {
    const std::optional<int> rank = CutRankPrefix(&line);
    if (rank.value_or(0) != *only_) return;
  }
  if (redraws_ && !lines_.empty()) lines_.pop_back();
  redraws_ = !complete;
  lines_.push_back(OneLine(line, kMostBytes));
  if (lines_.size() > most_) lines_.pop_front();
}

void LogLines::Read() {
  for (size_t total = 0, before = partial_.size(); total < kReadAtOnce && tail_.Read(&partial_);
       before = partial_.size()) {
    total += partial_.size() - before;
    size_t begin = 0;
    for (size_t end; (end = partial_.find_first_of("\n\r", begin)) != std::string::npos; begin = end + 1) {
      const bool complete = partial_[end] == '\n';
      // "\r\n" ends one line; a bare "\n" after a bar closes it.
      if (complete && end == begin && redraws_) {
        redraws_ = false;
        continue;
      }
      if (end > begin || complete) Take(std::string_view(partial_).substr(begin, end - begin), complete);
    }
    partial_.erase(0, begin);
    if (partial_.size() > kLongestPart) partial_.clear();
  }
}

}  // namespace lockstep::watch
