// What was submitted from this account: one small file per job, so that `lockstep jobs`, `logs` and `cancel` know the
// platform, the id and the output of a job by its name. Format: docs/formats/job.md. Any thread; files are replaced
// whole.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"

namespace lockstep::submit {

struct JobRecord {
  std::string name, platform, id;
  std::string cluster;     // where the client knows several: of SLURM, the context of kubectl
  std::string name_space;  // of Kubernetes
  std::string folder;      // where it was submitted
  std::string file;        // the job file; empty where it held a token and was not kept
  std::string output;      // of the job; empty: the client shows it
  double submitted = 0;    // seconds since 1970
  int nodes = 0;
  pid_t pid = 0;  // ssh: the process that waits for the job, with what makes it unique
  uint64_t start_time = 0;
  std::string boot;
};

// $XDG_STATE_HOME/lockstep/jobs, or that below ~/.local/state.
Result<std::string> RecordsRoot(const Environment& env);

Status WriteRecord(const std::string& root, const JobRecord& record);
// Newest first. Files that hold no record are passed over; `unreadable` says which, and why.
std::vector<JobRecord> ReadRecords(const std::string& root, std::vector<std::string>* unreadable = nullptr);

// What the jobs of an array have in common: "26" of "26_1", "26[1]" and "26[].server".
std::string JobNumber(const std::string& id);

// The job that this one submitted in its own place (PBS); nothing: it did not.
std::optional<JobRecord> Successor(const JobRecord& record, const Environment& env);

// By id or name; of several with a name the newest. Of any platform and namespace where none is given.
const JobRecord* FindRecord(const std::vector<JobRecord>& records, const std::string& which,
                            const std::string& platform, const std::string& name_space = "");
// The array that holds this job ("6_1" of SLURM, "6[1]" of LSF and PBS), as the record of that one job; nothing: none
// does.
std::optional<JobRecord> FindInArray(const std::vector<JobRecord>& records, const std::string& which,
                                     const std::string& platform);

}  // namespace lockstep::submit
