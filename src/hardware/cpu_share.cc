#include "hardware/cpu_share.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/json.h"
#include "base/text.h"
#include "hardware/cgroups.h"

namespace lockstep::hardware {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWaitVariables[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"};

std::vector<int> Affinity() {
  std::vector<int> cpus;
  for (int most = 1024; most <= (1 << 20) && cpus.empty(); most *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(most), [](cpu_set_t* s) { CPU_FREE(s); });
    const size_t bytes = CPU_ALLOC_SIZE(most);
    if (set == nullptr || sched_getaffinity(0, bytes, set.get()) != 0) continue;
    for (int cpu = 0; cpu < most; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set.get())) cpus.push_back(cpu);
    }
  }
  return cpus;
}

}  // namespace

CpuRights ReadCpuRights(const std::string& root) {
  const SysTree tree(root);
  CpuRights rights;
  rights.machine = std::string(Trim(tree.Text("/proc/sys/kernel/random/boot_id")));
  rights.cpus = Affinity();
  if (const auto quota = FindCpuQuota(tree)) {
    // Every container sees its own cgroup as the root, so the path alone is not unique on a machine.
    std::error_code ignored;
    rights.cgroup = fs::read_symlink(root + "/proc/self/ns/cgroup", ignored).string() + quota->folder;
    rights.quota = quota->cores;
  }
  return rights;
}

std::string ToText(const CpuRights& rights) {
  return ToJsonLine(
      {{"machine", rights.machine}, {"cpus", rights.cpus}, {"cgroup", rights.cgroup}, {"quota", rights.quota}});
}

Result<CpuRights> CpuRightsFromText(const std::string& text) {
  const auto json = ParseJson(text, "CPUs of a rank");
  if (!json.ok()) return json.status();
  try {
    return CpuRights{json->at("machine"), json->at("cpus"), json->at("cgroup"), json->at("quota")};
  } catch (const nlohmann::json::exception& error) {
    return Status(Code::kInternal, std::string("CPUs of a rank: ") + error.what());
  }
}

int FairThreads(const std::vector<CpuRights>& ranks, size_t rank) {
  const CpuRights& mine = ranks[rank];
  double share = 0;
  for (const int cpu : mine.cpus) {
    const auto sharing = std::count_if(ranks.begin(), ranks.end(), [&](const CpuRights& other) {
      return other.machine == mine.machine && std::binary_search(other.cpus.begin(), other.cpus.end(), cpu);
    });
    share += 1.0 / static_cast<double>(std::max<ptrdiff_t>(1, sharing));
  }
  if (mine.quota > 0) {
    const auto sharing = std::count_if(ranks.begin(), ranks.end(), [&](const CpuRights& other) {
      return other.machine == mine.machine && other.cgroup == mine.cgroup;
    });
    share = std::min(share, mine.quota / static_cast<double>(std::max<ptrdiff_t>(1, sharing)));
  }
  return std::max(1, static_cast<int>(share + 1e-6));
}

bool LetWaitingThreadsSleep() {
  for (const char* name : kWaitVariables) {
    if (std::getenv(name) != nullptr) return false;
  }
  return setenv("OMP_WAIT_POLICY", "PASSIVE", 1) == 0;
}

}  // namespace lockstep::hardware
