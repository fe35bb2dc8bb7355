// What the clients print of jobs, as JobState.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/digits.h"
#include "base/json.h"
#include "base/text.h"
#include "submit/client.h"

namespace lockstep::submit {
namespace {

using Json = nlohmann::json;

const std::map<std::string, std::string>& StateWords(std::string_view platform) {
  // Any other word of SLURM is a failure: FAILED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY, PREEMPTED, DEADLINE and so on.
  static const std::map<std::string, std::string> slurm = {
      {"PENDING", "pending"},      {"CONFIGURING", "pending"}, {"REQUEUED", "pending"},   {"REQUEUE_FED", "pending"},
      {"REQUEUE_HOLD", "pending"}, {"SUSPENDED", "pending"},   {"STOPPED", "pending"},    {"RESV_DEL_HOLD", "pending"},
      {"RUNNING", "running"},      {"COMPLETING", "running"},  {"SIGNALING", "running"},  {"RESIZING", "running"},
      {"STAGE_OUT", "running"},    {"COMPLETED", "succeeded"}, {"CANCELLED", "cancelled"}};
  static const std::map<std::string, std::string> lsf = {
      {"PEND", "pending"},  {"PSUSP", "pending"},  {"WAIT", "pending"}, {"RUN", "running"},  {"USUSP", "running"},
      {"SSUSP", "running"}, {"DONE", "succeeded"}, {"EXIT", "failed"},  {"UNKWN", "unknown"}};
  static const std::map<std::string, std::string> pbs = {
      {"Q", "pending"}, {"H", "pending"}, {"W", "pending"}, {"T", "pending"}, {"S", "pending"}, {"R", "running"},
      {"E", "running"}, {"B", "running"}, {"F", "ended"},   {"X", "ended"},   {"C", "ended"}};
  return platform == "slurm" ? slurm : platform == "lsf" ? lsf : pbs;
}

// id|name|state|time|nodes|where
std::vector<JobState> ReadColumns(const Platform& platform, const std::string& text) {
  std::vector<JobState> jobs;
  for (const std::string& line : Split(text, '\n')) {
    std::vector<std::string> parts;
    for (const std::string& part : Split(line, '|')) parts.emplace_back(Trim(part));
    if (parts.size() < 6 || parts[0].empty()) continue;
    JobState job;
    job.platform = platform.name;
    job.id = parts[0];
    job.name = parts[1];
    job.detail = parts[2];
    job.state = StateOf(platform.name, parts[2]);
    job.time = parts[3];
    job.nodes = ParseDigits(parts[4]).value_or(0);
    job.where = parts[5];
    jobs.push_back(std::move(job));
  }
  return jobs;
}

const Json& At(const Json& object, const char* key) {
  static const Json nothing = Json::object();
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nothing : *found;
}

bool Holds(const Json& status, const std::string& type) {
  for (const Json& one : At(status, "conditions")) {
    if (one.is_object() && GetString(one, "type") == type && GetString(one, "status") == "True") return true;
  }
  return false;
}

// A Job, PyTorchJob, TrainJob or Volcano Job: each says it in its own way.
JobState ReadObject(const Platform& platform, const Json& item) {
  JobState job;
  job.platform = platform.name;
  const Json& meta = At(item, "metadata");
  const Json& spec = At(item, "spec");
  const Json& status = At(item, "status");
  job.name = job.id = GetString(meta, "name");
  job.where = GetString(meta, "namespace");
  job.time = GetString(status, "startTime");
  const std::string phase = GetString(At(status, "state"), "phase");
  job.detail = phase;
  if (phase == "Completed" || Holds(status, "Complete") || Holds(status, "Succeeded")) {
    job.state = "succeeded";
  } else if (phase == "Aborted" || phase == "Terminated") {
    // Volcano aborts a job whose pods failed, too.
    job.state = GetInt(status, "failed") > 0 ? "failed" : "cancelled";
  } else if (phase == "Failed" || Holds(status, "Failed")) {
    job.state = "failed";
    for (const Json& one : At(status, "conditions")) {
      if (one.is_object() && GetString(one, "type") == "Failed") job.detail = GetString(one, "reason");
    }
  } else if (phase == "Running" || Holds(status, "Running") || GetInt(status, "active") > 0) {
    job.state = "running";
  } else {
    job.state = "pending";
    for (const Json& child : At(status, "jobsStatus")) {
      if (child.is_object() && GetInt(child, "active") > 0) job.state = "running";
    }
  }
  int nodes = static_cast<int>(GetInt(spec, "parallelism", GetInt(At(spec, "trainer"), "numNodes")));
  for (const auto& [name, replicas] : At(spec, "pytorchReplicaSpecs").items()) {
    if (replicas.is_object()) nodes += static_cast<int>(GetInt(replicas, "replicas", 1));
  }
  for (const Json& task : At(spec, "tasks")) {
    if (task.is_object()) nodes += static_cast<int>(GetInt(task, "replicas"));
  }
  job.nodes = nodes;
  return job;
}

Result<std::vector<JobState>> ReadPbs(const Platform& platform, const std::string& text) {
  Result<Json> read = ParseJson(text, "qstat");
  if (!read.ok()) return read.status().WithCode(Code::kEnvironment);
  std::vector<JobState> jobs;
  for (const auto& [id, one] : At(*read, "Jobs").items()) {
    if (!one.is_object()) continue;
    JobState job;
    job.platform = platform.name;
    job.id = id;
    job.name = GetString(one, "Job_Name");
    const std::string owner = GetString(one, "Job_Owner");  // me@login1
    job.owner = owner.substr(0, owner.find('@'));
    job.detail = GetString(one, "job_state");
    job.state = StateOf(platform.name, job.detail);
    job.time = GetString(At(one, "resources_used"), "walltime");
    job.nodes = static_cast<int>(GetInt(At(one, "Resource_List"), "nodect"));
    job.where = GetString(one, "exec_host");
    if (job.state == "ended") {
      const auto code = one.find("Exit_status");
      if (code != one.end() && code->is_number_integer()) {
        job.exit_code = code->get<int>();
        job.state = *job.exit_code == 0                           ? "succeeded"
                    : *job.exit_code < 0 || *job.exit_code >= 256 ? "cancelled"
                                                                  : "failed";
      }
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

}  // namespace

std::string StateOf(std::string_view platform, const std::string& word) {
  const auto& words = StateWords(platform);
  const auto known = words.find(word);
  return known == words.end() ? (platform == "slurm" ? "failed" : "unknown") : known->second;
}

Result<bool> AllStarted(const std::string& text, int nodes) {
  Result<Json> read = ParseJson(text, "kubectl");
  if (!read.ok()) return read.status().WithCode(Code::kEnvironment);
  int started = 0;
  for (const Json& pod : At(*read, "items")) {
    const std::string phase = pod.is_object() ? GetString(At(pod, "status"), "phase") : "";
    if (phase.empty() || phase == "Pending") return false;
    ++started;
  }
  return started >= std::max(1, nodes);
}

std::string SlurmOutput(const std::string& text) {
  constexpr std::string_view kMark = " StdOut=";
  const size_t begin = text.find(kMark);
  if (begin == std::string::npos || text.find(kMark, begin + 1) != std::string::npos) return "";
  std::string path = text.substr(begin + kMark.size());
  path.erase(std::min(path.find('\n'), path.size()));
  // A path may hold blanks: it ends before the next "Name=".
  for (size_t blank = path.find(' '); blank != std::string::npos; blank = path.find(' ', blank + 1)) {
    const std::string next = path.substr(blank + 1, path.find('=', blank) - blank - 1);
    if (!next.empty() && next.find_first_of(" /") != std::string::npos) continue;
    path.erase(blank);
    break;
  }
  return path.find('%') == std::string::npos ? path : "";
}

std::optional<int> SlurmExitCode(const std::string& state, const std::string& text) {
  const std::optional<int> code = LeadingDigits(text);
  return state == "succeeded" || (state == "failed" && code != 0) ? code : std::nullopt;
}

std::optional<JobState> ReadAccounting(const Platform& platform, const std::string& text) {
  // Of an array: what is not over yet comes first, then what went wrong.
  static const std::vector<std::string> order = {"running", "pending", "failed", "cancelled", "succeeded"};
  const auto rank = [](const JobState& job) {
    return std::find(order.begin(), order.end(), job.state) - order.begin();
  };
  std::optional<JobState> found;
  size_t rows = 0, alike = 0;
  for (const std::string& line : Split(text, '\n')) {
    const std::vector<std::string> parts = Split(line, '|');
    JobState job;
    job.platform = platform.name;
    job.id = parts[0].substr(0, parts[0].find('_'));
    if (parts.size() != 7 || job.id.empty() || parts[2].empty()) continue;
    job.name = parts[1];
    job.detail = parts[2];  // "CANCELLED by 1000"
    job.state = StateOf(platform.name, parts[2].substr(0, parts[2].find(' ')));
    job.time = parts[3];
    job.nodes = ParseDigits(parts[4]).value_or(0);
    if (parts[5] != "None assigned") job.where = parts[5];
    job.exit_code = SlurmExitCode(job.state, parts[6]);
    ++rows;
    if (!found || rank(job) < rank(*found)) {
      found = std::move(job);
      alike = 0;
    }
    alike += StateOf(platform.name, parts[2].substr(0, parts[2].find(' '))) == found->state;
  }
  if (rows > 1) found->detail = fmt::format("{} ({} of {} tasks)", found->detail, alike, rows);
  return found;
}

Result<std::vector<JobState>> ReadList(const Platform& platform, const std::string& text) {
  if (platform.name == "pbs") return ReadPbs(platform, text);
  if (platform.kind.empty()) return ReadColumns(platform, text);
  Result<Json> read = ParseJson(text, "kubectl");
  if (!read.ok()) return read.status().WithCode(Code::kEnvironment);
  std::vector<JobState> jobs;
  for (const Json& item : At(*read, "items")) {
    if (item.is_object()) jobs.push_back(ReadObject(platform, item));
  }
  return jobs;
}

}  // namespace lockstep::submit
