// NUMA nodes, cores and memory, from /sys/devices/system and /proc/meminfo.
#include <algorithm>
#include <set>

#include "base/text.h"
#include "hardware/cpus.h"
#include "hardware/hardware_parts.h"

namespace lockstep::hardware {
namespace {

// "131072000 kB" -> bytes
std::optional<uint64_t> Kilobytes(const std::string& text) {
  const std::vector<std::string> words = Words(text);
  const auto number = words.empty() ? std::nullopt : ToNumber(words[0]);
  if (!number || *number < 0 || *number > (int64_t{1} << 50)) return std::nullopt;
  return static_cast<uint64_t>(*number) * 1024;
}

// Threads of one core share a list of siblings.
int CountCores(const SysTree& tree) {
  const std::string cpus = "/sys/devices/system/cpu";
  std::set<std::string> cores;
  for (const std::string& name : tree.Names(cpus)) {
    if (!name.starts_with("cpu") || !ToNumber(name.substr(3))) continue;
    std::string siblings = tree.Text(cpus + "/" + name + "/topology/thread_siblings_list");
    if (siblings.empty()) siblings = tree.Text(cpus + "/" + name + "/topology/core_cpus_list");
    if (!siblings.empty()) cores.insert(siblings);
  }
  if (!cores.empty()) return static_cast<int>(cores.size());
  for (const char* list : {"/present", "/online"})
    if (const auto count = CountList(tree.Text(cpus + list))) return *count;
  int processors = 0;
  for (const std::string& line : Split(tree.Text("/proc/cpuinfo"), '\n')) processors += line.starts_with("processor");
  return processors;
}

}  // namespace

void ScanNuma(const SysTree& tree, Hardware* here) {
  const std::string nodes = "/sys/devices/system/node";
  for (const std::string& name : tree.Names(nodes)) {
    const auto id = name.starts_with("node") ? ToNumber(name.substr(4)) : std::nullopt;
    if (!id || *id < 0 || *id > (1 << 16)) continue;
    NumaNode node;
    node.id = static_cast<int>(*id);
    node.cpus = tree.Text(nodes + "/" + name + "/cpulist");
    const std::string memory = tree.Text(nodes + "/" + name + "/meminfo");  // "Node 0 MemTotal:  131072000 kB"
    node.memory = Kilobytes(LineValue(memory, "Node " + std::to_string(*id) + " MemTotal", ':'));
    here->numa.push_back(node);
  }
  here->cpus = CountCpus(tree.root());
  here->cores = CountCores(tree);
  const std::string memory = tree.Text("/proc/meminfo");
  here->memory_total = Kilobytes(LineValue(memory, "MemTotal", ':'));
  here->memory_available = Kilobytes(LineValue(memory, "MemAvailable", ':'));
  std::string model = tree.Text("/proc/cpuinfo");
  here->cpu_model = LineValue(model, "model name", ':');
  if (here->cpu_model.empty()) here->cpu_model = LineValue(model, "Model", ':');
}

}  // namespace lockstep::hardware
