// Host, kernel, distribution, container, clock, driver and what of the kernel lets a card read GPU memory.
#include <sys/timex.h>

#include <algorithm>

#include "base/environment.h"
#include "base/text.h"
#include "hardware/hardware_parts.h"

namespace lockstep::hardware {
namespace {

std::string Unquote(std::string text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
    text = text.substr(1, text.size() - 2);
  return text;
}

// Orchestrators before runtimes: a pod is a containerd container too, and the pod is what a person calls it.
std::string ContainerOf(const SysTree& tree, const Environment& env) {
  const std::string cgroup = tree.Text("/proc/self/cgroup");
  const std::string mounts = tree.Text("/proc/self/mountinfo");
  auto in_cgroup = [&](std::string_view word) { return cgroup.find(word) != std::string::npos; };
  if (!ValueOf(env, "KUBERNETES_SERVICE_HOST").empty() || in_cgroup("kubepods") ||
      tree.Exists("/var/run/secrets/kubernetes.io"))
    return "kubernetes";
  if (!ValueOf(env, "APPTAINER_CONTAINER").empty() || !ValueOf(env, "SINGULARITY_CONTAINER").empty() ||
      tree.Exists("/.singularity.d"))
    return "apptainer";
  if (!ValueOf(env, "ENROOT_ROOTFS").empty() || mounts.find("/enroot/") != std::string::npos) return "enroot";
  if (!ValueOf(env, "CH_RUNNING").empty()) return "charliecloud";
  if (tree.Exists("/run/.containerenv") || ValueOf(env, "container") == "podman" || in_cgroup("/libpod"))
    return "podman";
  if (tree.Exists("/.dockerenv") || in_cgroup("/docker") || in_cgroup("docker-")) return "docker";
  if (in_cgroup("/lxc") || ValueOf(env, "container") == "lxc") return "lxc";
  if (in_cgroup("containerd")) return "containerd";
  return ValueOf(env, "container");
}

// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build ..." -> the number
std::string DriverVersion(const std::string& text) {
  for (const std::string& word : Words(text.substr(0, text.find('\n')))) {
    const bool number = word.find_first_not_of("0123456789.") == std::string::npos;
    if (number && word.find('.') != std::string::npos && word.front() != '.') return word;
  }
  return "";
}

bool HasModule(const std::string& modules, std::string_view name) {
  for (const std::string& line : Split(modules, '\n'))
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ' ') return true;
  return false;
}

// Whether a card can be given GPU memory as a dma-buf: the kernel since 5.12, with the driver's open modules.
bool HasDmaBuf(const std::string& kernel, const std::string& driver_text) {
  const std::vector<std::string> parts = Split(kernel, '.');
  const auto major = ToNumber(parts[0]);
  const auto minor =
      parts.size() > 1 ? ToNumber(parts[1].substr(0, parts[1].find_first_not_of("0123456789"))) : std::nullopt;
  if (!major || !minor || *major < 5 || (*major == 5 && *minor < 12)) return false;
  return driver_text.find("Open Kernel Module") != std::string::npos;
}

void ScanClock(const SysTree& tree, Hardware* here) {
  here->clock_source = tree.Text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  if (!tree.real()) return;
  timex state{};
  const int answer = ::adjtimex(&state);  // modes = 0: only asks
  if (answer < 0) {
    here->notes.push_back("adjtimex is not allowed here: whether the clock is synchronised is unknown");
    return;
  }
  here->clock_synchronised = answer != TIME_ERROR && !(state.status & STA_UNSYNC);
  if (*here->clock_synchronised) here->clock_error = static_cast<double>(state.maxerror) * 1e-6;
}

}  // namespace

void ScanSystem(const SysTree& tree, const Environment& env, Hardware* here) {
  // The second of each is for copied trees.
  here->host = tree.Text("/proc/sys/kernel/hostname");
  if (here->host.empty()) here->host = tree.Text("/etc/hostname");
  here->kernel = tree.Text("/proc/sys/kernel/osrelease");
  const std::vector<std::string> version = Words(tree.Text("/proc/version"));  // "Linux version 5.15.0-105-generic ..."
  if (here->kernel.empty() && version.size() > 2) here->kernel = version[2];
  std::string release = tree.Text("/etc/os-release");
  if (release.empty()) release = tree.Text("/usr/lib/os-release");
  here->os = Unquote(LineValue(release, "PRETTY_NAME", '='));
  here->container = ContainerOf(tree, env);
  const std::string driver = tree.Text("/proc/driver/nvidia/version");
  here->driver = DriverVersion(driver);
  if (here->driver.empty()) here->driver = tree.Text("/sys/module/nvidia/version");
  const std::string modules = tree.Text("/proc/modules");
  if (HasModule(modules, "nvidia_peermem") || HasModule(modules, "nv_peer_mem")) {
    here->peermem = "nvidia_peermem";
  } else if (HasDmaBuf(here->kernel, driver)) {
    here->peermem = "dma-buf";
  }
  here->imex_channel = tree.Exists("/dev/nvidia-caps-imex-channels/channel0");
  ScanClock(tree, here);
}

}  // namespace lockstep::hardware
