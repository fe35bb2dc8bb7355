// Rows about this node's side of the network: RDMA ports, the interface towards the master, its own name, free ports.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/digits.h"
#include "base/sockets.h"
#include "base/text.h"
#include "launch/ports.h"
#include "preflight/interfaces.h"
#include "preflight/rows.h"
#include "tune/settings.h"

namespace lockstep::preflight {
namespace {

using hardware::IbPort;

constexpr double kSlow = 10;   // Gbit/s: below this gradients wait for the wire
constexpr int kMinMtu = 1280;  // what IPv6 demands
constexpr int kUsualMtu = 1500;

std::string Label(const IbPort& port) { return fmt::format("{} port {}", port.device, port.port); }

std::string Value(const Environment& env, const char* name) {
  auto found = env.find(name);
  return found == env.end() ? "" : found->second;
}

// Does NCCL_IB_HCA (same grammar as the interface list, with ":port") leave this port to NCCL?
bool Selected(const IbPort& port, std::string list) {
  if (list.empty()) return true;
  bool exclude = false, exact = false;
  if (list.starts_with("^")) {
    exclude = true;
    list.erase(0, 1);
  }
  if (list.starts_with("=")) {
    exact = true;
    list.erase(0, 1);
  }
  bool named = false;
  for (const std::string& entry : Split(list, ',')) {
    const size_t colon = entry.find(':');
    const std::string name = entry.substr(0, colon);
    if (name.empty()) continue;
    if (colon != std::string::npos && ParseDigits(entry.substr(colon + 1)) != port.port) continue;
    named = named || (exact ? port.device == name : port.device.starts_with(name));
  }
  return named != exclude;
}

// By its own name, not by a beginning that fits every card ("mlx5").
bool Named(const IbPort& port, const std::string& list) {
  if (list.starts_with("^")) return false;
  for (const std::string& entry : Split(list.substr(list.starts_with("=") ? 1 : 0), ',')) {
    if (entry.substr(0, entry.find(':')) == port.device) return true;
  }
  return false;
}

// `lockstep run` will leave the odd ones out by itself.
bool TuneChooses(const CheckInput& input) {
  tune::JobShape job;
  job.nnodes = 2;
  job.nproc_per_node = input.nproc;
  job.gpus = true;
  for (const tune::Setting& setting : tune::Derive(input.here, job, input.env).set) {
    if (setting.name == "NCCL_IB_HCA" && setting.applies()) return true;
  }
  return false;
}

std::vector<std::string> Names(const hardware::Hardware& here) {
  std::vector<std::string> names;
  for (const hardware::Interface& interface : here.interfaces) {
    if (!interface.loopback) names.push_back(interface.name);
  }
  return names;
}

// Gloo takes whole names, every one of which must be there.
void CheckNamedToGloo(const CheckInput& input, CheckOutcome* outcome) {
  const char* variable = "GLOO_SOCKET_IFNAME";
  const std::string value = Value(input.env, variable);
  if (value.empty()) return;
  for (const std::string& name : Split(value, ',')) {
    const auto& all = input.here.interfaces;
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const hardware::Interface& one) { return one.name == name; });
    if (found == all.end()) {
      outcome->Fail(fmt::format("{}={}: there is no interface '{}' on this node (there are: {})", variable, value, name,
                                fmt::join(Names(input.here), ", ")),
                    "unset it, or give whole names (Gloo knows no '=', '^' or beginnings); `lockstep tune` says which");
    } else if (found->loopback && input.nnodes > 1) {
      outcome->Fail(fmt::format("{}={}: loopback does not reach other nodes", variable, value),
                    "unset it, or name the interface that does");
    } else if (!found->up) {
      outcome->Fail(fmt::format("{}={}: {} is down", variable, value, name),
                    fmt::format("ip link set {} up, or name another interface", name));
    }
  }
}

void CheckNamed(const CheckInput& input, const char* variable, CheckOutcome* outcome) {
  const std::string value = Value(input.env, variable);
  if (value.empty()) return;
  const auto named = NamedInterfaces(input.here, value);
  const std::string there = fmt::format("{}", fmt::join(Names(input.here), ", "));
  if (named.empty()) {
    outcome->Fail(fmt::format("{}={} names no interface of this node (there are: {})", variable, value, there),
                  "unset it, or name one of these; `lockstep tune` says which");
    return;
  }
  for (const hardware::Interface* interface : named) {
    if (interface->loopback && input.nnodes > 1) {
      outcome->Fail(fmt::format("{}={}: loopback does not reach other nodes", variable, value),
                    "unset it, or name the interface that does");
    } else if (!interface->up && named.size() == 1) {
      outcome->Fail(fmt::format("{}={}: {} is down", variable, value, interface->name),
                    fmt::format("ip link set {} up, or name another interface ({})", interface->name, there));
    }
  }
}

}  // namespace

bool NeedsRdma(const CheckInput& input) { return input.nnodes > 1 && !input.visible.empty(); }

CheckOutcome CheckIbPorts(const CheckInput& input) {
  if (input.here.ib.empty()) return CheckOutcome::Skip("no RDMA device");
  CheckOutcome outcome;
  // One node speaks over NVLink and PCIe, and without GPUs there is no NCCL: then nothing here stops a job.
  const State grave = NeedsRdma(input) ? State::kFail : State::kWarn;
  const auto add = [&](State state, std::string text, std::string remedy) {
    outcome.problems.push_back({state, std::move(text), std::move(remedy), {}});
  };
  const std::string list = Value(input.env, "NCCL_IB_HCA");
  std::vector<const IbPort*> selected, active, down;
  for (const IbPort& port : input.here.ib) {
    if (!Selected(port, list)) continue;
    selected.push_back(&port);
    (port.active() ? active : down).push_back(&port);
  }
  if (selected.empty()) {
    std::set<std::string> devices;
    for (const IbPort& port : input.here.ib) devices.insert(port.device);
    add(grave,
        fmt::format("NCCL_IB_HCA={} names no device of this node (there are: {})", list, fmt::join(devices, ", ")),
        "unset it: NCCL takes all active ports by itself");
    return outcome;
  }
  const auto described = [](const IbPort& port) {
    return fmt::format("{} is {}{}", Label(port), port.state.empty() ? "down" : port.state,
                       port.phys_state.empty() ? "" : " (" + port.phys_state + ")");
  };
  if (active.empty()) {
    std::vector<std::string> names;
    for (const IbPort* port : down) names.push_back(described(*port));
    add(grave, fmt::format("no RDMA port is active: {}", fmt::join(names, ", ")),
        "NCCL would fall back to TCP: look at cables, switch and subnet manager (ibstat), or set NCCL_IB_DISABLE=1 if "
        "that is meant");
    return outcome;
  }
  const std::vector<const IbPort*> missed = tune::MissedPorts(input.here);
  for (const IbPort* port : down) {
    const bool initialising = port->state == "INIT" || port->state == "ARMED";
    if (initialising && port->infiniband()) {
      add(grave, described(*port) + ": the link is up but no subnet manager has configured it",
          "start or ask for the subnet manager (opensm, or on the switch)");
    } else if (Named(*port, list)) {
      add(grave, fmt::format("{}, and NCCL_IB_HCA={} asks for it", described(*port), list),
          "repair the port, or take it out of NCCL_IB_HCA");
    } else if (std::find(missed.begin(), missed.end(), port) != missed.end()) {
      outcome.Warn(described(*port),
                   "an unused port is fine; one that should carry traffic needs its cable or switch port");
    }
  }
  std::map<std::string, std::map<double, std::vector<std::string>>> rates;
  std::vector<std::string> closed;
  for (const IbPort* port : active) {
    if (port->infiniband() && port->sm_lid && *port->sm_lid == 0) {
      add(grave, fmt::format("{} is active but knows no subnet manager (sm_lid 0)", Label(*port)),
          "start the subnet manager of that fabric");
    }
    if (port->verbs.empty()) closed.push_back(Label(*port));
    if (port->gbit) rates[port->link_layer][*port->gbit].push_back(port->device);
  }
  // A pod that has a card of its own still sees the host's others in /sys.
  if (closed.size() == active.size() && input.root.empty() && Value(input.env, "NCCL_IB_DISABLE") != "1") {
    outcome.Warn(
        fmt::format("{} {} active, but programs here cannot open {}: no /dev/infiniband/uverbs*",
                    fmt::join(closed, ", "), closed.size() == 1 ? "is" : "are", closed.size() == 1 ? "it" : "them"),
        "NCCL would use TCP instead: give the container the devices (--device /dev/infiniband, an RDMA "
        "device plugin) and the capability IPC_LOCK");
  }
  for (const auto& [layer, by_rate] : rates) {
    if (by_rate.size() < 2 || TuneChooses(input)) continue;
    std::vector<std::string> parts;
    for (const auto& [gbit, devices] : by_rate) {
      parts.push_back(fmt::format("{:g} Gbit/s: {}", gbit, fmt::join(devices, ", ")));
    }
    outcome.Warn(fmt::format("ports of different rates ({})", fmt::join(parts, "; ")),
                 "a port that trained low needs its cable looked at; ports of another role (storage) belong out of "
                 "NCCL_IB_HCA");
  }
  outcome.note = fmt::format("{} of {} active", active.size(), Count(static_cast<int64_t>(selected.size()), "port"));
  if (rates.size() == 1 && rates.begin()->second.size() == 1) {
    outcome.note += fmt::format(", {:g} Gbit/s", rates.begin()->second.begin()->first);
  }
  if (!closed.empty() && closed.size() < active.size()) {
    outcome.note += fmt::format("; {} can be opened here", active.size() - closed.size());
  }
  return outcome;
}

CheckOutcome CheckInterface(const CheckInput& input) {
  CheckOutcome outcome;
  CheckNamed(input, "NCCL_SOCKET_IFNAME", &outcome);
  CheckNamed(input, "NCCL_OOB_NET_IFNAME", &outcome);
  CheckNamedToGloo(input, &outcome);
  if (input.nnodes <= 1) {
    if (outcome.problems.empty()) return CheckOutcome::Skip("one node");
    return outcome;
  }
  if (input.master_address.empty()) {
    outcome.Fail(fmt::format("the master '{}' has no address here: {}", input.master, input.master_trouble),
                 "correct --master-addr, or give the name to DNS or /etc/hosts");
    return outcome;
  }
  const hardware::Interface* interface = InterfaceWith(input.here, input.master_address);
  if (interface == nullptr) interface = hardware::RouteTo(input.here, input.master_address);
  if (interface == nullptr) {
    outcome.Fail(fmt::format("no route to the master {} ({})", input.master, input.master_address),
                 "bring the interface of that network up, or give --master-addr an address all nodes share");
    return outcome;
  }
  if (interface->loopback && input.first) {
    // Node 0 under a loopback name is served; whether others reach it shows when they come.
    outcome.note = "this is the master, by a loopback name";
    return outcome;
  }
  outcome.note =
      fmt::format("{}{}{}", interface->name, interface->gbit ? fmt::format(", {:g} Gbit/s", *interface->gbit) : "",
                  interface->mtu ? fmt::format(", MTU {}", *interface->mtu) : "");
  if (!interface->up) {
    outcome.Fail(fmt::format("{}, towards the master {}, is down", interface->name, input.master_address),
                 fmt::format("ip link set {} up; look at its cable", interface->name));
  }
  if (interface->mtu && *interface->mtu < kMinMtu) {
    outcome.Fail(fmt::format("{} has an MTU of {}", interface->name, *interface->mtu),
                 fmt::format("ip link set {} mtu {}", interface->name, kUsualMtu));
  }
  bool rdma = false;
  for (const IbPort& port : input.here.ib) rdma = rdma || port.active();
  if (interface->gbit && *interface->gbit < kSlow && !rdma) {
    outcome.Warn(fmt::format("{} runs at {:g} Gbit/s, and there is no RDMA", interface->name, *interface->gbit),
                 "gradients of large models will wait for it; is there a faster network? (lockstep doctor hardware)");
  }
  return outcome;
}

CheckOutcome CheckHostName(const CheckInput& input) {
  const std::string& host = input.here.host;
  CheckOutcome outcome;
  auto addresses = Resolve(host, 0);
  const bool told = !Value(input.env, "GLOO_SOCKET_IFNAME").empty();
  // One node speaks to itself on any address; NCCL never looks at the name; Gloo advertises what it resolves to.
  const auto report = [&](const std::string& text, const std::string& remedy) {
    if (input.nnodes <= 1 || told) {
      outcome.note = text;
    } else if (input.tuned) {
      outcome.Warn(text, "`lockstep run` names the right interface to Gloo by itself; for other launchers: " + remedy);
    } else if (input.visible.empty()) {
      outcome.Fail(text, remedy);
    } else {
      outcome.Warn(text, remedy);
    }
  };
  if (!addresses.ok() || addresses->empty()) {
    report(fmt::format("'{}' does not resolve on its own machine; Gloo would use loopback", host),
           fmt::format("give the name to DNS or to /etc/hosts, or set GLOO_SOCKET_IFNAME"));
    return outcome;
  }
  const Address& first = addresses->front();
  if (first.IsLoopback()) {
    report(fmt::format("'{}' is {} on its own machine; Gloo would tell the others that address", host, first.Host()),
           fmt::format("let /etc/hosts map {} to the address others use instead of {}, or set GLOO_SOCKET_IFNAME", host,
                       first.Host()));
    return outcome;
  }
  if (!IsLocal(first)) {
    report(fmt::format("'{}' is {}, which is no address of this machine", host, first.Host()),
           "correct DNS or /etc/hosts");
    return outcome;
  }
  outcome.note = fmt::format("{} is {}", host, first.Host());
  return outcome;
}

CheckOutcome CheckPorts(const CheckInput& input) {
  if (!input.first) return CheckOutcome::Skip("only node 0 listens");
  CheckOutcome outcome;
  std::vector<int> free;
  for (int port : {input.launcher_port, input.worker_port}) {
    if (port == 0) continue;
    const Status status = launch::ProbePort(port);
    if (status.ok()) {
      free.push_back(port);
    } else {
      outcome.Fail(status.message(), "stop that process, or choose another port with --master-port on every node");
    }
  }
  if (input.worker_port == 0) {
    launch::PortPicker picker(input.port_range);
    auto port = picker.Next(input.launcher_port);
    if (port.ok()) {
      free.push_back(*port);
    } else {
      outcome.Fail(port.status().message(), port.status().hint());
    }
  }
  outcome.note = fmt::format("{} free", fmt::join(free, ", "));
  return outcome;
}

}  // namespace lockstep::preflight
