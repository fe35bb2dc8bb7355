// The platform's own client (sbatch, kubectl, bsub, qsub, ssh), asked to check, take, list and end jobs. Nothing here
// speaks to a cluster itself. A client that is not installed, or that refuses, is an error with its own words.
// Main thread: children are waited for.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "submit/job.h"
#include "submit/platforms.h"
#include "submit/records.h"

namespace lockstep::submit {

struct JobState {
  std::string name, platform, id;
  std::string owner;              // where a list holds the jobs of everybody
  std::string state = "unknown";  // pending, running, succeeded, failed, cancelled, ended, unknown
  std::string detail;             // the platform's own word, or why it is unknown
  std::string time, where;        // as the platform writes them
  int nodes = 0;
  std::optional<int> exit_code;
  bool ended() const { return state != "pending" && state != "running" && state != "unknown"; }
};

// The pods of a job, from `kubectl get pods`.
struct PodsState {
  bool started = false;  // all of them, and as many as the job has nodes
  std::string last_end;  // when a container of them ended last, as Kubernetes writes it; empty: none has
};

class Client {
 public:
  Client(const Platform& platform, Environment env) : platform_(platform), env_(std::move(env)) {}

  // The path of a program of the platform; the error says where it comes from.
  Result<std::string> Program(const std::string& name) const;
  Result<std::string> Program() const { return Program(std::string(platform_.client)); }

  // Words of the row with {id} and the like filled in, the program first.
  std::vector<std::string> Words(const std::vector<std::string_view>& row,
                                 const std::map<std::string, std::string>& values) const;

  // Which of several clusters the client speaks to now; empty: it knows one, or does not say.
  std::string Cluster() const;
  // The namespace of jobs that name none; empty: there are none, or the client does not say.
  std::string NameSpace() const;
  // What the platform itself says of the file; empty: it has no such check.
  Result<std::string> Check(const JobRecord& record, const std::string& text) const;
  // What bash says against a job file that is a script; empty: nothing, or there is no bash to ask.
  std::string SyntaxErrors(const std::string& text) const;
  // Submits; fills id and what else is known afterwards.
  Status Submit(const std::string& text, JobRecord* record) const;
  // The command lines that Submit runs, for people.
  std::vector<std::string> SubmitLines(const JobRecord& record) const;

  // The jobs of this user that the platform knows.
  Result<std::vector<JobState>> List(const std::string& cluster, const std::string& name_space) const;
  // One job, also an ended one where the platform remembers it.
  JobState Show(const JobRecord& record) const;
  // The file that a job writes its output to, where the platform says it; empty: not known.
  std::string OutputFile(const JobRecord& record) const;
  // A job that has ended, or that the platform does not know, is an error.
  Status Cancel(const JobRecord& record) const;
  // The pods of the job, so that their output can be followed.
  Result<PodsState> Pods(const JobRecord& record) const;
  // The command that shows the job's output, where no file holds it; empty: a file does. `since`: written from then on,
  // as Kubernetes writes a time; empty: all of it.
  std::vector<std::string> LogWords(const JobRecord& record, bool follow, std::optional<size_t> lines,
                                    const std::string& since = "") const;
  // Runs such a command in the place of this program's output; its exit code, 128 and more for a signal.
  Result<int> RunLogs(const std::vector<std::string>& words) const;

 private:
  struct Answer {
    int code = 0;
    std::string output, errors;
  };
  Result<Answer> Ask(const std::vector<std::string>& words, const std::string& input = "") const;
  Status Refused(const std::vector<std::string>& words, const Answer& answer) const;
  std::map<std::string, std::string> Values(const JobRecord& record) const;
  Status StartSsh(JobRecord* record) const;
  std::optional<JobState> Past(const JobRecord& record) const;
  std::optional<std::string> Here(const std::vector<std::string_view>& row) const;

  const Platform& platform_;
  Environment env_;
};

// The rows of a platform's list, from what its client printed. For tests without a cluster.
Result<std::vector<JobState>> ReadList(const Platform& platform, const std::string& text);
// The job `id` from what the client printed when it was asked for it; of an array, all its jobs as one. Nothing: the
// client did not name it.
std::optional<JobState> ReadOne(const Platform& platform, const std::string& id, const std::string& text);
// The same of what the platform's accounting printed (`past`).
std::optional<JobState> ReadPast(const Platform& platform, const std::string& id, const std::string& text);
Result<PodsState> ReadPods(const std::string& text, int nodes);
// The path behind StdOut= of `scontrol --oneliner show job`; empty where there is none, several (an array), or one that
// is not known before the job starts.
std::string SlurmOutput(const std::string& text);
// What a platform's word for a state means.
std::string StateOf(std::string_view platform, const std::string& word);

}  // namespace lockstep::submit
