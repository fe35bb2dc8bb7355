// Rows about GPUs: from what NVML said.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "base/digits.h"
#include "base/files.h"
#include "base/text.h"
#include "base/units.h"
#include "preflight/rows.h"

namespace lockstep::preflight {
namespace {

using hardware::GpuState;

constexpr uint64_t kForeignMemory = 1ull << 30;  // more than this of a GPU in other hands leaves too little

std::string Label(const GpuState& gpu) {
  return gpu.pci.empty() ? fmt::format("GPU {}", gpu.index) : fmt::format("GPU {} ({})", gpu.index, gpu.pci);
}

// The kernel's words for a GPU that must be reset, drained or exchanged; the others belong to the program that ran.
bool NeedsReset(int xid) {
  static const std::set<int> fatal = {46,  48,  62,  64,  74,  79,  95,  109, 119, 120, 136, 140,
                                      143, 144, 145, 146, 147, 148, 149, 150, 155, 156, 158};
  return fatal.contains(xid);
}

const char* Meaning(int xid) {
  switch (xid) {
    case 46:
    case 62:
    case 109:
    case 158:
      return "the GPU stopped answering";
    case 48:
      return "double-bit memory error";
    case 64:
      return "row remapping failed";
    case 74:
      return "NVLink error";
    case 79:
      return "fallen off the bus";
    case 95:
      return "uncontained memory error";
    case 119:
    case 120:
      return "the GPU's system processor failed";
    case 136:
      return "NVLink training failed";
    default:
      return "hardware error";
  }
}

CheckOutcome None(const CheckInput& input) {
  return CheckOutcome::Skip(!input.here.gpus.empty()            ? "no GPU is visible to the job"
                            : input.here.gpu_source == "amdgpu" ? "AMD GPUs are not examined"
                                                                : "no GPU here");
}

std::optional<CheckOutcome> NoGpus(const CheckInput& input) {
  return input.visible.empty() ? std::optional(None(input)) : std::nullopt;
}

// NVIDIA display or compute devices on the PCI bus, driver or not.
int GpusOnTheBus(const std::string& root) {
  int count = 0;
  auto devices = ListDir(root + "/sys/bus/pci/devices");
  if (!devices.ok()) return 0;
  for (const std::string& device : *devices) {
    const std::string base = root + "/sys/bus/pci/devices/" + device;
    auto vendor = ReadFile(base + "/vendor", 64);
    auto kind = ReadFile(base + "/class", 64);
    if (vendor.ok() && kind.ok() && vendor->starts_with("0x10de") && kind->starts_with("0x03")) ++count;
  }
  return count;
}

std::string ReadWord(const std::string& path, const std::string& key, char separator) {
  auto text = ReadFile(path, 1 << 20);
  if (!text.ok()) return "";
  for (const std::string& entry : Split(*text, separator)) {
    if (entry.starts_with(key)) return std::string(Trim(entry.substr(key.size())));
  }
  return "";
}

// "left over from run 'exp7', its launcher is gone", or "".
std::string LeftOver(int64_t pid, const std::string& root) {
  const std::string base = fmt::format("{}/proc/{}", root, pid);
  std::string run = ReadWord(base + "/environ", "LOCKSTEP_RUN_ID=", '\0');
  if (run.empty()) run = ReadWord(base + "/environ", "TORCHELASTIC_RUN_ID=", '\0');
  const std::string rank = ReadWord(base + "/environ", "RANK=", '\0');
  const std::string parent = ReadWord(base + "/status", "PPid:", '\n');
  if (run.empty() && rank.empty()) return "";
  const std::string whose = run.empty() ? fmt::format("rank {} of a run", rank) : fmt::format("run '{}'", run);
  return parent == "1" ? fmt::format("left over from {}, its launcher is gone", whose)
                       : fmt::format("part of {}", whose);
}

bool Ours(int64_t pid, const std::string& root) {
  const std::string uid = ReadWord(fmt::format("{}/proc/{}/status", root, pid), "Uid:", '\n');
  return !uid.empty() && (getuid() == 0 || LeadingDigits<uid_t>(uid) == getuid());
}

std::string Version(const std::vector<int>& parts) { return fmt::format("{}", fmt::join(parts, ".")); }

std::vector<int> Parts(const std::string& version) {
  std::vector<int> parts;
  for (const std::string& part : Split(version, '.')) {
    const std::optional<int> number = LeadingDigits(part);
    if (!number) break;
    parts.push_back(*number);
  }
  return parts;
}

}  // namespace

CheckOutcome CheckGpuCount(const CheckInput& input) {
  CheckOutcome outcome;
  const auto seen = static_cast<int>(input.visible.size());
  const auto all = static_cast<int>(input.here.gpus.size());
  if (all == 0) {
    const int bus = GpusOnTheBus(input.root);
    if (bus > 0 && input.here.container.empty()) {
      outcome.Fail(
          fmt::format("{} NVIDIA device{} on the PCI bus, but the driver shows none ({})", bus, bus == 1 ? "" : "s",
                      input.here.gpu_source.empty() ? "no driver" : input.here.gpu_source),
          "load the driver (`nvidia-smi` must list them); in a container start it with --gpus all");
      return outcome;
    }
    if (!input.here.driver.empty()) {
      outcome.Fail(fmt::format("driver {} is loaded and shows no GPU", input.here.driver),
                   "run `nvidia-smi`; in a container start it with --gpus all, in a job ask the scheduler for GPUs");
      return outcome;
    }
    return None(input);
  }
  for (const GpuState& gpu : input.here.gpus) {
    if (gpu.error.empty()) continue;
    outcome.Fail(fmt::format("{}: {}", Label(gpu), gpu.error),
                 "drain this node and reboot it; if it is lost again, have it looked at (--gpus can leave it out)");
  }
  if (seen == 0) {
    outcome.Fail(fmt::format("{} visible: {}", Count(all, "GPU, not", "GPUs, none of them"),
                             input.visible_because.empty() ? "no device can be used" : input.visible_because),
                 "unset CUDA_VISIBLE_DEVICES, or let it name devices of this node");
    return outcome;
  }
  std::string why = input.visible_because.empty() ? "" : fmt::format(" by {}", input.visible_because);
  if (!input.process_level && input.nproc > seen) {
    outcome.Fail(
        fmt::format("{} and {}{}", Count(input.nproc, "rank"), Count(seen, "visible GPU"), why),
        fmt::format("start {} here (--nproc-per-node {}), or make more GPUs visible", Count(seen, "rank"), seen));
    return outcome;
  }
  outcome.note = fmt::format("{} rank{}, {} x {}", input.nproc, input.nproc == 1 ? "" : "s", seen,
                             input.visible[0].name.empty() ? "GPU" : input.visible[0].name);
  if (input.nproc < seen) outcome.note += fmt::format("; {} unused", seen - input.nproc);
  std::set<std::string> names;
  for (const GpuState& gpu : input.visible) names.insert(gpu.name);
  if (names.size() > 1) {
    outcome.Warn(fmt::format("GPUs of different models: {}", fmt::join(names, ", ")),
                 "the slowest decides the pace; choose one kind with --gpus");
  }
  return outcome;
}

CheckOutcome CheckGpuUnique(const CheckInput& input) {
  if (auto none = NoGpus(input)) return *none;
  CheckOutcome outcome;
  std::map<std::string, const GpuState*> seen;
  for (const GpuState& gpu : input.visible) {
    if (gpu.uuid.empty()) continue;
    const auto [it, fresh] = seen.emplace(gpu.uuid, &gpu);
    if (!fresh) {
      outcome.Fail(fmt::format("{} and {} have the same UUID {}", Label(*it->second), Label(gpu), gpu.uuid),
                   "name each GPU once in CUDA_VISIBLE_DEVICES or --gpus; NCCL refuses two ranks on one GPU");
    }
  }
  outcome.note = fmt::format("{} UUIDs", seen.size());
  return outcome;
}

CheckOutcome CheckGpuMemory(const CheckInput& input) {
  if (auto none = NoGpus(input)) return *none;
  CheckOutcome outcome;
  int known = 0;
  for (const GpuState& gpu : input.visible) {
    const std::string reset = fmt::format("drain the node and reset it: nvidia-smi --gpu-reset -i {}", gpu.index);
    known += gpu.ecc.has_value() || gpu.remap_failed.has_value();
    if (gpu.remap_failed.value_or(false)) {
      outcome.Fail(fmt::format("{}: row remapping failed", Label(gpu)),
                   "the memory cannot repair itself any more: have the GPU exchanged (--gpus can leave it out)");
    } else if (gpu.remap_pending.value_or(false)) {
      outcome.Fail(fmt::format("{}: a row remapping waits for a reset", Label(gpu)), reset);
    } else if (gpu.ecc_uncorrected.value_or(0) > 0) {
      outcome.Fail(fmt::format("{}: {} uncorrected ECC error{} since the driver was loaded", Label(gpu),
                               *gpu.ecc_uncorrected, *gpu.ecc_uncorrected == 1 ? "" : "s"),
                   reset);
    } else if (gpu.remapped_uncorrectable.value_or(0) > 0) {
      outcome.Warn(fmt::format("{}: {} rows were remapped because of uncorrectable errors", Label(gpu),
                               *gpu.remapped_uncorrectable),
                   "usable; watch it, a failed remapping means an exchange");
    }
  }
  if (known == 0) return CheckOutcome::Skip("these GPUs report no memory errors");
  outcome.note = "no uncorrected errors";
  return outcome;
}

CheckOutcome CheckGpuRecovery(const CheckInput& input) {
  if (auto none = NoGpus(input)) return *none;
  CheckOutcome outcome;
  bool known = false;
  for (const GpuState& gpu : input.visible) {
    known = known || !gpu.recovery_action.empty();
    if (gpu.recovery_action.empty() || gpu.recovery_action == "none") continue;
    const bool reboot = gpu.recovery_action.find("reboot") != std::string::npos;
    outcome.Fail(fmt::format("{}: the driver asks for: {}", Label(gpu), gpu.recovery_action),
                 reboot ? "drain this node and reboot it"
                        : fmt::format("drain this node, then nvidia-smi --gpu-reset -i {}", gpu.index));
  }
  if (!known) return CheckOutcome::Skip("this driver gives no verdict (before 570)");
  outcome.note = "no action asked for";
  return outcome;
}

CheckOutcome CheckGpuXid(const CheckInput& input) {
  if (auto none = NoGpus(input)) return *none;
  CheckOutcome outcome;
  int harmless = 0;
  for (const GpuState& gpu : input.visible) {
    std::map<int, int> counts;
    for (int xid : gpu.xids) {
      if (NeedsReset(xid)) {
        ++counts[xid];
      } else {
        ++harmless;
      }
    }
    for (const auto& [xid, count] : counts) {
      const std::string text = fmt::format("{}: Xid {} ({}){} in the kernel log", Label(gpu), xid, Meaning(xid),
                                           count > 1 ? fmt::format(", {} times,", count) : "");
      if (gpu.recovery_action == "none") {
        outcome.Warn(text + "; the driver asks for nothing now", "if it comes again, have the GPU looked at");
      } else {
        outcome.Fail(text,
                     fmt::format("drain the node; reset the GPU (nvidia-smi --gpu-reset -i {}) or reboot", gpu.index));
      }
    }
  }
  outcome.note = harmless > 0 ? fmt::format("{} of earlier programs, none of the hardware", harmless) : "none";
  return outcome;
}

CheckOutcome CheckGpuThrottle(const CheckInput& input) {
  if (auto none = NoGpus(input)) return *none;
  CheckOutcome outcome;
  for (const GpuState& gpu : input.visible) {
    std::vector<std::string> hard, soft;
    for (const std::string& reason : gpu.throttle) {
      std::string lower = reason;
      std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
      (lower.starts_with("hw") || lower.find("hardware") != std::string::npos ? hard : soft).push_back(reason);
    }
    const std::string heat = gpu.temperature ? fmt::format(" at {} C", *gpu.temperature) : "";
    if (!hard.empty()) {
      outcome.Fail(fmt::format("{} is slowed down{}: {}", Label(gpu), heat, fmt::join(hard, ", ")),
                   "every rank would wait for it: look at cooling and power (nvidia-smi -q -d PERFORMANCE)");
    } else if (!soft.empty()) {
      outcome.Warn(fmt::format("{} is held back{}: {}", Label(gpu), heat, fmt::join(soft, ", ")),
                   "normal under load; on an idle GPU look at cooling and power limits");
    }
  }
  outcome.note = "none is slowed down";
  return outcome;
}

CheckOutcome CheckGpuProcesses(const CheckInput& input) {
  if (auto none = NoGpus(input)) return *none;
  CheckOutcome outcome;
  struct Found {
    hardware::GpuProcess process;
    std::vector<int> gpus;
    uint64_t memory = 0;
  };
  std::map<int64_t, Found> by_pid;
  for (const GpuState& gpu : input.visible) {
    for (const hardware::GpuProcess& process : gpu.processes) {
      if (process.pid == getpid()) continue;
      Found& found = by_pid[process.pid];
      found.process = process;
      found.gpus.push_back(gpu.index);
      found.memory += process.memory.value_or(0);
    }
  }
  for (const auto& [pid, found] : by_pid) {
    const std::string& name = found.process.name;
    const std::string left = name.empty() ? "" : LeftOver(pid, input.root);
    std::string text = fmt::format("pid {}{} uses GPU {}", pid, name.empty() ? "" : " (" + Printable(name) + ")",
                                   fmt::join(found.gpus, ", "));
    if (found.memory > 0) text += fmt::format(" with {}", FormatSize(found.memory));
    if (!left.empty()) text += ": " + left;
    const std::string remedy = name.empty() ? "it runs in another container or is another user's: ask who holds it"
                               : Ours(pid, input.root) ? fmt::format("end it: kill {}", pid)
                                                       : fmt::format("another user's: ps -fp {} names the owner", pid);
    // A display server or a monitor is in nobody's way; what does not say how much it holds may hold everything.
    const bool large = found.memory > kForeignMemory || found.memory == 0;
    if (large || !left.empty()) {
      outcome.Fail(text, remedy);
    } else {
      outcome.Warn(text, remedy);
    }
  }
  // Memory in use without a visible owner: a container hides processes, or a dead one has left some behind.
  for (const GpuState& gpu : input.visible) {
    if (!gpu.processes.empty() || !gpu.memory_used || !gpu.memory_total) continue;
    if (*gpu.memory_used > 4 * kForeignMemory) {
      outcome.Warn(fmt::format("{}: {} of {} in use, by no process that can be seen from here", Label(gpu),
                               FormatSize(*gpu.memory_used), FormatSize(*gpu.memory_total)),
                   "look from outside the container (nvidia-smi on the host)");
    }
  }
  outcome.note = "free";
  return outcome;
}

CheckOutcome CheckGpuLinks(const CheckInput& input) {
  if (auto none = NoGpus(input)) return *none;
  CheckOutcome outcome;
  int links = 0;
  std::map<int, int> counts;  // links there are -> GPUs
  for (const GpuState& gpu : input.visible) {
    if (gpu.nvlinks.value_or(0) > 0) {
      links += gpu.nvlinks_active.value_or(0);
      ++counts[*gpu.nvlinks];
      if (gpu.nvlinks_active && *gpu.nvlinks_active < *gpu.nvlinks) {
        const std::string text =
            fmt::format("{}: {} of {} NVLinks are up", Label(gpu), *gpu.nvlinks_active, *gpu.nvlinks);
        if (*gpu.nvlinks_active == 0 && input.visible.size() > 1) {
          outcome.Fail(text, "reset the GPUs or restart the fabric manager; `nvidia-smi nvlink -s` shows each link");
        } else {
          outcome.Warn(text, "`nvidia-smi nvlink -s` shows each link; a bridge not fitted is fine, a link lost is not");
        }
      }
    }
    if (!gpu.fabric.empty() && gpu.fabric != "completed" && gpu.fabric != "not supported") {
      outcome.Fail(fmt::format("{}: NVSwitch fabric state '{}'", Label(gpu), gpu.fabric),
                   "CUDA will not start on it: systemctl restart nvidia-fabricmanager (same version as the driver)");
    }
    if (gpu.pcie_width && gpu.pcie_width_max && *gpu.pcie_width < *gpu.pcie_width_max) {
      outcome.Warn(fmt::format("{}: PCIe x{} of x{}", Label(gpu), *gpu.pcie_width, *gpu.pcie_width_max),
                   "reseat the card or riser; transfers from the host are slower than on its neighbours");
    }
  }
  if (outcome.problems.empty() && links == 0) return CheckOutcome::Ok("no NVLink");
  outcome.note = fmt::format("{} NVLinks up", links);
  return outcome;
}

CheckOutcome CheckDriver(const CheckInput& input) {
  const hardware::Hardware& here = input.here;
  CheckOutcome outcome;
  const auto trouble = std::find_if(here.notes.begin(), here.notes.end(), [](const std::string& note) {
    // Error 9 is a library without a driver: whether that is wrong, the cards on the bus tell.
    return note.find("(NVML error ") != std::string::npos && note.find("(NVML error 9)") == std::string::npos;
  });
  if (!here.driver.empty() && !here.driver_library.empty() && here.driver != here.driver_library) {
    outcome.Fail(fmt::format("kernel module {} and library {} differ", here.driver, here.driver_library),
                 "the driver was updated under a running kernel: reboot, or unload and load the nvidia modules; in a "
                 "container the library comes from the host");
  } else if (trouble != here.notes.end()) {
    outcome.Fail(*trouble, "run `nvidia-smi`: after a driver update reboot, or unload and load the nvidia modules");
  }
  if (here.driver.empty() && here.gpus.empty() && outcome.problems.empty())
    return CheckOutcome::Skip("no NVIDIA driver");
  outcome.note = fmt::format("{}{}", here.driver.empty() ? here.driver_library : here.driver,
                             here.cuda.empty() ? "" : ", CUDA " + here.cuda);
  const std::vector<int> serves = Parts(here.cuda);
  const std::vector<int> wants = Parts(input.python.torch_cuda);
  if (!input.python.torch_version.empty() && input.python.torch_cuda.empty() && !input.visible.empty()) {
    outcome.Warn(fmt::format("PyTorch {} is built without CUDA, and this node has {}", input.python.torch_version,
                             Count(static_cast<int64_t>(input.visible.size()), "GPU")),
                 "install a CUDA build of PyTorch, or mean it");
  }
  if (serves.empty() || wants.empty() || input.visible.empty()) return outcome;
  if (wants[0] > serves[0]) {
    outcome.Fail(fmt::format("PyTorch {} needs CUDA {}, driver {} serves up to {}", input.python.torch_version,
                             Version(wants), here.driver, Version(serves)),
                 "update the driver, or install a PyTorch built for an older CUDA");
  } else if (wants > serves) {
    outcome.Warn(fmt::format("PyTorch {} is built for CUDA {}, driver {} is of {}", input.python.torch_version,
                             Version(wants), here.driver, Version(serves)),
                 "works within one major version, but kernels compiled at run time (PTX) may be refused");
  }
  return outcome;
}

}  // namespace lockstep::preflight
