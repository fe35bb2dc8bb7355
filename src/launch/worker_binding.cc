#include "launch/worker_binding.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/digits.h"
#include "base/files.h"
#include "base/text.h"

namespace lockstep::launch {
namespace {

constexpr size_t kMaxSysFile = 64 << 10;

Result<int> ReadNumber(const std::string& path) {
  const Result<std::string> text = ReadFile(path, kMaxSysFile);
  if (!text.ok()) return text.status();
  const std::optional<int> value = ParseInteger(Trim(*text));
  if (!value) {
    return Status(Code::kEnvironment, fmt::format("{}: expected a number, found '{}'", path, Printable(*text)));
  }
  return *value;
}

Result<CpuSet> ReadCpuList(const std::string& path) {
  const Result<std::string> text = ReadFile(path, kMaxSysFile);
  if (!text.ok()) return text.status();
  Result<CpuSet> cpus = ParseCpuList(std::string(Trim(*text)));
  if (!cpus.ok()) return cpus.status().Context(path).WithCode(Code::kEnvironment);
  return cpus;
}

// The CPUs under the highest level of data cache; the CPU alone where the machine does not say (many virtual machines).
int CacheOf(const std::string& cpu_dir, int cpu) {
  int best_level = -1, best = cpu;
  for (int index = 0; index < 16; ++index) {
    const std::string dir = fmt::format("{}/cache/index{}", cpu_dir, index);
    const Result<int> level = ReadNumber(dir + "/level");
    if (!level.ok()) break;
    const Result<std::string> type = ReadFile(dir + "/type", kMaxSysFile);
    if (!type.ok() || Trim(*type) == "Instruction" || *level <= best_level) continue;
    const Result<CpuSet> shared = ReadCpuList(dir + "/shared_cpu_list");
    if (!shared.ok() || shared->empty()) continue;
    best_level = *level;
    best = shared->front();
  }
  return best;
}

using Cores = std::map<std::pair<int, int>, CpuSet>;  // (node, core) -> its allowed CPUs

Cores CoresOf(const std::vector<Cpu>& cpus) {
  Cores cores;
  for (const Cpu& cpu : cpus) cores[{cpu.node, cpu.core}].push_back(cpu.id);
  return cores;
}

CpuSet Ids(const std::vector<Cpu>& cpus) {
  CpuSet ids;
  for (const Cpu& cpu : cpus) ids.push_back(cpu.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

template <typename Keep>
std::vector<Cpu> Select(const std::vector<Cpu>& cpus, Keep keep) {
  std::vector<Cpu> out;
  std::copy_if(cpus.begin(), cpus.end(), std::back_inserter(out), keep);
  return out;
}

// Share `index` of `shares` of the cores; the first ones get one more when it does not divide.
std::vector<CpuSet> Slice(const Cores& cores, int index, int shares) {
  const int each = static_cast<int>(cores.size()) / shares, extra = static_cast<int>(cores.size()) % shares;
  const int first = index * each + std::min(index, extra);
  const int count = each + (index < extra ? 1 : 0);
  std::vector<CpuSet> out;
  auto it = std::next(cores.begin(), first);
  for (int i = 0; i < count; ++i, ++it) out.push_back(it->second);
  return out;
}

struct Home {
  int node = 0;
  int position = 0;  // among the ranks of that node
  int ranks = 1;     // of that node
  std::string why;
};

std::vector<Home> Homes(const Topology& topology, int ranks, const std::vector<int>& nodes) {
  std::vector<Home> homes(ranks);
  std::map<int, int> count;
  for (int rank = 0; rank < ranks; ++rank) {
    const bool has_gpu = rank < static_cast<int>(topology.gpu_nodes.size());
    if (has_gpu) {
      // -1: the machine has one node and does not number it.
      homes[rank].node = std::max(0, topology.gpu_nodes[rank]);
      homes[rank].why = fmt::format("NUMA node {} of GPU {}", homes[rank].node, rank);
    } else {
      homes[rank].node = nodes[static_cast<size_t>(rank) * nodes.size() / ranks];
      homes[rank].why = fmt::format("NUMA node {}", homes[rank].node);
    }
    homes[rank].position = count[homes[rank].node]++;
  }
  for (Home& home : homes) home.ranks = count[home.node];
  return homes;
}

}  // namespace

Result<CpuSet> ParseCpuList(const std::string& text) {
  std::set<int> cpus;
  const auto number = [](std::string_view word, int* value) {
    const std::optional<int> read = ParseDigits(word);
    *value = read.value_or(0);
    return read && *read < (1 << 20);
  };
  if (Trim(text).empty()) return CpuSet{};
  for (const std::string& part : Split(text, ',')) {
    const std::string_view range = Trim(part);
    const size_t dash = range.find('-');
    int first = 0, last = 0;
    if (!number(range.substr(0, dash), &first) ||
        !number(dash == std::string::npos ? range : range.substr(dash + 1), &last) || last < first) {
      return Status(Code::kUsage, fmt::format("expected CPUs like 0-3,8, found '{}'", Printable(text)));
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  }
  return CpuSet(cpus.begin(), cpus.end());
}

std::string FormatCpuList(const CpuSet& cpus) {
  std::string out;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!out.empty()) out += ",";
    out += last == i ? std::to_string(cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[last]);
    i = last + 1;
  }
  return out;
}

CpuSet AllowedCpus() {
  // The kernel refuses a mask smaller than its own: grow until it fits.
  for (size_t count = 1024; count <= (1 << 20); count *= 2) {
    cpu_set_t* mask = CPU_ALLOC(count);
    if (mask == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(bytes, mask);
    CpuSet cpus;
    const bool known = sched_getaffinity(0, bytes, mask) == 0;
    for (size_t cpu = 0; known && cpu < count; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask)) cpus.push_back(static_cast<int>(cpu));
    }
    CPU_FREE(mask);
    if (known) return cpus;
  }
  return {};
}

Result<Topology> ReadTopology(const std::string& sys, const CpuSet& allowed, const std::vector<std::string>& gpu_pci) {
  Topology topology;
  std::map<int, int> node_of;
  // Without /sys/devices/system/node (no NUMA in the kernel) everything is node 0.
  const Result<std::vector<std::string>> entries = ListDir(sys + "/devices/system/node");
  if (entries.ok()) {
    for (const std::string& entry : *entries) {
      if (!entry.starts_with("node")) continue;
      const std::optional<int> node = ParseDigits(std::string_view(entry).substr(4));
      if (!node) continue;
      const Result<CpuSet> cpus = ReadCpuList(fmt::format("{}/devices/system/node/{}/cpulist", sys, entry));
      if (!cpus.ok()) return cpus.status();
      for (int cpu : *cpus) node_of[cpu] = *node;
    }
  }
  for (int id : allowed) {
    const std::string dir = fmt::format("{}/devices/system/cpu/cpu{}", sys, id);
    Cpu cpu{.id = id, .core = id, .node = node_of.contains(id) ? node_of[id] : 0};
    const Result<CpuSet> siblings = ReadCpuList(dir + "/topology/thread_siblings_list");
    if (siblings.ok() && !siblings->empty()) cpu.core = siblings->front();
    const Result<int> package = ReadNumber(dir + "/topology/physical_package_id");
    if (package.ok()) cpu.package = std::max(0, *package);
    cpu.cache = CacheOf(dir, id);
    topology.cpus.push_back(cpu);
  }
  for (std::string address : gpu_pci) {
    std::transform(address.begin(), address.end(), address.begin(), [](unsigned char c) { return std::tolower(c); });
    // NVML writes the PCI domain with eight digits, /sys with four.
    if (address.find(':') == 8) address = address.substr(4);
    const Result<int> node = ReadNumber(fmt::format("{}/bus/pci/devices/{}/numa_node", sys, address));
    topology.gpu_nodes.push_back(node.ok() ? *node : -1);
  }
  return topology;
}

Result<std::vector<RankBinding>> PlanBinding(Bind bind, const Topology& topology, int local_world_size) {
  const int ranks = std::max(1, local_world_size);
  std::vector<RankBinding> plan(ranks);
  const Cores all = CoresOf(topology.cpus);
  if (bind == Bind::kNone || topology.cpus.empty()) {
    for (RankBinding& rank : plan) rank.threads = std::max<int>(1, static_cast<int>(topology.cpus.size()) / ranks);
    return plan;
  }
  std::set<int> numbered;
  for (const Cpu& cpu : topology.cpus) numbered.insert(cpu.node);
  const std::vector<Home> homes = Homes(topology, ranks, std::vector<int>(numbered.begin(), numbered.end()));

  for (int rank = 0; rank < ranks; ++rank) {
    const Home& home = homes[rank];
    RankBinding& out = plan[rank];
    std::vector<Cpu> near = Select(topology.cpus, [&](const Cpu& cpu) { return cpu.node == home.node; });
    if (near.empty()) {
      return Status(Code::kEnvironment,
                    fmt::format("local rank {}: this process may not use any CPU of {} (allowed: {})", rank, home.why,
                                FormatCpuList(Ids(topology.cpus))),
                    "use --bind none, or widen the CPU set of the job");
    }
    out.why = home.why;
    if (bind == Bind::kCores) {
      // Without GPUs nothing ties a rank to a node: share out everything.
      const bool by_node = !topology.gpu_nodes.empty();
      const Cores cores = by_node ? CoresOf(near) : all;
      const int shares = by_node ? home.ranks : ranks;
      if (static_cast<int>(cores.size()) < shares) {
        return Status(Code::kEnvironment,
                      fmt::format("--bind cores: {} a core each, {} has {}", Count(shares, "rank needs", "ranks need"),
                                  by_node ? home.why : "this node", cores.size()),
                      "start fewer ranks, or use --bind numa or none");
      }
      const std::vector<CpuSet> slice = Slice(cores, by_node ? home.position : rank, shares);
      for (const CpuSet& core : slice) out.cpus.insert(out.cpus.end(), core.begin(), core.end());
      std::sort(out.cpus.begin(), out.cpus.end());
      out.why = fmt::format("{} of {} of {}", slice.size(), Count(static_cast<int64_t>(cores.size()), "core"),
                            by_node ? home.why : "this node");
      continue;
    }
    if (bind == Bind::kSocket) {
      const int package = near.front().package;
      std::set<int> nodes;  // whole nodes, as a node may have CPUs of one socket only
      for (const Cpu& cpu : topology.cpus) {
        if (cpu.package == package) nodes.insert(cpu.node);
      }
      near = Select(topology.cpus, [&](const Cpu& cpu) { return nodes.contains(cpu.node); });
      out.why = fmt::format("socket {} of {}", package, home.why);
    } else if (bind == Bind::kComplex) {
      std::map<int, CpuSet> caches;
      for (const Cpu& cpu : near) caches[cpu.cache].push_back(cpu.id);
      std::vector<std::pair<int, CpuSet>> order(caches.begin(), caches.end());
      // The largest first, then by number.
      std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
        return a.second.size() != b.second.size() ? a.second.size() > b.second.size() : a.first < b.first;
      });
      const int cache = order[home.position % order.size()].first;
      near = Select(near, [&](const Cpu& cpu) { return cpu.cache == cache; });
      out.why = fmt::format("core complex of CPU {} on {}", cache, home.why);
    }
    out.cpus = Ids(near);
  }
  for (RankBinding& rank : plan) {
    std::set<int> cores;
    for (const Cpu& cpu : topology.cpus) {
      if (std::binary_search(rank.cpus.begin(), rank.cpus.end(), cpu.id)) cores.insert(cpu.core);
    }
    const auto sharing =
        std::count_if(plan.begin(), plan.end(), [&](const auto& other) { return other.cpus == rank.cpus; });
    rank.threads = std::max<int>(1, static_cast<int>(cores.size()) / static_cast<int>(sharing));
  }
  return plan;
}

}  // namespace lockstep::launch
