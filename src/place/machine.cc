#include "place/machine.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/digits.h"
#include "base/env_file.h"
#include "base/files.h"
#include "base/text.h"
#include "hardware/cpus.h"
#include "hardware/gpus.h"
#include "place/reader.h"

namespace lockstep::place {
namespace {

std::string Content(const std::string& path) {
  Result<std::string> text = ReadFile(path, 1u << 20);
  return text.ok() ? *text : "";
}

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string Link(const std::string& path) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(path, error);
  return error ? "" : target.string();
}

std::string Of(const Environment& env, const char* name) {
  auto it = env.find(name);
  return it == env.end() ? "" : it->second;
}

// The launcher a command line belongs to, by its program or the script or module it interprets; empty for none.
std::string LauncherName(const std::vector<std::string>& argv) {
  auto base = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  for (size_t i = 0; i < argv.size() && i < 4; ++i) {
    const std::string word = base(argv[i]);
    if (i > 0 && argv[i - 1] == "-m") {
      if (argv[i] == "torch.distributed.run" || argv[i] == "torch.distributed.launch") return "torchrun";
      if (argv[i] == "accelerate.commands.launch") return "accelerate";
      if (argv[i] == "deepspeed.launcher.launch") return "deepspeed";
    }
    for (const char* name : {"torchrun", "accelerate", "accelerate-launch", "deepspeed", "lockstep", "raylet"})
      if (word == name) return word == "raylet" ? "ray" : word == "accelerate-launch" ? "accelerate" : word;
    if (word.starts_with("ray::")) return "ray";
    // Only an interpreter's arguments name a program; those of others are theirs.
    if (i == 0 && !word.starts_with("python")) return "";
  }
  return "";
}

}  // namespace

std::vector<int> FindSiblingRanks(const Environment& env, const std::string& root) {
  std::vector<int> ranks;
  const std::string exe = Link(root + "/proc/self/exe"), cgroup = Content(root + "/proc/self/cgroup");
  const std::string self = Link(root + "/proc/self");
  Result<std::vector<std::string>> processes = ListDir(root + "/proc");
  if (exe.empty() || !processes.ok()) return ranks;
  for (const std::string& pid : *processes) {
    const std::string folder = root + "/proc/" + pid;
    if (!IsDigits(pid) || pid == self || Link(folder + "/exe") != exe || Content(folder + "/cgroup") != cgroup)
      continue;
    const Environment other = ParseEnvironment(Content(folder + "/environ"));
    // Another job of the same user has ranks too; only ours count.
    const bool same_job = Of(other, "WORLD_SIZE") == Of(env, "WORLD_SIZE") &&
                          Of(other, "MASTER_ADDR") == Of(env, "MASTER_ADDR") &&
                          Of(other, "MASTER_PORT") == Of(env, "MASTER_PORT");
    const std::optional<int> rank = ParseNumber(Of(other, "RANK"));
    if (same_job && rank && std::find(ranks.begin(), ranks.end(), *rank) == ranks.end()) ranks.push_back(*rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string FindOuterLauncher(const std::string& root) {
  std::string pid = "self";
  for (int depth = 0; depth < 64; ++depth) {
    // "pid (comm) state ppid ..."; the name may hold blanks and parentheses, so the last one counts.
    const std::string stat = Content(root + "/proc/" + pid + "/stat");
    const size_t close = stat.rfind(')');
    if (close == std::string::npos) return "";
    const std::vector<std::string> fields = Split(std::string(Trim(std::string_view(stat).substr(close + 1))), ' ');
    if (fields.size() < 2 || !IsDigits(fields[1]) || fields[1] == "0" || fields[1] == "1") return "";
    pid = fields[1];
    const std::string name = LauncherName(Split(Content(root + "/proc/" + pid + "/cmdline"), '\0'));
    if (!name.empty()) return fmt::format("{} (pid {})", name, pid);
  }
  return "";
}

Machine ReadMachine(const Environment& env, const MachineOptions& options) {
  Machine machine;
  if (options.gpus) {
    const hardware::Visible visible =
        hardware::CountVisible(env, std::vector<hardware::Gpu>(std::max(*options.gpus, 0)));
    machine.gpus = visible.count;
    machine.gpus_source = visible.because.empty() ? "--assume-gpus" : "--assume-gpus, " + visible.because;
  } else {
    const char* library = std::getenv("LOCKSTEP_NVML");
    const hardware::GpuList list = hardware::FindGpus(env, library ? library : "", options.root);
    const hardware::Visible visible = hardware::CountVisible(env, list.gpus);
    machine.gpus = visible.count;
    machine.gpus_source = list.source;
    machine.gpu_pci = visible.pci;
    if (!list.gpus.empty() && !visible.because.empty()) machine.gpus_source += ", " + visible.because;
    if (!list.note.empty()) machine.gpus_source += "; " + list.note;
  }
  machine.cpus = options.cpus ? *options.cpus : hardware::CountCpus(options.root);
  machine.host = options.host.empty() ? HostName() : options.host;
  if (options.foreign_environment) return machine;
  if (env.contains("RANK") && env.contains("WORLD_SIZE")) machine.sibling_ranks = FindSiblingRanks(env, options.root);
  if (env.contains("RANK") || env.contains("TORCHELASTIC_RUN_ID"))
    machine.outer_launcher = FindOuterLauncher(options.root);
  return machine;
}

}  // namespace lockstep::place
