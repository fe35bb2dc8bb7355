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
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "record/metrics.h"
#include "record/reader.h"
#include "watch/log_progress.h"
#include "watch/pace.h"
#include "watch/series.h"

namespace lockstep::watch {

// Of a program whose bar begins anew with each epoch.
struct EpochView {
  uint64_t number = 0;
  std::optional<uint64_t> of;
  uint64_t step = 0, total = 0;  // of this epoch
};

struct RankView {
  int rank = 0;
  int attempt = 0;
  std::optional<uint64_t> step;  // of the run, over all epochs
  std::optional<EpochView> epoch;
  std::optional<double> seconds_per_step;
  std::optional<double> loss;
  std::optional<double> memory_host, memory_device;  // bytes
  double last_sign = 0;                              // seconds since 1970; 0: none yet
};

struct RunView {
  bool log = false;  // one log file instead of a run directory
  std::string name;
  std::string path;
  std::string state;   // as `lockstep runs` says it; of a log: "running", "silent" or "complete"
  bool ended = false;  // nothing more will come
  std::string reason;  // how it ended
  std::optional<int> exit_code;
  int attempt = 0;
  int world = 0;       // 0: unknown
  double started = 0;  // 0: unknown
  double duration = 0;
  std::optional<uint64_t> total;  // steps of the whole run
  // Of the leading rank.
  std::optional<uint64_t> step;
  std::optional<EpochView> epoch;
  std::optional<double> seconds_per_step;
  std::optional<double> loss;
  std::optional<double> eta;    // seconds
  std::vector<RankView> ranks;  // those that were heard of, ascending
  Series curve;                 // loss over steps
  uint64_t bad_lines = 0;       // metric lines that did not parse

  nlohmann::json ToJson(double now) const;
};

class Watch {
 public:
  // `which`: a run as FindRun names it, a run directory, or a log file.
  static Result<std::unique_ptr<Watch>> Open(const std::string& root, const std::string& which);
  virtual ~Watch() = default;

  virtual void Poll(double now) = 0;
  // Whether the run is over, without reading its files; for waiting between polls.
  virtual bool MayHaveEnded() const = 0;
  const RunView& view() const { return view_; }

 protected:
  // The speed of a rank: what it says of itself, smoothed, else the pace of its steps.
  struct Rank {
    RankView view;
    std::optional<double> stated;
    Pace pace;
    bool from_metrics = false;
    bool heard = false;    // in this poll, through its log
    bool stamped = false;  // its lines say when they were written
  };

  // A step and what the rank says of its speed; t: when, where the line says it. A step that goes back is a restart.
  static void Advance(Rank* rank, std::optional<uint64_t> step, std::optional<double> t,
                      std::optional<double> seconds_per_step);
  // A progress line of a log, and after all of one poll the time the file was written last.
  static void TakeSign(const LogSign& sign, Rank* rank);
  void WrittenAt(double modified, double now);
  // Fills what follows from the ranks.
  void Conclude();

  RunView view_;
  std::map<int, Rank> ranks_;
};

}  // namespace lockstep::watch
