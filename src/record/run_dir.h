// The run directory as its writer sees it (format: docs/formats/run-directory.md). One RunDir per launcher, used by one
// thread. The authority (node 0) holds the lock and writes run.json, config.yaml, events.jsonl and report.json; every
// other node writes only its own tree, and its events go to nodes/node-<n>.jsonl.
//
//   Result<RunDir> run = RunDir::Create("runs", "taehv", /*authority=*/true);
//   if (!run.ok()) return run.status();
//   run->AppendEvent("attempt_started", {{"attempt", run->first_attempt()}});
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "record/lock.h"

namespace lockstep::record {

inline constexpr char kDefaultRoot[] = "runs";

struct RunIdentity {
  std::string name;
  std::string root;
  std::string path;  // absolute
  int node = 0;
  bool authority = false;
  int first_attempt = 0;  // of this launch; decided by the authority's tree
};

// Why a name cannot be a run's name, or ok.
Status CheckRunName(std::string_view name);

// "<program stem>-<YYYYMMDD-HHMMSS>-<4 hex>".
std::string DefaultName(std::string_view program);

class RunDir {
 public:
  // root empty: "runs". A locked name, an unusable name and a folder that is no run are refused; nothing is left behind
  // then.
  static Result<RunDir> Create(const std::string& root, const std::string& name, bool authority, int node = 0);

  RunDir(RunDir&&) noexcept = default;
  RunDir& operator=(RunDir&&) noexcept = default;
  ~RunDir() = default;  // releases the lock

  const RunIdentity& identity() const { return identity_; }
  const std::string& path() const { return identity_.path; }
  const std::string& name() const { return identity_.name; }
  int first_attempt() const { return identity_.first_attempt; }
  // Sentences worth showing once: a stale lock taken over, a continued run, a file system without flock.
  const std::vector<std::string>& notices() const { return notices_; }

  std::string LogDir(int attempt, int node) const;
  std::string LogPath(int attempt, int node, int rank) const;
  std::string ErrorFilePath(int attempt, int node, int rank) const;
  std::string MetricsPath(int rank) const;
  std::string ConfigPath() const { return identity_.path + "/config.yaml"; }
  Status MakeAttemptDirs(int attempt, int node) const;

  // Adds format, name, created, started and first_attempt to the given fields. Authority only, as are the next two.
  Status WriteRunJson(nlohmann::json fields);
  Status WriteConfig(std::string_view yaml);
  // Adds format and name, and a warning when events were lost.
  Status WriteReport(nlohmann::json report);

  // Stamps the time and appends one line. Never fails the caller: what the disk refused is counted.
  void AppendEvent(std::string_view type, nlohmann::json fields = nlohmann::json::object());
  uint64_t events_lost() const { return events_lost_; }
  // The last reason for a lost event; ok when none was lost.
  const Status& event_error() const { return event_error_; }

  // Call every few seconds (at least twice a minute) while running; see heartbeat in the format.
  Status TouchLock();
  void Release() { lock_.Release(); }

  // For a launch whose ranks never started: takes back what it wrote, from log folder `attempt` on, and lets go of the
  // lock. A new directory is gone afterwards, one that existed is as it was found. False, and nothing is done, when a
  // new directory holds something that no launcher writes: then work was begun, and its record stays.
  bool Discard(int attempt);

 private:
  RunDir() = default;
  Status Prepare();
  Status RequireAuthority(std::string_view what) const;
  Status OpenEvents();

  // What this launch found, for Discard.
  struct Found {
    bool root = false, run = false;  // existed
    std::optional<std::string> run_json, config;
    std::string report;                        // where the report of before was moved to; empty: there was none
    std::optional<int64_t> events;             // bytes of the events file; none: it did not exist
    std::map<std::string, uintmax_t> samples;  // path of each file of samples, its bytes
  };
  std::string EventsPath() const;

  RunIdentity identity_;
  Found found_;
  RunLock lock_;
  std::vector<std::string> notices_;
  UniqueFd events_;
  bool mid_line_ = false;  // the events file ends in a torn line
  uint64_t events_lost_ = 0;
  Status event_error_;
  double started_ = 0;
  double created_ = 0;
};

}  // namespace lockstep::record
