// The run directory as its readers see it: what runs exist, in which state, how they ended. Tolerates everything a
// crash or a full disk can leave behind; never writes. Pure reads, any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "record/lock.h"

namespace lockstep::record {

enum class RunState { kRunning, kSucceeded, kFailed, kStopped, kLost, kNodeOnly };
const char* ToString(RunState state);

struct RunSummary {
  std::string name;
  std::string path;
  RunState state = RunState::kLost;
  double started = 0;   // seconds since 1970, 0 if unknown
  double duration = 0;  // seconds: to the end, to now, or (lost) to the last sign of life
  int nnodes = 0;       // 0 if unknown, as for world
  int world = 0;
  int attempts = 0;  // of all launches of this name
  std::optional<int> exit_code;
  std::string reason;
  std::optional<LockOwner> launcher;  // while running, or the last one when lost

  nlohmann::json ToJson() const;
  // Of a run that has ended, to follow a colon: "all 4 ranks succeeded", "failed: lost node 1", "without a report:
  // ...".
  std::string HowItEnded() const;
};

// Every run under root, newest first. A missing root is an empty list.
Result<std::vector<RunSummary>> ListRuns(const std::string& root);
RunSummary Summarise(const std::string& run_path);

// report.json, or nothing when it is absent or does not parse.
std::optional<nlohmann::json> ReadReport(const std::string& run_path);
std::optional<nlohmann::json> ReadRunJson(const std::string& run_path);
// Empty when there is no file.
JsonLines ReadEvents(const std::string& run_path);

// The folder that holds the runs: of the run that this process is a rank of, else `runs` of the working directory.
std::string RunsRoot();

// The path of a run given by name, unique prefix, "latest", or as a path that contains a '/' ("runs/latest", too).
Result<std::string> FindRun(const std::string& root, const std::string& which);

// Attempt numbers that have a log folder, ascending.
std::vector<int> LogAttempts(const std::string& run_path);

struct LogFile {
  int attempt = 0, node = 0, rank = 0;
  std::string path;  // of the current file; rotated ones are path.1 (newest), path.2 ...
};

// The log files of one attempt, by node and rank.
std::vector<LogFile> LogFiles(const std::string& run_path, int attempt);
// The rotated files of a log that exist, oldest first, then the log itself if it exists.
std::vector<std::string> LogChain(const std::string& log_path);

}  // namespace lockstep::record
