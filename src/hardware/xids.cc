// Xids: what the NVIDIA driver wrote into the kernel's log since it was started, by GPU.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/klog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "base/fd.h"
#include "base/text.h"
#include "hardware/hardware_parts.h"

namespace lockstep::hardware {
namespace {

constexpr int kReadAll = 3, kSize = 10;  // of syslog(2)

// /dev/kmsg gives one record per read and none of a part.
std::string ReadRecords(const std::string& path, int* error) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string log;
  if (!fd.valid()) {
    *error = errno;
    return log;
  }
  std::string record(8192, '\0');
  while (log.size() < (64u << 20)) {
    const ssize_t size = ::read(fd.get(), record.data(), record.size());
    if (size < 0 && (errno == EPIPE || errno == EINTR)) continue;  // overwritten meanwhile: the next one follows
    if (size <= 0) break;
    log.append(record, 0, static_cast<size_t>(size));
  }
  return log;
}

std::string KernelLog(const SysTree& tree, int* error) {
  *error = 0;
  if (!tree.real()) {
    int ignored = 0;
    for (const char* path : {"/dev/kmsg", "/var/log/dmesg", "/var/log/kern.log", "/var/log/messages"})
      if (std::string log = ReadRecords(tree.Path(path), &ignored); !log.empty()) return log;
    return "";
  }
  const int size = ::klogctl(kSize, nullptr, 0);
  if (size > 0) {
    std::string log(static_cast<size_t>(size), '\0');
    const int got = ::klogctl(kReadAll, log.data(), size);
    if (got >= 0) {
      log.resize(static_cast<size_t>(got));
      return log;
    }
  }
  return ReadRecords("/dev/kmsg", error);
}

}  // namespace

std::vector<XidLine> FindXids(std::string_view log) {
  std::vector<XidLine> found;
  // "NVRM: Xid (PCI:0000:3b:00): 79, ..."; with MIG "(PCI:0000:3b:00 GPU-I:05)"; older drivers "(0000:3b:00)";
  // switches "SXid (PCI:0000:c1:00.0): 12028, ...".
  for (size_t at = 0; (at = log.find("Xid (", at)) != std::string_view::npos; at += 5) {
    std::string_view rest = log.substr(at + 5, 120);
    rest = rest.substr(0, rest.find('\n'));
    if (rest.starts_with("PCI:")) rest.remove_prefix(4);
    const size_t close = rest.find("):");
    if (close == std::string_view::npos) continue;
    const std::string_view where = rest.substr(0, std::min(close, rest.find(' ')));
    if (where.size() < 8 || where.size() > 16) continue;
    const std::string_view number = Trim(rest.substr(close + 2));
    const auto xid = ToNumber(number.substr(0, number.find_first_not_of("0123456789")));
    if (!xid || *xid <= 0 || *xid > 100000) continue;
    std::string address(where);
    std::transform(address.begin(), address.end(), address.begin(), [](unsigned char c) { return std::tolower(c); });
    if (address.find('.') == std::string::npos) address += ".0";
    found.push_back({address, static_cast<int>(*xid), at > 0 && log[at - 1] == 'S'});
  }
  return found;
}

void ScanXids(const SysTree& tree, Hardware* here) {
  if (here->gpus.empty() && here->driver.empty()) return;
  int error = 0;
  const std::string log = KernelLog(tree, &error);
  if (error != 0 && !here->gpus.empty())
    here->notes.push_back(fmt::format("the kernel log cannot be read ({}): Xids are unknown", ErrnoText(error)));
  std::map<std::string, std::vector<int>> elsewhere;
  for (const XidLine& line : FindXids(log)) {
    const auto gpu =
        std::find_if(here->gpus.begin(), here->gpus.end(), [&](const GpuState& g) { return g.pci == line.pci; });
    if (gpu != here->gpus.end() && !line.of_switch) {
      gpu->xids.push_back(line.xid);
    } else {
      std::vector<int>& list = elsewhere[line.pci + (line.of_switch ? " (NVSwitch)" : "")];
      if (list.size() < 8) list.push_back(line.xid);
    }
  }
  for (const auto& [pci, xids] : elsewhere)
    here->notes.push_back(fmt::format("the kernel log has {} {} of {}, which is not among these GPUs",
                                      pci.ends_with(")") ? "SXid" : "Xid", fmt::join(xids, ", "), pci));
}

}  // namespace lockstep::hardware
