#include "tune/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/digits.h"
#include "base/files.h"
#include "base/text.h"
#include "tune/settings_rules.h"

namespace lockstep::tune {
namespace {

constexpr uint32_t kFirstRasPort = 28100, kRasPorts = 800;  // between NCCL's own 28028 and torch's 29500

uint32_t Fnv(const std::string& text) {
  uint32_t hash = 2166136261u;
  for (unsigned char c : text) hash = (hash ^ c) * 16777619u;
  return hash;
}

// PyTorch renamed settings of the flight recorder; whichever name the user set decides.
void SetRenamed(const std::string& name, const std::string& old_name, const std::string& value,
                const std::string& because, Draft* draft) {
  if (!draft->UserHas(name) && draft->UserHas(old_name)) {
    draft->Set(old_name, value, Confidence::kCertain, because);
    return;
  }
  draft->Set(name, value, Confidence::kCertain, because);
  const auto torch = draft->here.torch ? MajorMinor(draft->here.torch->version) : std::nullopt;
  if (!draft->UserHas(name) && (!torch || *torch < std::pair{2, 10})) {
    draft->Set(old_name, value, Confidence::kCertain,
               fmt::format("the name of {} before PyTorch 2.10{}", name,
                           torch ? "" : " (which PyTorch will be loaded is not known)"));
  }
}

}  // namespace

void Draft::Set(std::string name, std::string value, Confidence confidence, std::string because) {
  Setting setting{std::move(name), std::move(value), std::move(because), confidence, std::nullopt};
  // An empty value is a choice as well: somebody switched the variable off.
  if (auto found = user.find(setting.name); found != user.end()) setting.user_value = found->second;
  out.set.push_back(std::move(setting));
}

void DeriveEvidence(Draft* draft) {
  const JobShape& job = draft->job;
  if (job.threads > 0) {
    draft->Set("OMP_NUM_THREADS", std::to_string(job.threads), Confidence::kCertain,
               fmt::format("{} for {} of this node; torchrun's 1 starves work on the host",
                           Count(draft->here.cpus, "CPU"), Count(job.nproc_per_node, "rank")));
  }
  draft->Set("PYTHONFAULTHANDLER", "1", Confidence::kCertain, "a crash inside a library leaves a Python stack");
  if (!job.gpus) return;
  draft->Set("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", Confidence::kCertain,
             "a collective that times out is dumped, then aborted (torchrun's 1 suppresses the dump)");
  draft->Set("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", Confidence::kCertain,
             "the flight recorder writes which rank was in which collective");
  SetRenamed("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "2000",
             "switches the flight recorder on: the last 2000 collectives of each rank", draft);
  if (!job.log_dir.empty()) {
    SetRenamed("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", job.log_dir + "/nccl_trace_rank_",
               "dumps belong to the logs of the run, not to /tmp", draft);
  }
  const auto nccl = draft->here.nccl ? MajorMinor(draft->here.nccl->version) : std::nullopt;
  if (!job.job_id.empty() && nccl && *nccl >= std::pair{2, 24} && draft->User("NCCL_RAS_ENABLE") != "0") {
    draft->Set("NCCL_RAS_ADDR", fmt::format("localhost:{}", kFirstRasPort + Fnv(job.job_id) % kRasPorts),
               Confidence::kCertain,
               "all jobs of a user on a node share NCCL's port 28028: with one of its own, this job is the one that "
               "answers");
  }
  draft->Leave("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
               "480 s until a stuck watchdog ends its process is short enough; 0 would remove the last guard");
  draft->Leave("collective time-out",
               "no variable sets it: init_process_group(timeout=), --ddp_timeout or DEEPSPEED_TIMEOUT do; 10 minutes "
               "are the default of NCCL groups");
}

Settings Derive(const hardware::Hardware& here, const JobShape& job, const Environment& user) {
  Draft draft{here, job, user, {}};
  if (job.nnodes > 1) {
    const hardware::Interface* route = DeriveInterfaces(&draft);
    if (job.gpus) DeriveData(route, &draft);
  } else {
    draft.Leave("NCCL_SOCKET_IFNAME, NCCL_IB_*, NCCL_NET_*",
                "one node: NVLink, PCIe or shared memory carry the data, and no network setting acts");
  }
  if (job.gpus) {
    draft.Leave("NCCL_P2P_LEVEL, NCCL_NVLS_ENABLE", "NCCL reads NVLink and PCIe itself; forcing can only hide a path");
    draft.Leave("NCCL_ALGO, NCCL_PROTO, NCCL_NTHREADS, NCCL_BUFFSIZE",
                "NCCL chooses per size and topology; a fixed value is for measurements");
  }
  if (!job.gpus && here.gpu_source == "amdgpu") {
    draft.Leave("NCCL_*", "AMD GPUs are here, of which nothing is known; RCCL reads these names too");
  } else if (!job.gpus) {
    draft.Leave("NCCL_*", "no GPU is seen here, so the ranks will use Gloo");
  }
  DeriveEvidence(&draft);
  return std::move(draft.out);
}

Environment ConfFileSettings(const Environment& env, const std::string& root) {
  Environment out;
  const auto read = [&](const std::string& path) {
    const auto text = ReadFile(path, 1 << 20);
    if (!text.ok()) return;
    for (std::string line : Split(*text, '\n')) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      const size_t equals = line.find('=');
      if (line.empty() || line[0] == '#' || equals == std::string::npos || equals == 0) continue;
      out.try_emplace(line.substr(0, equals), line.substr(equals + 1));
    }
  };
  const auto value = [&](const char* name) { return env.contains(name) ? env.at(name) : std::string(); };
  if (!value("NCCL_CONF_FILE").empty()) {
    read(root + value("NCCL_CONF_FILE"));
  } else if (!value("HOME").empty()) {
    read(root + value("HOME") + "/.nccl.conf");
  }
  read(root + "/etc/nccl.conf");
  return out;
}

std::optional<std::pair<int, int>> MajorMinor(const std::string& version) {
  std::string_view rest = version;
  const std::optional<int> major = TakeDigits(&rest);
  if (!major || !rest.starts_with('.')) return std::nullopt;
  const std::optional<int> minor = LeadingDigits(rest.substr(1));
  if (!minor) return std::nullopt;
  return std::pair{*major, *minor};
}

}  // namespace lockstep::tune
