#include "submit/records.h"

#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/checksum.h"
#include "base/digits.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"

namespace lockstep::submit {
namespace {

constexpr int kRecordFormat = 1;

constexpr size_t kLongestPart = 80;

// An id as part of a file's name: "123[1].server" -> "123-1-.server". Of two long ones that begin alike (the context of
// a cluster in a cloud), each has a name of its own.
std::string FilePart(const std::string& text) {
  std::string part;
  for (const char c : text.substr(0, kLongestPart)) {
    part.push_back(std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' ? c : '-');
  }
  return text.size() <= kLongestPart ? part : fmt::format("{}-{:016x}", part, Checksum64(text.data(), text.size()));
}

bool IsGone(const std::string& path) {
  return access(path.c_str(), F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

// Why a file holds no record of a job, and what to do; empty: it holds one.
std::string NoRecord(const std::string& path, const Result<nlohmann::json>& read) {
  if (!read.ok() && read.status().code() == Code::kEnvironment) return read.status().message();  // it cannot be read
  const int64_t format = read.ok() && read->is_object() ? GetInt(*read, "format") : 0;
  if (format > kRecordFormat) {
    return fmt::format("{}: expected format {}, found {}: a later version of lockstep submitted this job; use that one",
                       path, kRecordFormat, format);
  }
  const bool whole = format == kRecordFormat && !GetString(*read, "name").empty() &&
                     !GetString(*read, "platform").empty() && !GetString(*read, "id").empty();
  if (whole) return "";
  return fmt::format(
      "{}: the record of a job is damaged: look for the job with the platform's own commands, and "
      "remove this file",
      path);
}

// A job of PBS that was submitted anew has another id, which its script leaves beside its file.
void TakeNewId(JobRecord* record) {
  if (record->platform != "pbs" || record->file.empty()) return;
  const Result<std::string> read = ReadFile(record->file + ".id", 1024);
  const std::string id(read.ok() ? Trim(*read) : "");
  if (id.empty()) return;
  const std::string before = ".o" + record->id.substr(0, record->id.find('.'));
  if (record->output.ends_with(before)) {
    record->output.replace(record->output.size() - before.size(), before.size(), ".o" + id.substr(0, id.find('.')));
  }
  record->id = id;
}

}  // namespace

Result<std::string> RecordsRoot(const Environment& env) {
  const std::string state = ValueOf(env, "XDG_STATE_HOME"), home = ValueOf(env, "HOME");
  if (state.starts_with('/')) return state + "/lockstep/jobs";
  if (home.starts_with('/')) return home + "/.local/state/lockstep/jobs";
  return Status(Code::kEnvironment, "HOME is not set, and the record of the job is kept below it", "set HOME");
}

Status WriteRecord(const std::string& root, const JobRecord& record) {
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(root, 0700));
  const nlohmann::json document = {{"format", kRecordFormat},         {"name", record.name},
                                   {"platform", record.platform},     {"id", record.id},
                                   {"cluster", record.cluster},       {"namespace", record.name_space},
                                   {"folder", record.folder},         {"file", record.file},
                                   {"output", record.output},         {"submitted", record.submitted},
                                   {"nodes", record.nodes},           {"pid", record.pid},
                                   {"start_time", record.start_time}, {"boot", record.boot}};
  // Another cluster and another namespace may have the same id; of Kubernetes it is the name.
  std::string id;
  for (const std::string& part : {record.cluster, record.name_space}) id += part.empty() ? "" : part + ".";
  id += record.id;
  const std::string path = fmt::format("{}/{}-{}-{}.json", root, record.name, record.platform, FilePart(id));
  return WriteFileAtomic(path, document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", 0600);
}

std::vector<JobRecord> ReadRecords(const std::string& root, std::vector<std::string>* unreadable) {
  std::vector<JobRecord> records;
  const auto pass_over = [&](std::string why) {
    if (unreadable != nullptr) unreadable->push_back(std::move(why));
  };
  Result<std::vector<std::string>> names = ListDir(root);
  if (!names.ok()) {
    if (!IsGone(root)) pass_over(names.status().message());
    return records;
  }
  for (const std::string& name : *names) {
    if (!name.ends_with(".json")) continue;
    const std::string path = root + "/" + name;
    Result<nlohmann::json> read = ReadJsonFile(path, 1u << 20);
    if (std::string why = NoRecord(path, read); !why.empty()) {
      if (!IsGone(path)) pass_over(std::move(why));
      continue;
    }
    JobRecord record;
    record.name = GetString(*read, "name");
    record.platform = GetString(*read, "platform");
    record.id = GetString(*read, "id");
    record.cluster = GetString(*read, "cluster");
    record.name_space = GetString(*read, "namespace");
    record.folder = GetString(*read, "folder");
    record.file = GetString(*read, "file");
    record.output = GetString(*read, "output");
    record.submitted = GetNumber(*read, "submitted");
    record.nodes = static_cast<int>(GetInt(*read, "nodes"));
    record.pid = static_cast<pid_t>(GetInt(*read, "pid"));
    record.start_time = static_cast<uint64_t>(GetInt(*read, "start_time"));
    record.boot = GetString(*read, "boot");
    TakeNewId(&record);
    records.push_back(std::move(record));
  }
  std::sort(records.begin(), records.end(),
            [](const JobRecord& a, const JobRecord& b) { return a.submitted > b.submitted; });
  return records;
}

std::string JobNumber(const std::string& id) { return id.substr(0, id.find_first_of("_[.")); }

std::optional<JobRecord> Successor(const JobRecord& record, const Environment& env) {
  const Result<std::string> root = RecordsRoot(env);
  if (!root.ok() || record.file.empty()) return std::nullopt;
  for (JobRecord& one : ReadRecords(*root)) {
    if (one.file == record.file && JobNumber(one.id) != JobNumber(record.id)) return std::move(one);
  }
  return std::nullopt;
}

const JobRecord* FindRecord(const std::vector<JobRecord>& records, const std::string& which,
                            const std::string& platform, const std::string& name_space) {
  for (const bool by_id : {true, false}) {
    for (const JobRecord& record : records) {
      if (!platform.empty() && record.platform != platform) continue;
      if (!name_space.empty() && record.name_space != name_space) continue;
      if ((by_id ? record.id : record.name) == which) return &record;
      // "4712" of PBS is "4712.server".
      if (by_id && record.platform == "pbs" && IsDigits(which) && record.id.starts_with(which + ".")) return &record;
    }
  }
  return nullptr;
}

std::optional<JobRecord> FindInArray(const std::vector<JobRecord>& records, const std::string& which,
                                     const std::string& platform) {
  struct Form {
    std::string_view platform;
    char mark;             // before the index
    std::string_view all;  // behind the number of the whole array
  };
  for (const Form& form : {Form{"slurm", '_', ""}, Form{"lsf", '[', ""}, Form{"pbs", '[', "[]"}}) {
    const size_t mark = which.find(form.mark);
    if (mark == std::string::npos || (!platform.empty() && platform != form.platform)) continue;
    const std::string array = which.substr(0, mark) + std::string(form.all);
    for (const JobRecord& record : records) {
      // Of PBS: "6[]" is "6[].server", and "6[1]" one job of it.
      const bool same = record.id == array || (!form.all.empty() && record.id.starts_with(array + "."));
      if (record.platform != form.platform || !same) continue;
      JobRecord one = record;
      const std::string server = record.id.substr(array.size());
      one.id = which.ends_with(server) ? which : which + server;
      one.output.clear();  // each has its own
      return one;
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::submit
