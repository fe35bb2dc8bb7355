// Progress read from a log: of one rank, or of a whole job in one file, where the launcher put the rank before each
// line. Reads on from where it stopped, through rotation; progress bars that only return the carriage count line by
// line. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "record/log_tail.h"
#include "record/progress_tracker.h"

namespace lockstep::watch {

// The rank a launcher wrote before a line, which is cut off: "0:3| " (lockstep), "3: " (srun -l), "[rank3]:" and
// "[default3]:" (torchrun), "[1,3]<stdout>:" (mpirun). Nothing where there is none.
std::optional<int> CutRankPrefix(std::string_view* line);

struct LogSign {
  int rank = 0;
  record::ProgressState state;
  std::optional<double> loss;
  std::optional<double> stamp;  // when the line says it was written; good for differences only (zone unknown)
};

class LogProgress {
 public:
  // rank: whose log it is; none: a log of all, lines without a mark count as rank 0's.
  LogProgress(std::string path, std::optional<int> rank) : tail_(std::move(path)), rank_(rank) {}

  // Leaves out all but the last lines of what is there already. Before the first Read.
  void SkipToLast(size_t lines) { tail_.SkipToLast(lines); }

  // Calls for every line that is progress or names a loss.
  void Read(const std::function<void(const LogSign&)>& each);

  bool any() const { return any_; }
  const std::string& path() const { return tail_.path(); }

 private:
  void Line(std::string_view line, const std::function<void(const LogSign&)>& each);

  record::LogTail tail_;
  std::optional<int> rank_;
  std::map<int, record::ProgressTracker> trackers_;
  std::string partial_;
  bool any_ = false;
};

}  // namespace lockstep::watch
