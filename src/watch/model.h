// What is known of a run while it goes on, read from its run directory (events, metric lines, logs of ranks that write
// none) or from one log file of any launcher. Poll reads only what is new, tolerates torn lines, missing ranks and
// restarts (the later attempt wins), and keeps a fixed amount of memory for each rank and for the curve. Never writes;
// one thread.
//
//   Result<std::unique_ptr<Watch>> watch = Watch::Open("runs", "latest");
//   (*watch)->Poll();
//   Show((*watch)->view());
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "watch/findings.h"
#include "watch/log_progress.h"
#include "watch/pace.h"
#include "watch/series.h"
#include "watch/view.h"

namespace lockstep::watch {

// Where the output of a rank is: its own log, or the log of all of which its lines are taken.
struct LogPlace {
  std::string path;  // empty: nowhere
  std::optional<int> only;
};

class Watch;

// Gives those whose names are the same as many of the folders above them as make the names differ: "a/job.log",
// "b/job.log". What is there twice is numbered.
void TellNamesApart(const std::vector<std::unique_ptr<Watch>>& watches);

class Watch {
 public:
  // `which`: a run as FindRun names it, a run directory, or a log file.
  static Result<std::unique_ptr<Watch>> Open(const std::string& root, const std::string& which);
  virtual ~Watch() = default;

  virtual void Poll(double now) = 0;
  // Whether the run is over, without reading its files; for waiting between polls.
  virtual bool MayHaveEnded() const = 0;
  virtual LogPlace LogOf(int rank) const = 0;
  const RunView& view() const { return view_; }
  void SetName(std::string name) { view_.name = std::move(name); }

 protected:
  // The speed of a rank: what it says of itself, smoothed, else the pace of its steps.
  struct Rank {
    RankView view;
    std::optional<double> stated;
    int statements = 0;  // that were taken into it
    int takeovers = 0;   // of its log, see record::ProgressState
    Pace pace;
    bool from_metrics = false;
    bool from_log = false;
    bool heard = false;    // in this poll, through its log
    bool stamped = false;  // its lines say when they were written
  };

  // A step and what the rank says of its speed; t: when, where the line says it. A step that goes back is a restart.
  static void Advance(Rank* rank, std::optional<uint64_t> step, std::optional<double> t,
                      std::optional<double> seconds_per_step);
  // A progress line of a log, and after all of one poll the time the file was written last.
  static void TakeSign(const LogSign& sign, Rank* rank);
  // Its loss as the one of the run, newest and in the curve.
  void TakeLoss(const LogSign& sign);
  // What else it says, of the run.
  void TakeValues(const record::ProgressValues& values);
  void WrittenAt(double modified, double now, std::optional<int> only = std::nullopt);
  // Fills what follows from the ranks.
  void Conclude();
  // Fills the findings of what the window has seen.
  void Find(double now);

  RunView view_;
  std::map<int, Rank> ranks_;
  Window window_;

 private:
  std::map<std::string, double> since_;  // when each present finding was first seen
  TimePoint next_find_{};
};

}  // namespace lockstep::watch
