// `lockstep jobs`: submitted jobs with their states, as the platforms' clients tell them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/columns.h"
#include "base/exit_codes.h"
#include "base/own_program.h"
#include "base/text.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "submit/client.h"

namespace lockstep::cli {
namespace {

using submit::JobRecord;
using submit::JobState;

constexpr size_t kMostEnded = 20;  // ended jobs that are asked for one by one

using JobKey = std::array<std::string, 3>;  // cluster, namespace, id

void PrintJobs(const std::vector<JobState>& jobs) {
  using JobRow = std::array<std::string, 7>;
  std::vector<JobRow> rows = {{"NAME", "PLATFORM", "ID", "STATE", "NODES", "TIME", "DETAIL"}};
  for (const JobState& job : jobs) {
    rows.push_back({OneLine(job.name, 60), job.platform, OneLine(job.id, 40),
                    job.exit_code && job.state == "failed" ? fmt::format("failed ({})", *job.exit_code) : job.state,
                    job.nodes > 0 ? std::to_string(job.nodes) : "-", job.time.empty() ? "-" : OneLine(job.time, 30),
                    OneLine(job.where.empty() ? job.detail : job.where, 120)});
  }
  std::array<size_t, 7> widths{};
  for (const JobRow& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], TextWidth(row[i]));
  }
  for (const JobRow& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += PadToWidth(row[i], widths[i]) + "  ";
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
}

}  // namespace

int JobsMain(int argc, char** argv) {
  Arguments args("Lists jobs: those submitted from this account, and those of this user that the clients know.",
                 "jobs");
  std::string only, name_space;
  bool json = false;
  args.Option("--platform", &only, "only this platform").Named("NAME");
  args.Option("--namespace", &name_space, "namespace of Kubernetes").Named("NAME");
  args.Flag("--json", &json, "one JSON document instead of a table");
  args.Footer(
      "States: pending, running, succeeded, failed (with its exit code), cancelled, ended, unknown. Ended jobs are\n"
      "shown as long as the platform remembers them.\n\n"
      "examples:\n"
      "  lockstep jobs\n"
      "  lockstep jobs --json | jq '.jobs[] | select(.state == \"running\") | .name'");
  if (std::optional<int> code = ParseCommand(args, argc, argv)) return *code;
  const Environment env = CurrentEnvironment();
  if (!only.empty()) {
    if (Result<const submit::Platform*> row = submit::FindPlatform(only); !row.ok()) {
      return Complain("jobs", row.status());
    }
  }
  Result<std::string> root = submit::RecordsRoot(env);
  if (!root.ok()) return Complain("jobs", root.status());
  std::vector<std::string> warnings;
  const std::vector<JobRecord> records = submit::ReadRecords(*root, &warnings);
  std::vector<JobState> jobs;
  for (const submit::Platform& platform : submit::Platforms()) {
    if (!only.empty() && platform.name != only) continue;
    const submit::Client client(platform, env);
    std::vector<const JobRecord*> recorded;
    for (const JobRecord& record : records) {
      if (record.platform == platform.name) recorded.push_back(&record);
    }
    // Kinds of Kubernetes beside the plain Job need an operator: they are asked for when they were used.
    const bool ask = !platform.list.empty() && (platform.kind.empty() || !recorded.empty() || platform.name == only);
    std::map<JobKey, JobState> known;  // by where it was asked for, and id
    std::set<JobKey> shown;            // the default namespace may be asked for by its name, too
    bool answered = false;
    std::string here;
    if (ask && client.Program().ok()) {
      here = client.Cluster();
      std::set<std::pair<std::string, std::string>> places = {{here, name_space}};  // clusters and their namespaces
      for (const JobRecord* record : recorded) {
        if (name_space.empty()) places.insert({record->cluster.empty() ? here : record->cluster, record->name_space});
      }
      for (const auto& [cluster, space] : places) {
        Result<std::vector<JobState>> listed = client.List(cluster, space);
        if (!listed.ok()) {
          warnings.push_back(fmt::format("{}: {}", platform.name, listed.status().message()));
          continue;
        }
        answered = true;
        for (JobState& job : *listed) {
          const JobKey key = {cluster, space, job.id};
          known.emplace(key, std::move(job));
        }
      }
    } else if (!recorded.empty() && !platform.client.empty() && !client.Program().ok()) {
      warnings.push_back(client.Program().status().message());
    } else if (platform.name == only && !client.Program().ok()) {
      return Complain("jobs", client.Program().status());
    }
    size_t asked = 0;
    for (const JobRecord* record : recorded) {
      JobState state;
      const std::string cluster = record->cluster.empty() ? here : record->cluster;
      if (const auto live = known.find({cluster, record->name_space, record->id}); live != known.end()) {
        state = live->second;
        state.name = record->name;
        known.erase(live);
        shown.insert({cluster, state.where, state.id});
      } else if (platform.name == "ssh" || (answered && asked++ < kMostEnded)) {
        state = client.Show(*record);
      } else {
        state.name = record->name;
        state.platform = record->platform;
        state.id = record->id;
        state.nodes = record->nodes;
      }
      jobs.push_back(std::move(state));
    }
    for (auto& [key, job] : known) {
      const bool is_new = shown.insert({key[0], job.where, job.id}).second;
      if (platform.kind.empty() || is_new) jobs.push_back(std::move(job));
    }
  }
  for (const std::string& warning : warnings) fmt::print(stderr, "lockstep jobs: warning: {}\n", warning);
  if (json) {
    nlohmann::json document = {{"jobs", nlohmann::json::array()}, {"warnings", warnings}};
    for (const JobState& job : jobs) {
      document["jobs"].push_back({{"name", job.name},
                                  {"platform", job.platform},
                                  {"id", job.id},
                                  {"state", job.state},
                                  {"detail", job.detail},
                                  {"nodes", job.nodes > 0 ? nlohmann::json(job.nodes) : nlohmann::json()},
                                  {"time", job.time},
                                  {"where", job.where},
                                  {"exit_code", job.exit_code ? nlohmann::json(*job.exit_code) : nlohmann::json()}});
    }
    fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (jobs.empty()) {
    fmt::print(stderr, "no jobs{}\n", warnings.empty() ? ": none was submitted from this account" : " to show");
  } else {
    PrintJobs(jobs);
  }
  return std::fflush(stdout) == 0 ? 0 : kExitEnvironment;
}

}  // namespace lockstep::cli
