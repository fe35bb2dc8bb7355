// Where node 0 is reached. A default of localhost on several nodes splits a job silently, so it is an error, never a
// default; the port may be derived, because every node derives the same one.
#include <fmt/format.h>

#include "base/digits.h"
#include "base/text.h"
#include "place/facts.h"

namespace lockstep::place {
namespace {

struct Endpoint {
  std::string host;
  std::optional<int> port;
};

// host, host:port, [v6]:port or a bare v6 address.
std::optional<Endpoint> ParseEndpoint(std::string_view text) {
  Endpoint endpoint;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    endpoint.host = text.substr(1, close - 1);
    if (close + 1 < text.size()) {
      if (text[close + 1] != ':') return std::nullopt;
      port = text.substr(close + 2);
      if (port.empty()) return std::nullopt;
    }
  } else if (const size_t colon = text.find(':');
             colon != std::string_view::npos && text.find(':', colon + 1) == std::string_view::npos) {
    endpoint.host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (port.empty()) return std::nullopt;
  } else {
    endpoint.host = text;
  }
  if (endpoint.host.empty() || endpoint.host.find_first_of(" \t\r\n/@'\"$`;&|<>") != std::string::npos)
    return std::nullopt;
  if (port.empty()) return endpoint;
  endpoint.port = ParseNumber(port);
  if (!endpoint.port || *endpoint.port > 65535) return std::nullopt;
  return endpoint;
}

std::optional<std::string> ReadHost(Reader& in, const Said<std::string>& said, std::string_view flag) {
  std::optional<Endpoint> endpoint = ParseEndpoint(said.value);
  if (endpoint && !endpoint->port) return endpoint->host;
  in.Fail(fmt::format("{}: expected a host name or address{}", said.source, endpoint ? " without a port" : ""),
          fmt::format("correct it, or pass {}", flag));
  return std::nullopt;
}

// The other hosts, where the platform names them by number.
std::vector<std::string> HostsLike(HostPattern pattern, const std::string& master, int nnodes) {
  if (pattern == HostPattern::kNone || nnodes > 65536 || IsLoopback(master)) return {};
  const size_t dot = master.find('.');
  const std::string label = master.substr(0, dot), rest = dot == std::string::npos ? "" : master.substr(dot);
  std::string stem;
  int first = 0;
  std::vector<std::string> hosts;
  if (pattern == HostPattern::kMasterThenWorkers && label.ends_with("-master-0")) {
    hosts.push_back(master);
    stem = label.substr(0, label.size() - std::string_view("master-0").size()) + "worker-";
  } else if (label.ends_with("-0")) {
    stem = label.substr(0, label.size() - 1);
  } else {
    return {};
  }
  while (static_cast<int>(hosts.size()) < nnodes) hosts.push_back(stem + std::to_string(first++) + rest);
  return hosts;
}

std::string_view ShortName(std::string_view host) { return host.substr(0, host.find('.')); }

// A pod of an Indexed Job is <job>-<index>, and with its Service's domain the first one has a name that resolves.
std::optional<Said<std::string>> FirstPodOf(const Machine& machine, int node_rank) {
  const std::string& host = machine.host;
  const size_t dot = host.find('.');
  const std::string suffix = "-" + std::to_string(node_rank);
  if (dot == std::string::npos || !host.substr(0, dot).ends_with(suffix)) return std::nullopt;
  return Said<std::string>{host.substr(0, dot - suffix.size()) + "-0" + host.substr(dot), "host name " + host};
}

std::optional<Said<std::string>> FindAddress(Resolution& resolution, const PlatformFacts& facts,
                                             const std::optional<Endpoint>& endpoint) {
  Reader& in = resolution.in;
  Placement& out = resolution.out;
  const bool process = out.level == Level::kProcess;
  // Under process level the endpoint is where launchers meet; the workers' own master is said by MASTER_ADDR.
  if (endpoint && !process && !out.nested) return Said<std::string>{endpoint->host, resolution.asked.endpoint->source};
  if (resolution.asked.master_addr && !out.nested) {
    std::optional<std::string> host = ReadHost(in, *resolution.asked.master_addr, "--master-addr");
    if (host) return Said<std::string>{*host, resolution.asked.master_addr->source};
    return std::nullopt;
  }
  if (std::optional<Said<std::string>> said = in.Text(resolution.row.master_addr)) {
    std::optional<std::string> host = ReadHost(in, *said, "--master-addr");
    if (host) return Said<std::string>{*host, said->source};
    return std::nullopt;
  }
  // A platform's first host is not the master of a job that flags made smaller.
  const bool made_smaller = out.nnodes == 1 && facts.hosts.size() > 1;
  if (facts.master_addr && !made_smaller) return facts.master_addr;
  if (endpoint) return Said<std::string>{endpoint->host, resolution.asked.endpoint->source};
  if (resolution.row.name == "indexed-job" && out.node_rank && out.nnodes.value_or(1) > 1)
    return FirstPodOf(resolution.machine, *out.node_rank);
  return std::nullopt;
}

void FindPort(Resolution& resolution, const std::optional<Endpoint>& endpoint) {
  Reader& in = resolution.in;
  Placement& out = resolution.out;
  std::optional<Said<int>> port;
  if (endpoint && out.level != Level::kProcess && !out.nested) {
    const int usual = resolution.asked.backend == "c10d" ? 29400 : 29500;
    port = Said<int>{endpoint->port.value_or(usual), resolution.asked.endpoint->source};
  } else if (resolution.asked.master_port && !out.nested) {
    port = resolution.asked.master_port;
  } else if (std::optional<Said<std::string>> said = in.Text(resolution.row.master_port)) {
    std::optional<int> number = ParseNumber(said->value);
    if (said->value.find("://") != std::string::npos) {
      in.Ignored(said->source, "a Kubernetes Service named 'master' sets this for its own address");
      in.Warn(said->source + " is the address of a Kubernetes Service, not a port for training: ignored");
    } else if (number && *number <= 65535) {
      port = Said<int>{*number, said->source};
    } else {
      in.Fail(said->source + ": expected a port from 1 to 65535",
              "correct or unset MASTER_PORT, or pass --master-port");
      return;
    }
  }
  if (port && port->value == 0) {
    if (out.nnodes == 1) {
      in.Decides(port->source, "any free port");
    } else {
      in.Fail(port->source + ": several nodes need one known port", "pass --master-port with a number above 0");
    }
    return;
  }
  if (port) {
    out.master_port = port->value;
    out.master_port_explicit = true;
    in.Decides(port->source, fmt::format("master port {}", port->value));
    return;
  }
  if (out.nested) return;
  if (IsDigits(Trim(out.job_id))) {
    const std::string digits(Trim(out.job_id));
    out.master_port = 15000 + *ParseNumber(digits.substr(digits.size() > 4 ? digits.size() - 4 : 0));
    in.Supports("job id " + out.job_id,
                fmt::format("no port is given: {}, from the last four digits", *out.master_port));
    return;
  }
  // Under process level the launchers have the endpoint's port to themselves.
  const bool process = out.level == Level::kProcess;
  out.master_port = resolution.asked.backend == "c10d" && !process ? 29400 : 29500;
  if (process && endpoint && endpoint->port == out.master_port) ++*out.master_port;
  in.Supports("no MASTER_PORT", fmt::format("no port is given: {} by default", *out.master_port));
}

// Loopback on several nodes. It is right where all of them are launchers on one host, which a person means who names
// the address on the command line. Some operators tell it to node 0 alone, and variables set by hand are read likewise.
// A platform that started the nodes itself has other hosts: all of them refuse, so that none waits for the others.
void CheckLoopback(Resolution& resolution, const PlatformFacts& facts, const std::string& source, int nnodes,
                   bool first) {
  Reader& in = resolution.in;
  const bool by_hand = resolution.row.one_node_unless_said && resolution.out.level == Level::kNode;
  const bool asked = resolution.asked.master_addr || resolution.asked.endpoint;
  const bool other_hosts =
      !facts.hosts.empty() || resolution.row.rule == LevelRule::kSlurm || resolution.row.rule == LevelRule::kLocalSize;
  if (by_hand && asked) {
    in.Warn(fmt::format("{} is this host itself: the {} nodes meet only if all of them are launchers on this host",
                        source, nnodes));
  } else if (first && !other_hosts) {
    in.Warn(fmt::format(
        "{} is this host itself, but the job has {} nodes: the others must be given an address they can reach", source,
        nnodes));
  } else {
    in.Fail(fmt::format("{}: every one of {} nodes would wait for itself", source, nnodes),
            by_hand
                ? "pass --master-addr with the name or address of node 0, or with 127.0.0.1 to try several nodes on "
                  "this one host"
                : "pass --master-addr with the name or address of node 0");
  }
}

}  // namespace

void FindMaster(Resolution& resolution, const PlatformFacts& facts) {
  Reader& in = resolution.in;
  Placement& out = resolution.out;
  out.hosts = facts.hosts;
  if (resolution.asked.standalone && !out.nested) {
    out.master_addr = "127.0.0.1";
    in.Supports("--standalone", "any free port of this node");
    return;
  }
  std::optional<Endpoint> endpoint;
  if (resolution.asked.endpoint && !out.nested) {
    endpoint = ParseEndpoint(resolution.asked.endpoint->value);
    if (!endpoint)
      in.Fail(resolution.asked.endpoint->source + ": expected host or host:port", "correct --rdzv-endpoint");
  }
  std::optional<Said<std::string>> address = FindAddress(resolution, facts, endpoint);
  FindPort(resolution, endpoint);

  const int nnodes = out.nnodes.value_or(out.level == Level::kProcess ? 0 : 1);  // 0: unknown
  const bool first =
      out.starts != Starts::kOnce && (out.node_rank == 0 || (out.level == Level::kProcess && out.rank == 0));
  if (address) {
    out.master_addr = address->value;
    in.Decides(address->source, "master address " + address->value);
    if (IsLoopback(address->value) && nnodes > 1) {
      CheckLoopback(resolution, facts, address->source, nnodes, first);
    } else if (nnodes == 1 && !IsLoopback(address->value) && resolution.row.name == "local" &&
               !resolution.asked.nnodes && !endpoint) {
      in.Warn(fmt::format(
          "{} is set, but nothing says that the job has several nodes: running on this one alone (pass --nnodes)",
          address->source));
    }
  } else if (!in.failed()) {
    if (nnodes == 1) {
      out.master_addr = "127.0.0.1";
      in.Supports("one node", "master address 127.0.0.1");
    } else if (nnodes == 0 && out.world_size == 1) {
      out.master_addr = "127.0.0.1";
    } else if (first) {
      in.Warn("no MASTER_ADDR: this is node 0 and listens on all its addresses; the other nodes need --master-addr");
    } else {
      in.Fail(fmt::format("{} does not say where node 0 is", resolution.row.what),
              "pass --master-addr (or set MASTER_ADDR) with the name or address of node 0");
    }
  }
  if (out.hosts.empty() && out.master_addr && out.nnodes && out.level == Level::kNode)
    out.hosts = HostsLike(resolution.row.hosts, *out.master_addr, *out.nnodes);
  if (out.hosts.size() != static_cast<size_t>(out.nnodes.value_or(-1))) out.hosts.clear();
  if (out.hosts.empty() || !out.node_rank || *out.node_rank >= static_cast<int>(out.hosts.size()) ||
      resolution.machine.host.empty())
    return;
  const std::string_view here = ShortName(resolution.machine.host);
  for (size_t i = 0; i < out.hosts.size(); ++i)
    if (ShortName(out.hosts[i]) == here && static_cast<int>(i) != *out.node_rank && out.starts != Starts::kOnce)
      in.Warn(fmt::format("this host ({}) is listed as node {}, but the variables say node {}", resolution.machine.host,
                          i, *out.node_rank));
}

}  // namespace lockstep::place
