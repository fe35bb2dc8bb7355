// What the clients print of jobs, as JobState.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/digits.h"
#include "base/json.h"
#include "base/text.h"
#include "submit/client.h"

namespace lockstep::submit {
namespace {

using Json = nlohmann::json;

const Json kNoObject = Json::object();

const std::map<std::string, std::string>& StateWords(std::string_view platform) {
  static const std::map<std::string, std::string> slurm = {
      {"PENDING", "pending"},      {"CONFIGURING", "pending"},   {"REQUEUED", "pending"},
      {"REQUEUE_FED", "pending"},  {"REQUEUE_HOLD", "pending"},  {"SUSPENDED", "pending"},
      {"STOPPED", "pending"},      {"RESV_DEL_HOLD", "pending"}, {"SPECIAL_EXIT", "pending"},
      {"EXPEDITING", "pending"},   {"POWER_UP_NODE", "pending"}, {"RUNNING", "running"},
      {"COMPLETING", "running"},   {"SIGNALING", "running"},     {"RESIZING", "running"},
      {"STAGE_OUT", "running"},    {"UPDATE_DB", "running"},     {"COMPLETED", "succeeded"},
      {"CANCELLED", "cancelled"},  {"REVOKED", "cancelled"},     {"FAILED", "failed"},
      {"TIMEOUT", "failed"},       {"NODE_FAIL", "failed"},      {"PREEMPTED", "failed"},
      {"OUT_OF_MEMORY", "failed"}, {"BOOT_FAIL", "failed"},      {"DEADLINE", "failed"},
      {"LAUNCH_FAILED", "failed"}, {"RECONFIG_FAIL", "failed"}};
  static const std::map<std::string, std::string> lsf = {
      {"PEND", "pending"}, {"PSUSP", "pending"}, {"WAIT", "pending"},  {"PROV", "pending"},
      {"RUN", "running"},  {"USUSP", "running"}, {"SSUSP", "running"}, {"DONE", "succeeded"},
      {"EXIT", "failed"},  {"UNKWN", "unknown"}, {"ZOMBI", "failed"}};
  static const std::map<std::string, std::string> pbs = {
      {"Q", "pending"}, {"H", "pending"}, {"W", "pending"}, {"T", "pending"}, {"S", "pending"},
      {"U", "pending"}, {"M", "pending"}, {"R", "running"}, {"E", "running"}, {"B", "running"},
      {"F", "ended"},   {"X", "ended"},   {"C", "ended"}};
  return platform == "slurm" ? slurm : platform == "lsf" ? lsf : pbs;
}

// Of SLURM's "1:0", code and signal. A job that was ended by a signal or a time limit has none, though it says 0.
std::optional<int> ExitCodeOf(const JobState& job, const std::string& text) {
  const std::optional<int> code = LeadingDigits(text);
  return job.state == "succeeded" || (job.state == "failed" && code != 0) ? code : std::nullopt;
}

// id|name|state|time|nodes|where, and where the client tells them, exit code and why it was ended.
std::vector<JobState> ReadColumns(const Platform& platform, const std::string& text) {
  std::vector<JobState> jobs;
  for (const std::string& line : Split(text, '\n')) {
    std::vector<std::string> parts;
    for (const std::string& part : Split(line, '|')) parts.emplace_back(Trim(part));
    if (parts.size() < 6 || parts[0].empty() || parts[2].empty()) continue;
    parts.resize(std::max<size_t>(parts.size(), 8));
    for (std::string& part : parts) {
      if (part == "-" || part == "None assigned") part.clear();
    }
    JobState job;
    job.platform = platform.name;
    job.id = parts[0];
    job.name = parts[1];
    job.detail = parts[7].empty() ? parts[2] : parts[7];
    job.state = StateOf(platform.name, parts[2].substr(0, parts[2].find(' ')));  // "CANCELLED by 1000"
    // LSF has one word for a failure and for bkill.
    for (const char* killed : {"TERM_OWNER", "TERM_FORCE_OWNER", "TERM_ADMIN", "TERM_FORCE_ADMIN"}) {
      if (job.state == "failed" && parts[7].starts_with(killed)) job.state = "cancelled";
    }
    job.time = parts[3];
    job.nodes = ParseDigits(parts[4]).value_or(0);
    job.where = parts[5];
    job.exit_code = ExitCodeOf(job, parts[6]);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

// One state for the jobs of an array: what is not over yet comes first, then what went wrong.
JobState OfArray(const std::vector<JobState>& jobs) {
  static const std::vector<std::string> order = {"running", "pending", "failed", "cancelled", "succeeded"};
  const auto rank = [](const JobState& job) {
    return std::find(order.begin(), order.end(), job.state) - order.begin();
  };
  JobState found = *std::min_element(jobs.begin(), jobs.end(),
                                     [&](const JobState& a, const JobState& b) { return rank(a) < rank(b); });
  const auto alike =
      std::count_if(jobs.begin(), jobs.end(), [&](const JobState& job) { return job.state == found.state; });
  if (jobs.size() > 1) found.detail = fmt::format("{} ({} of {} tasks)", found.detail, alike, jobs.size());
  return found;
}

// What stands behind "key=" in a line of scontrol.
std::string Field(const std::string& line, const std::string& key) {
  const size_t begin = line.find(key + "=");
  if (begin == std::string::npos) return "";
  const size_t from = begin + key.size() + 1;
  return line.substr(from, line.find_first_of(" \n", from) - from);
}

const Json& At(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? kNoObject : *found;
}

bool Holds(const Json& status, const std::string& type) {
  for (const Json& one : At(status, "conditions")) {
    if (one.is_object() && GetString(one, "type") == type && GetString(one, "status") == "True") return true;
  }
  return false;
}

// A Job, PyTorchJob, TrainJob or Volcano Job: each says it in its own way.
JobState ReadObject(const Platform& platform, const Json& item) {
  static const std::set<std::string> at_work = {"Running", "Completing", "Aborting", "Terminating"};
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
  } else if (at_work.count(phase) > 0 || Holds(status, "Running") || GetInt(status, "active") > 0 ||
             GetInt(status, "terminating") > 0) {
    job.state = "running";
  } else {
    job.state = "pending";
    for (const Json& one : At(status, "conditions")) {  // Suspended, Restarting
      if (one.is_object() && GetString(one, "status") == "True") job.detail = GetString(one, "type");
    }
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

// The lines of `qstat -f`: "Job Id: 1.server", then "    key = value" where a long value goes on behind a tab. Its JSON
// is not read: with the variables of some job, of anybody's, many versions write what is none.
std::vector<JobState> ReadPbs(const Platform& platform, const std::string& text) {
  constexpr std::string_view kJob = "Job Id: ", kKey = "    ", kEquals = " = ";
  std::vector<std::pair<std::string, std::map<std::string, std::string>>> found;
  std::string* value = nullptr;
  for (const std::string& line : Split(text, '\n')) {
    const size_t equals = line.find(kEquals);
    if (line.starts_with(kJob)) {
      found.emplace_back(Trim(std::string_view(line).substr(kJob.size())), std::map<std::string, std::string>());
      value = nullptr;
    } else if (line.starts_with('\t') && value != nullptr) {
      *value += line.substr(1);
    } else if (!found.empty() && line.starts_with(kKey) && equals != std::string::npos) {
      // The first counts: a variable of several lines, which comes late, may hold anything.
      const auto [entry, is_new] = found.back().second.emplace(line.substr(kKey.size(), equals - kKey.size()),
                                                               line.substr(equals + kEquals.size()));
      value = is_new ? &entry->second : nullptr;
    }
  }
  std::vector<JobState> jobs;
  for (auto& [id, fields] : found) {
    JobState job;
    job.platform = platform.name;
    job.id = id;
    job.name = fields["Job_Name"];
    const std::string& owner = fields["Job_Owner"];  // me@login1
    job.owner = owner.substr(0, owner.find('@'));
    job.detail = fields["job_state"];
    job.state = StateOf(platform.name, job.detail);
    job.time = fields["resources_used.walltime"];
    job.nodes = ParseDigits(fields["Resource_List.nodect"]).value_or(0);
    job.where = fields["exec_host"];
    if (job.state == "ended") {
      job.exit_code = ParseInteger(fields["Exit_status"]);
      if (job.exit_code) job.state = *job.exit_code == 0 ? "succeeded" : "failed";
      // qdel: also a job that then ends by itself with a code of its own, or that never ran.
      if (fields["substate"] == "91") job.state = "cancelled";
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

}  // namespace

std::string StateOf(std::string_view platform, const std::string& word) {
  const auto& words = StateWords(platform);
  const auto known = words.find(word);
  return known == words.end() ? "unknown" : known->second;
}

Result<PodsState> ReadPods(const std::string& text, int nodes) {
  Result<Json> read = ParseJson(text, "kubectl");
  if (!read.ok()) return read.status().WithCode(Code::kEnvironment);
  PodsState pods;
  int started = 0;
  bool waiting = false;
  for (const Json& pod : At(*read, "items")) {
    const Json& status = pod.is_object() ? At(pod, "status") : kNoObject;
    const std::string phase = GetString(status, "phase");
    waiting = waiting || phase.empty() || phase == "Pending";
    ++started;
    for (const Json& container : At(status, "containerStatuses")) {
      if (!container.is_object()) continue;
      for (const char* state : {"state", "lastState"}) {
        pods.last_end = std::max(pods.last_end, GetString(At(At(container, state), "terminated"), "finishedAt"));
      }
    }
  }
  pods.started = !waiting && started >= std::max(1, nodes);
  return pods;
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

Result<std::vector<JobState>> ReadList(const Platform& platform, const std::string& text) {
  if (platform.name == "pbs") return ReadPbs(platform, text);
  if (platform.kind.empty()) {
    // The jobs of an array of LSF share an id; those of SLURM have one each.
    std::map<std::string, std::vector<JobState>> by_id;
    std::vector<std::string> order;
    for (JobState& job : ReadColumns(platform, text)) {
      std::vector<JobState>& same = by_id[job.id];
      if (same.empty()) order.push_back(job.id);
      same.push_back(std::move(job));
    }
    std::vector<JobState> jobs;
    for (const std::string& id : order) jobs.push_back(OfArray(by_id[id]));
    return jobs;
  }
  Result<Json> read = ParseJson(text, "kubectl");
  if (!read.ok()) return read.status().WithCode(Code::kEnvironment);
  std::vector<JobState> jobs;
  for (const Json& item : At(*read, "items")) {
    if (item.is_object()) jobs.push_back(ReadObject(platform, item));
  }
  return jobs;
}

std::optional<JobState> ReadPast(const Platform& platform, const std::string& id, const std::string& text) {
  std::vector<JobState> jobs;
  if (platform.name == "pbs") {
    jobs = ReadPbs(platform, text);
  } else {
    jobs = ReadColumns(platform, text);
  }
  std::erase_if(jobs, [&](const JobState& job) { return JobNumber(job.id) != JobNumber(id); });
  if (jobs.empty()) return std::nullopt;
  JobState found = OfArray(jobs);
  found.id = id;
  return found;
}

std::optional<JobState> ReadOne(const Platform& platform, const std::string& id, const std::string& text) {
  if (platform.name != "slurm") return ReadPast(platform, id, text);
  // One line for each job of an array; the ones that wait share a line.
  std::string rows;
  for (const std::string& line : Split(text, '\n')) {
    if (Field(line, "JobState").empty()) continue;
    rows +=
        fmt::format("{}||{}|{}|||{}\n", id, Field(line, "JobState"), Field(line, "RunTime"), Field(line, "ExitCode"));
  }
  return ReadPast(platform, id, rows);
}

}  // namespace lockstep::submit
