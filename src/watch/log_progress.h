// Progress read from a log: of one rank, or of a whole job in one file, where the launcher put the rank before each
// line. Reads on from where it stopped, through rotation; progress bars that only return the carriage count line by
// line. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "record/log_tail.h"
#include "record/metric_csv.h"
#include "record/progress_tracker.h"

namespace lockstep::watch {

// The rank a launcher wrote before a line, which is cut off: "0:3| " (lockstep), "3: " (srun -l), "[rank3]:" and
// "[default3]:" (torchrun), "[1,3]<stdout>:" (mpirun), "[3]<stdout>:" (horovodrun). Nothing where there is none.
std::optional<int> CutRankPrefix(std::string_view* line);

struct LogSign {
  int rank = 0;
  record::ProgressState state;
  std::optional<double> loss;
  record::ProgressValues values;
  // The step did not advance, only loss and values are news; in the second case the loss is the one of this step.
  enum class Redrawn { kNo, kNewest, kOfStep } redrawn = Redrawn::kNo;
  std::optional<double> stamp;  // when the line says it was written; good for differences only (zone unknown)
};

class LogProgress {
 public:
  // rank: whose log it is; none: a log of all, lines without a mark count as rank 0's.
  LogProgress(std::string path, std::optional<int> rank) : tail_(std::move(path)), rank_(rank) {}

  // Leaves out all but the last lines of what is there already, or the last bytes where these are fewer. Before the
  // first Read.
  void SkipToLast(size_t lines, size_t bytes) { tail_.SkipToLast(lines, bytes); }
  // Likewise, for a log whose loss is drawn: a fixed amount, however long the log.
  void SkipToHistory();

  // Calls for every line that is progress or names a loss, of at most a few MiB: what is left is read by the next call.
  // Returns when the file was written last.
  double Read(const std::function<void(const LogSign&)>& each);
  // How much of what was there at first has been read: 0 to 1.
  double part() const { return part_; }
  // Whether any line was one.
  bool any() const { return any_; }

 private:
  struct Stream {
    record::ProgressTracker tracker{true};
    // The last progress line named no loss: it may stand on the indented lines that follow (OLMo, Composer).
    bool expects_loss = false;
  };

  void Line(std::string_view line, const std::function<void(const LogSign&)>& each);

  record::LogTail tail_;
  std::optional<int> rank_;
  std::map<int, Stream> streams_;
  record::MetricCsv csv_;
  std::string partial_;
  bool redrawn_ = false;  // it follows a carriage return
  bool any_ = false;
  // Of the file at the last look.
  ino_t inode_ = 0;
  off_t size_ = -1;
  double modified_ = 0;
  std::optional<size_t> whole_;  // bytes that were there at first
  double part_ = 0;
};

}  // namespace lockstep::watch
