#include "submit/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/digits.h"
#include "base/text.h"
#include "base/units.h"

namespace lockstep::submit {
namespace {

using Json = nlohmann::json;

// The launcher's own end, after the ranks have had their time.
constexpr int64_t kMargin = 15;

int64_t Seconds(std::chrono::milliseconds time) { return (time.count() + 999) / 1000; }

std::string Hours(int64_t seconds) {
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string SlurmTime(int64_t seconds) {
  const int64_t days = seconds / 86400;
  return days > 0 ? fmt::format("{}-{:02}:{:02}:{:02}", days, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
                  : Hours(seconds);
}

Json Words(const std::vector<std::string>& words) { return Json(words); }

// Text or null, so that sections can ask for it.
Json Given(const std::string& text) { return text.empty() ? Json() : Json(text); }

int RanksOf(const Job& job) { return job.ranks.value_or(job.gpus.value_or(1)); }

std::vector<std::string> LauncherFlags(const Job& job) {
  std::vector<std::string> flags = {fmt::format("--nproc-per-node={}", RanksOf(job)),
                                    fmt::format("--grace={}", ExactDuration(job.grace))};
  if (job.failures > 0) flags.push_back(fmt::format("--max-restarts={}", job.failures));
  // Of a name that both have, pyxis gives a container the value of its image.
  if (job.container == "pyxis" && !job.image.empty()) {
    for (const auto& [name, value] : job.env) flags.push_back(fmt::format("--env={}={}", name, value));
  }
  flags.insert(flags.end(), job.flags.begin(), job.flags.end());
  return flags;
}

Json MountValues(const Job& job) {
  Json list = Json::array();
  for (size_t i = 0; i < job.mounts.size(); ++i) {
    const Mount& mount = job.mounts[i];
    const bool claim = mount.from.starts_with("pvc/");
    list.push_back({{"volume", fmt::format("mount-{}", i)},
                    {"from", mount.from},
                    {"to", mount.to},
                    {"read_only", mount.read_only},
                    {"claim", claim ? Json(mount.from.substr(4)) : Json()},
                    {"path", claim ? Json() : Json(mount.from)},
                    {"bind", fmt::format("{}:{}{}", mount.from, mount.to, mount.read_only ? ":ro" : "")}});
  }
  return list;
}

// "0-9%2": the indices, and how many at a time.
std::pair<std::string, Json> ArrayParts(const std::string& array) {
  const size_t at_once = array.find('%');
  if (at_once == std::string::npos) return {array, Json()};
  return {array.substr(0, at_once), Json(array.substr(at_once + 1))};
}

// Pods go to different nodes, unless the job says itself where they go.
bool Spreads(const Job& job) {
  return job.nodes > 1 && std::none_of(job.native.begin(), job.native.end(),
                                       [](const std::string& line) { return line.starts_with("affinity:"); });
}

Json SecretValues(const Job& job) {
  Json list = Json::array();
  for (const auto& [name, reference] : job.secrets) {
    const bool file = reference.starts_with('/');
    const size_t slash = reference.find('/');
    list.push_back({{"variable", name},
                    {"file", file ? Json(reference) : Json()},
                    {"secret", file ? Json() : Json(reference.substr(0, slash))},
                    {"key", file || slash == std::string::npos ? Json() : Json(reference.substr(slash + 1))}});
  }
  return list;
}

// An image of a registry, by its tag, its digest or its host: registry/train:1, nvcr.io/team/train. All else is a file.
bool IsOfRegistry(const std::string& image) {
  if (image.starts_with('/') || image.starts_with('.') || image.ends_with(".sif")) return false;
  for (const char* scheme : {"docker-archive:", "docker-daemon:", "oci-archive:", "oci:"}) {
    if (image.starts_with(scheme)) return false;
  }
  if (image.find("://") != std::string::npos) return false;
  const size_t slash = image.find('/');
  return image.find_first_of(":@") != std::string::npos || (slash != std::string::npos && image.find('.') < slash);
}

}  // namespace

bool IsMounted(const Job& job, const std::string& folder) {
  return std::any_of(job.mounts.begin(), job.mounts.end(), [&](const Mount& mount) {
    const std::string inside = mount.to.ends_with('/') ? mount.to : mount.to + "/";
    return !mount.read_only && (folder + "/").starts_with(inside);
  });
}

Job Complete(Job job, const Platform& platform, const Surroundings& here) {
  if (job.name.empty()) job.name = DefaultName(job);
  job.platform = platform.name;
  if (job.lockstep.empty()) {
    job.lockstep = CommandOf(job).lockstep;
    const bool inside = !job.image.empty() || !platform.shared_folder || platform.name == "kubebrain";
    if (job.lockstep.empty()) job.lockstep = inside ? "lockstep" : here.lockstep;
  }
  // A container has folders of its own: this one only where it is mounted.
  if (job.workdir.empty() && platform.shared_folder && (job.image.empty() || IsMounted(job, here.folder))) {
    job.workdir = here.folder;
  }
  if (platform.name == "slurm" && job.partition.empty()) job.partition = job.queue;
  if (platform.name == "ssh" && !job.nodes_given && !job.hosts.empty()) job.nodes = static_cast<int>(job.hosts.size());
  if (!job.image.empty() && job.container.empty() && platform.shared_folder) {
    job.container = platform.name == "slurm" ? "pyxis" : "apptainer";
  }
  // apptainer takes a name without it for a file.
  if (job.container == "apptainer" && IsOfRegistry(job.image)) job.image = "docker://" + job.image;
  if (job.runtime.empty() && platform.name == "trainjob") job.runtime = "torch-distributed";
  return job;
}

Json Values(const Job& job, const Platform& platform, const Surroundings& here) {
  const Command command = CommandOf(job);
  const int64_t grace = Seconds(job.grace);
  const std::optional<int64_t> time = job.time ? std::optional<int64_t>(Seconds(*job.time)) : std::nullopt;
  const auto timed = [&](const auto& value) { return time ? Json(value(*time)) : Json(); };
  Json values = {
      {"name", job.name},
      {"platform", job.platform},
      {"nodes", job.nodes},
      {"workers", job.nodes - 1},
      {"several_nodes", job.nodes > 1},
      {"spread", Spreads(job)},
      {"ranks", RanksOf(job)},
      {"gpus", job.gpus ? Json(*job.gpus) : Json()},
      {"cpus", job.cpus ? Json(*job.cpus) : Json()},
      {"slots", static_cast<int64_t>(job.nodes) * job.cpus.value_or(1)},
      {"cpus_or_one", job.cpus.value_or(1)},
      {"memory_mib", job.memory ? Json(std::max<uint64_t>(1, *job.memory / kMiB)) : Json()},
      {"shm_mib", job.shm ? Json(std::max<uint64_t>(1, *job.shm / kMiB)) : Json()},
      {"time", job.time ? Json(ExactDuration(*job.time)) : Json()},
      {"time_seconds", timed([](int64_t s) { return s; })},
      {"time_slurm", timed([](int64_t s) { return SlurmTime(s); })},
      {"time_hours", timed([](int64_t s) { return Hours(s); })},
      {"time_minutes", timed([](int64_t s) { return (s + 59) / 60; })},
      {"stop_after_seconds", timed([&](int64_t s) { return std::max<int64_t>(1, s - grace - kMargin); })},
      {"grace_seconds", grace + kMargin},
      {"grace_minutes", (grace + kMargin + 59) / 60},
      {"failures", job.failures},
      // Volcano gives up when as many starts have failed.
      {"retries", std::max(2, job.failures + job.resumes + 1)},
      {"resumes", job.resumes},
      {"pod_failures", std::min<int64_t>(INT32_MAX, static_cast<int64_t>(job.failures) * job.nodes)},
      {"restart_policy", job.failures > 0 ? "OnFailure" : "Never"},
      {"limits", job.gpus || job.cpus || job.memory || !job.rdma.empty()},
      {"ipc_lock", !job.rdma.empty()},
      {"env", Json::array()},
      {"secrets", SecretValues(job)},
      {"mounts", MountValues(job)},
      {"rdma", Json::array()},
      {"image", Given(job.image)},
      {"pyxis", !job.image.empty() && job.container == "pyxis"},
      {"apptainer", !job.image.empty() && job.container == "apptainer"},
      {"workdir", Given(job.workdir)},
      {"workdir_flag", job.workdir.empty() ? Json() : Json("--workdir=" + job.workdir)},
      {"log_dir_flag", job.workdir.empty() ? Json() : Json("--log-dir=" + job.workdir + "/runs")},
      {"queue", Given(job.queue)},
      {"partition", Given(job.partition)},
      {"account", Given(job.account)},
      {"namespace", Given(job.name_space)},
      {"service_account", Given(job.service_account)},
      {"runtime", job.runtime},
      {"array", Given(job.array)},
      {"array_indices", Given(ArrayParts(job.array).first)},
      {"array_at_once", ArrayParts(job.array).second},
      {"output", Given(job.output)},
      {"native", Words(job.native)},
      {"setup", Words(job.setup)},
      {"hosts", Words(job.hosts)},
      {"master", job.hosts.empty() ? Json() : Json(job.hosts[0].substr(job.hosts[0].rfind('@') + 1))},
      {"lockstep", job.lockstep},
      {"subcommand", command.subcommand},
      {"flags", Words(LauncherFlags(job))},
      {"program", Words(command.words)},
      {"placement", Json::array()},
      {"token", here.token},
      {"file", Given(here.file)},
  };
  for (const auto& [name, value] : job.env) values["env"].push_back({{"variable", name}, {"value", value}});
  for (const auto& [name, count] : job.rdma) values["rdma"].push_back({{"resource", name}, {"count", count}});
  std::vector<std::string> binds;
  for (const Json& mount : values["mounts"]) binds.push_back(mount["bind"]);
  values["binds"] = Given(Join(binds, ","));
  for (const std::string_view flag : platform.placement) {
    Result<std::string> filled = Fill(flag, "placement", Language::kShell, TemplateSchema(), values);
    values["placement"].push_back(filled.ok() ? *filled : std::string(flag));
  }
  return values;
}

const Schema& TemplateSchema() {
  static const Schema schema = [] {
    Schema out;
    for (const char* name : {"name",
                             "platform",
                             "nodes",
                             "workers",
                             "several_nodes",
                             "spread",
                             "ranks",
                             "gpus",
                             "cpus",
                             "slots",
                             "cpus_or_one",
                             "memory_mib",
                             "shm_mib",
                             "time",
                             "time_seconds",
                             "time_slurm",
                             "time_hours",
                             "time_minutes",
                             "stop_after_seconds",
                             "grace_seconds",
                             "grace_minutes",
                             "failures",
                             "resumes",
                             "pod_failures",
                             "restart_policy",
                             "limits",
                             "ipc_lock",
                             "image",
                             "pyxis",
                             "apptainer",
                             "workdir",
                             "workdir_flag",
                             "log_dir_flag",
                             "retries",
                             "queue",
                             "partition",
                             "account",
                             "namespace",
                             "service_account",
                             "runtime",
                             "array",
                             "array_indices",
                             "array_at_once",
                             "output",
                             "native",
                             "setup",
                             "hosts",
                             "master",
                             "lockstep",
                             "subcommand",
                             "flags",
                             "program",
                             "placement",
                             "token",
                             "file",
                             "binds"}) {
      out.names[name] = {};
    }
    out.names["env"] = {"variable", "value"};
    out.names["secrets"] = {"variable", "file", "secret", "key"};
    out.names["mounts"] = {"volume", "from", "to", "read_only", "claim", "path", "bind"};
    out.names["rdma"] = {"resource", "count"};
    out.parts = TemplateParts();
    return out;
  }();
  return schema;
}

Result<std::string> Render(const Job& job, const Platform& platform, const Surroundings& here) {
  return Fill(platform.text, fmt::format("template {}", platform.name), platform.language, TemplateSchema(),
              Values(job, platform, here));
}

Result<std::string> RenderTemplate(const std::string& text, const std::string& source, const Job& job,
                                   const Platform& platform, const Surroundings& here) {
  const bool yaml = source.ends_with(".yaml") || source.ends_with(".yml");
  // What an editor of Windows leaves: neither a shell nor a scheduler takes it for the beginning and the ends of lines.
  std::string unix_text = text.substr(text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
  for (size_t at = 0; (at = unix_text.find("\r\n", at)) != std::string::npos;) unix_text.erase(at, 1);
  return Fill(unix_text, source, yaml ? Language::kYaml : Language::kShell, TemplateSchema(),
              Values(job, platform, here));
}

}  // namespace lockstep::submit
