// What a machine says about a setting.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "base/digits.h"
#include "base/text.h"
#include "lint/checks.h"

namespace lockstep::lint {
namespace {

using hardware::Hardware;
using hardware::IbPort;
using hardware::Interface;

// A list as NCCL_IB_HCA and NCCL_SOCKET_IFNAME have it: ^ excludes, = means the whole name, else a beginning.
struct Selection {
  bool exclude = false, exact = false;
  std::vector<std::string> names;

  explicit Selection(std::string text) {
    if (!text.empty() && text[0] == '^') {
      exclude = true;
      text = text.substr(1);
    }
    if (!text.empty() && text[0] == '=') {
      exact = true;
      text = text.substr(1);
    }
    for (const std::string& entry : Split(text, ',')) {
      if (!Trim(entry).empty()) names.emplace_back(Trim(entry.substr(0, entry.find(':'))));
    }
  }

  bool Matches(const std::string& name, const std::string& entry) const {
    return exact ? name == entry : name.rfind(entry, 0) == 0;
  }
};

bool Known(const Fact&, const Unit&, const LintContext&, Words&) { return true; }

bool AnyPort(const Hardware& here, bool (*wanted)(const IbPort&)) {
  return std::any_of(here.ib.begin(), here.ib.end(), wanted);
}

bool IbActive(const Fact&, const Unit&, const LintContext& context, Words& words) {
  std::vector<std::string> active;
  for (const IbPort& port : context.hardware->ib) {
    if (port.active()) active.push_back(port.device);
  }
  words["detail"] = Join(active, ", ");
  return !active.empty();
}

bool InfiniBandOnly(const Fact&, const Unit&, const LintContext& context, Words&) {
  const Hardware& here = *context.hardware;
  return AnyPort(here, [](const IbPort& port) { return port.active() && port.infiniband(); }) &&
         !AnyPort(here, [](const IbPort& port) { return port.active() && !port.infiniband(); });
}

bool Roce(const Fact&, const Unit&, const LintContext& context, Words&) {
  return AnyPort(*context.hardware, [](const IbPort& port) { return port.active() && !port.infiniband(); });
}

bool NvLink(const Fact&, const Unit&, const LintContext& context, Words&) {
  return std::any_of(context.hardware->gpus.begin(), context.hardware->gpus.end(),
                     [](const hardware::GpuState& gpu) { return gpu.nvlinks_active.value_or(0) > 0; });
}

bool PcieOnly(const Fact& fact, const Unit& unit, const LintContext& context, Words& words) {
  return context.hardware->gpus.size() > 1 && !NvLink(fact, unit, context, words);
}

bool Hopper(const Fact&, const Unit&, const LintContext& context, Words& words) {
  for (const hardware::GpuState& gpu : context.hardware->gpus) {
    if (LeadingDigits(gpu.compute_capability).value_or(0) >= 9 && gpu.nvlinks_active.value_or(0) > 0) {
      words["detail"] = gpu.name;
      return true;
    }
  }
  return false;
}

bool ManyHcas(const Fact&, const Unit&, const LintContext& context, Words& words) {
  const auto& ib = context.hardware->ib;
  const int active =
      static_cast<int>(std::count_if(ib.begin(), ib.end(), [](const IbPort& port) { return port.active(); }));
  words["detail"] = std::to_string(active);
  return active >= 4;
}

bool HcaMissing(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  const Selection selection(fact.value);
  if (selection.exclude || selection.names.empty()) return false;
  std::set<std::string> devices;
  for (const IbPort& port : context.hardware->ib) devices.insert(port.device);
  for (const std::string& name : selection.names) {
    const bool found = std::any_of(devices.begin(), devices.end(),
                                   [&](const std::string& device) { return selection.Matches(device, name); });
    if (found) continue;
    words["detail"] = name;
    words["there"] = devices.empty() ? "no RDMA device" : Join({devices.begin(), devices.end()}, ", ");
    return true;
  }
  return false;
}

std::vector<const IbPort*> Selected(const Fact& fact, const LintContext& context) {
  const Selection selection(fact.value);
  std::vector<const IbPort*> ports;
  for (const IbPort& port : context.hardware->ib) {
    const bool named = std::any_of(selection.names.begin(), selection.names.end(),
                                   [&](const std::string& name) { return selection.Matches(port.device, name); });
    if (named != selection.exclude) ports.push_back(&port);
  }
  return ports;
}

bool HcaDown(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  const Selection selection(fact.value);
  if (selection.exclude) return false;
  for (const IbPort* port : Selected(fact, context)) {
    const bool spelt = std::find(selection.names.begin(), selection.names.end(), port->device) != selection.names.end();
    if (port->active() || !spelt) continue;
    words["detail"] = fmt::format("{} port {} is {}", port->device, port->port, port->state);
    return true;
  }
  return false;
}

bool HcaMixed(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  const IbPort* fastest = nullptr;
  const std::vector<const IbPort*> ports = Selected(fact, context);
  for (const IbPort* port : ports) {
    if (port->active() && (fastest == nullptr || port->gbit.value_or(0) > fastest->gbit.value_or(0))) fastest = port;
  }
  if (fastest == nullptr) return false;
  for (const IbPort* port : ports) {
    if (!port->active()) continue;
    if (port->link_layer == fastest->link_layer && port->gbit.value_or(0) == fastest->gbit.value_or(0)) continue;
    words["detail"] =
        fmt::format("{} is {} at {} Gbit/s, {} is {} at {}", port->device, port->link_layer, port->gbit.value_or(0),
                    fastest->device, fastest->link_layer, fastest->gbit.value_or(0));
    return true;
  }
  return false;
}

// One entry takes more devices than it spells.
bool HcaAmbiguous(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  const Selection selection(fact.value);
  if (selection.exact) return false;
  for (const std::string& name : selection.names) {
    const bool whole = std::any_of(context.hardware->ib.begin(), context.hardware->ib.end(),
                                   [&](const IbPort& port) { return port.device == name; });
    for (const IbPort& port : context.hardware->ib) {
      if (!whole || port.device == name || port.device.rfind(name, 0) != 0) continue;
      if (std::find(selection.names.begin(), selection.names.end(), port.device) != selection.names.end()) continue;
      words["detail"] = fmt::format("{} also takes {}", name, port.device);
      return true;
    }
  }
  return false;
}

bool GidBad(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  double index = 0;
  if (!AsNumber(fact.value, index) || index < 0) return false;
  for (const IbPort& port : context.hardware->ib) {
    if (!port.active() || port.infiniband() || port.gids.empty()) continue;
    auto gid =
        std::find_if(port.gids.begin(), port.gids.end(), [&](const hardware::Gid& one) { return one.index == index; });
    std::string right;
    for (const hardware::Gid& one : port.gids) {
      if (one.type == "RoCE v2" && one.ipv4 && right.empty())
        right = fmt::format("; index {} is RoCE v2 over IPv4", one.index);
    }
    if (gid == port.gids.end()) {
      words["detail"] = fmt::format("index {} of {} is empty{}", index, port.device, right);
      return true;
    }
    if (gid->type != "RoCE v2" && !gid->type.empty()) {
      words["detail"] = fmt::format("index {} of {} is {}{}", index, port.device, gid->type, right);
      return true;
    }
    if (!gid->ipv4 && !right.empty()) {
      words["detail"] = fmt::format("index {} of {} is {}, no IPv4 address{}", index, port.device, gid->gid, right);
      return true;
    }
  }
  return false;
}

std::vector<const Interface*> SelectedInterfaces(const Fact& fact, const LintContext& context) {
  const Selection selection(fact.value);
  std::vector<const Interface*> chosen;
  for (const Interface& one : context.hardware->interfaces) {
    const bool named = std::any_of(selection.names.begin(), selection.names.end(),
                                   [&](const std::string& name) { return selection.Matches(one.name, name); });
    if (named != selection.exclude) chosen.push_back(&one);
  }
  return chosen;
}

bool InterfaceMissing(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  if (fact.value.empty() || context.hardware->interfaces.empty() || !SelectedInterfaces(fact, context).empty())
    return false;
  std::vector<std::string> there;
  for (const Interface& one : context.hardware->interfaces) {
    if (one.up && !one.loopback) there.push_back(one.name);
  }
  words["there"] = there.empty() ? "none but loopback is up" : Join(there, ", ");
  return true;
}

bool InterfaceDown(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  const std::vector<const Interface*> chosen = SelectedInterfaces(fact, context);
  if (chosen.empty() || std::any_of(chosen.begin(), chosen.end(), [](const Interface* one) { return one->up; }))
    return false;
  words["detail"] = chosen[0]->name;
  return true;
}

bool InterfaceSeveral(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  const Selection selection(fact.value);
  if (selection.exclude || selection.exact) return false;
  for (const std::string& name : selection.names) {
    std::vector<std::string> taken;
    bool whole = false;
    for (const Interface& one : context.hardware->interfaces) {
      if (!one.up || one.name.rfind(name, 0) != 0) continue;
      whole = whole || one.name == name;
      taken.push_back(one.name);
    }
    if (whole && taken.size() > 1) {
      words["detail"] = fmt::format("{} takes {}", name, Join(taken, ", "));
      return true;
    }
  }
  return false;
}

// Every name spelt is an interface that is up.
bool InterfaceGood(const Fact& fact, const Unit&, const LintContext& context, Words&) {
  const std::vector<const Interface*> chosen = SelectedInterfaces(fact, context);
  return !chosen.empty() && std::any_of(chosen.begin(), chosen.end(), [](const Interface* one) { return one->up; });
}

bool PluginMissing(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  const std::string& value = fact.value;
  if (value.empty() || value == "none") return false;
  struct stat found{};
  if (value.find('/') != std::string::npos) {
    words["detail"] = value;
    return ::stat(value.c_str(), &found) != 0;
  }
  const std::vector<std::string>& plugins = context.hardware->net_plugins;
  const bool there = std::any_of(plugins.begin(), plugins.end(), [&](const std::string& plugin) {
    return plugin.find("libnccl-net-" + value + ".so") != std::string::npos || plugin.find(value) != std::string::npos;
  });
  words["detail"] = fmt::format("libnccl-net-{}.so", value);
  return !there;
}

bool NoPeermem(const Fact&, const Unit&, const LintContext& context, Words&) {
  return context.hardware->peermem.empty() && !context.hardware->gpus.empty() && !context.hardware->ib.empty();
}

bool WorkersExceedCpus(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  double workers = 0;
  const Hardware& here = *context.hardware;
  if (!AsNumber(fact.value, workers) || here.cpus <= 0 || here.gpus.size() < 2) return false;
  const double all = workers * static_cast<double>(here.gpus.size());
  words["detail"] = fmt::format("{} x {} ranks = {} on {}", workers, here.gpus.size(), all, Count(here.cpus, "CPU"));
  return all > here.cpus;
}

bool MoreGpusThanThere(const Fact& fact, const Unit&, const LintContext& context, Words& words) {
  const Hardware& here = *context.hardware;
  if (here.gpus.empty()) return false;
  for (const std::string& entry : Split(fact.value, ',')) {
    double index = 0;
    if (!AsNumber(std::string(Trim(entry)), index) || index < static_cast<double>(here.gpus.size())) continue;
    words["detail"] = fmt::format("GPU {} where {} are there", index, here.gpus.size());
    return true;
  }
  return false;
}

constexpr NamedCheck kHardwareChecks[] = {
    {"known", Known},
    {"ib-active", IbActive},
    {"infiniband-only", InfiniBandOnly},
    {"roce", Roce},
    {"nvlink", NvLink},
    {"pcie-only", PcieOnly},
    {"hopper", Hopper},
    {"many-hcas", ManyHcas},
    {"hca-missing", HcaMissing},
    {"hca-down", HcaDown},
    {"hca-mixed", HcaMixed},
    {"hca-ambiguous", HcaAmbiguous},
    {"gid-bad", GidBad},
    {"interface-missing", InterfaceMissing},
    {"interface-down", InterfaceDown},
    {"interface-several", InterfaceSeveral},
    {"interface-good", InterfaceGood},
    {"plugin-missing", PluginMissing},
    {"no-peermem", NoPeermem},
    {"workers-exceed-cpus", WorkersExceedCpus},
    {"gpu-not-there", MoreGpusThanThere},
};

}  // namespace

Check FindHardwareCheck(const std::string& name) { return FindIn(kHardwareChecks, name); }

}  // namespace lockstep::lint
