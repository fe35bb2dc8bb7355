// The rows about what lies between the nodes: clocks, names, ports, packets, rates.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "preflight/compare.h"

namespace lockstep::preflight {
namespace {

constexpr double kSkewWarn = 0.5, kSkewFail = 5;  // seconds
constexpr double kSlowPair = 0.33;                // of the median of all pairs
constexpr double kSlowLink = 0.3;                 // of what the interface says it is, as one stream sees it
constexpr double kStreamRate = 10e9;              // what one TCP stream can be expected to carry
constexpr double kNoCluster = 0.5e9;              // less than this is no network for training, whatever the card says
constexpr size_t kShown = 8;                      // problems of one kind; the rest is counted

std::string One(int node, const std::vector<NodeFacts>& all) { return NodeNames({node}, all); }

// Many pairs with one node in common are one problem: that node.
using Edge = SlowPair;

std::optional<int> Hub(const std::vector<Edge>& edges) {
  if (edges.size() < 3) return std::nullopt;
  std::map<int, size_t> counts;
  for (const Edge& edge : edges) {
    ++counts[edge.from];
    ++counts[edge.to];
  }
  for (const auto& [node, count] : counts) {
    if (count == edges.size()) return node;
  }
  return std::nullopt;
}

void AddEdges(CheckOutcome* outcome, State state, const std::vector<Edge>& edges, const std::vector<NodeFacts>& all,
              const std::string& verb, const std::string& remedy) {
  if (const auto hub = Hub(edges)) {
    std::set<int> others;
    for (const Edge& edge : edges) others.insert(edge.from == *hub ? edge.to : edge.from);
    AddProblem(outcome, state,
               fmt::format("{} and {}: {}{}{}", One(*hub, all), NodeNames({others.begin(), others.end()}, all), verb,
                           edges[0].text.empty() ? "" : " ", edges[0].text),
               remedy, {*hub});
    return;
  }
  for (size_t i = 0; i < edges.size() && i < kShown; ++i) {
    AddProblem(outcome, state,
               fmt::format("{} to {}: {}{}{}", One(edges[i].from, all), One(edges[i].to, all), verb,
                           edges[i].text.empty() ? "" : " ", edges[i].text),
               remedy, {edges[i].from, edges[i].to});
  }
  if (edges.size() > kShown) {
    AddProblem(outcome, state, fmt::format("and {} more pairs", edges.size() - kShown), remedy, {});
  }
}

std::string Sampled(bool sampled) { return sampled ? ", of a sample of pairs (--full tries all)" : ""; }

size_t Pairs(const std::vector<Findings>& findings) {
  size_t pairs = 0;
  for (const Findings& one : findings) pairs += one.reached.size();
  return pairs;
}

}  // namespace

CheckResult CompareClocks(const std::vector<NodeFacts>& all, const std::vector<launch::ClockReading>& clocks) {
  CheckOutcome outcome;
  // Against the middle of all, so that one wrong clock on node 0 is not reported for all others.
  std::vector<double> offsets;
  for (const launch::ClockReading& clock : clocks) offsets.push_back(clock.offset);
  if (offsets.empty()) return {"clock-skew", CheckOutcome::Skip("not measured")};
  std::vector<double> sorted = offsets;
  std::sort(sorted.begin(), sorted.end());
  const double middle = sorted[(sorted.size() - 1) / 2];
  const double spread = sorted.back() - sorted.front();
  double error = 0;
  for (size_t i = 0; i < clocks.size(); ++i) {
    error = std::max(error, clocks[i].error);
    const double skew = offsets[i] - middle;
    if (std::abs(skew) <= kSkewWarn + clocks[i].error) continue;
    const auto node = static_cast<int>(i);
    // Of two nodes nobody can say whose clock is right.
    const bool pair = clocks.size() == 2;
    AddProblem(&outcome, std::abs(skew) > kSkewFail ? State::kFail : State::kWarn,
               pair ? fmt::format("the clocks of {} differ by {:.2f} s", NodeNames({0, 1}, all), std::abs(skew))
                    : fmt::format("the clock of {} is {:.2f} s {} the others", One(node, all), std::abs(skew),
                                  skew > 0 ? "ahead of" : "behind"),
               "synchronise it (chronyc makestep, or timedatectl set-ntp true): logs of ranks cannot be ordered, and "
               "certificates and locks may fail",
               pair ? std::vector<int>{0, 1} : std::vector<int>{node});
  }
  outcome.note = fmt::format("within {:.1f} ms", (spread + error) * 1000);
  return {"clock-skew", outcome};
}

CheckResult CompareNames(const std::vector<NodeFacts>& all, const std::vector<Findings>& findings, bool sampled) {
  CheckOutcome outcome;
  size_t tried = 0;
  for (State state : {State::kFail, State::kWarn}) {
    // The same complaint about the same node by several others is one.
    std::map<std::pair<int, std::string>, std::vector<int>> told;
    for (size_t i = 0; i < findings.size(); ++i) {
      for (const Lookup& lookup : findings[i].names) {
        tried += state == State::kFail;
        if (lookup.state == state) told[{lookup.node, lookup.text}].push_back(static_cast<int>(i));
      }
    }
    size_t shown = 0;
    for (const auto& [what, by] : told) {
      if (++shown > kShown) {
        AddProblem(&outcome, state, fmt::format("and {} more names", told.size() - kShown), "correct DNS or /etc/hosts",
                   {});
        break;
      }
      AddProblem(&outcome, state, fmt::format("on {}: {}", NodeNames(by, all), what.second),
                 state == State::kFail
                     ? "correct /etc/hosts or DNS there"
                     : "nothing in PyTorch needs it when --master-addr is known; ssh and MPI do: add the name "
                       "to DNS or /etc/hosts",
                 by);
    }
  }
  outcome.note = fmt::format("{} names{}", tried, Sampled(sampled));
  return {"dns", outcome};
}

CheckResult CompareReach(const std::vector<NodeFacts>& all, const std::vector<Findings>& findings, bool sampled) {
  CheckOutcome outcome;
  std::vector<Edge> broken;
  double slowest = 0;
  for (size_t i = 0; i < findings.size(); ++i) {
    for (const Reached& one : findings[i].reached) {
      if (!one.trouble.empty()) {
        broken.push_back({static_cast<int>(i), one.node,
                          fmt::format("{} ({})", all[static_cast<size_t>(one.node)].net.address, one.trouble)});
      } else {
        slowest = std::max(slowest, one.round_trip);
      }
    }
  }
  AddEdges(&outcome, State::kFail, broken, all, "cannot connect to",
           "open all TCP ports between the nodes (security group, firewalld, nft list ruleset); if that address is of "
           "the wrong network, choose with NCCL_SOCKET_IFNAME");
  outcome.note = fmt::format("{} directions{}", Pairs(findings), Sampled(sampled));
  if (slowest > 0) outcome.note += fmt::format(", round trip at most {:.0f} us", slowest * 1e6);
  return {"reach", outcome};
}

CheckResult CompareRange(const std::vector<NodeFacts>& all, const std::vector<Findings>& findings) {
  CheckOutcome outcome;
  bool tried = false;
  std::vector<Edge> closed, others;
  for (const NodeFacts& facts : all) tried = tried || !facts.net.probe.range_ports.empty();
  if (!tried) return {"port-range", CheckOutcome::Skip("no such port could be opened")};
  for (size_t i = 0; i < findings.size(); ++i) {
    for (const Reached& one : findings[i].reached) {
      // A node that is not reached at all is another row's.
      if (one.closed.empty() || !one.trouble.empty()) continue;
      std::vector<int> ports;
      for (const auto& [port, why] : one.closed) ports.push_back(port);
      Edge edge{static_cast<int>(i), one.node, fmt::format("{} ({})", fmt::join(ports, ", "), one.closed[0].second)};
      (one.node == 0 ? closed : others).push_back(std::move(edge));
    }
  }
  const char* remedy =
      "open the range in the firewall between them, or choose one that is open with --port-range FIRST-LAST";
  AddEdges(&outcome, State::kFail, closed, all, "cannot connect to port", remedy);
  // Only rank 0 listens there; elsewhere it is a sign of the same firewall.
  AddEdges(&outcome, State::kWarn, others, all, "cannot connect to port", remedy);
  std::vector<std::string> ports;
  for (int port : all[0].net.probe.range_ports) ports.push_back(std::to_string(port));
  outcome.note = fmt::format("ports {} of node 0 and as many of the others", fmt::join(ports, ", "));
  return {"port-range", outcome};
}

CheckResult CompareMtu(const std::vector<NodeFacts>& all, const std::vector<Findings>& findings) {
  CheckOutcome outcome;
  std::set<int> sizes;
  std::vector<Edge> small;
  std::vector<Edge> mute;
  size_t tried = 0;
  for (size_t i = 0; i < findings.size(); ++i) {
    for (const Reached& one : findings[i].reached) {
      if (one.mtu_sent == 0 || !one.trouble.empty()) continue;
      ++tried;
      if (!one.udp) {
        mute.push_back({static_cast<int>(i), one.node, ""});
      } else if (one.mtu_through < one.mtu_sent) {
        small.push_back({static_cast<int>(i), one.node,
                         fmt::format("of {} bytes is lost, {} came through", one.mtu_sent, one.mtu_through)});
      } else {
        sizes.insert(one.mtu_sent);
      }
    }
  }
  AddEdges(&outcome, State::kFail, small, all, "a packet",
           "give every interface on the way the same MTU (ip link set DEV mtu N), switches and tunnels included; "
           "connections over such a path stall when much is sent");
  if (!mute.empty()) {
    AddEdges(&outcome, State::kWarn, mute, all, "UDP packets do not come through",
             "sizes could not be tried: open UDP, or try `ping -M do -s 1472` by hand");
  }
  if (tried == 0) return {"mtu", CheckOutcome::Skip("no packet could be tried")};
  if (!sizes.empty()) outcome.note = fmt::format("{} bytes unfragmented", fmt::join(sizes, " or "));
  const auto [low, high] = [&] {
    int least = 0, most = 0;
    for (const NodeFacts& facts : all) {
      if (facts.net.mtu == 0) continue;
      least = least == 0 ? facts.net.mtu : std::min(least, facts.net.mtu);
      most = std::max(most, facts.net.mtu);
    }
    return std::pair{least, most};
  }();
  if (low != high && small.empty()) {
    std::vector<int> nodes;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].net.mtu == low) nodes.push_back(static_cast<int>(i));
    }
    AddProblem(&outcome, State::kWarn, fmt::format("{}: MTU {}, others {}", NodeNames(nodes, all), low, high),
               "set the same on every node", nodes);
  }
  return {"mtu", outcome};
}

std::vector<SlowPair> SlowPairs(const std::vector<NodeFacts>& all, const std::vector<PairRate>& rates) {
  std::vector<double> good;
  for (const PairRate& rate : rates) {
    if (rate.bits > 0) good.push_back(rate.bits);
  }
  std::sort(good.begin(), good.end());
  const double median = good.empty() ? 0 : good[good.size() / 2];
  std::vector<SlowPair> slow;
  for (const PairRate& rate : rates) {
    const double from = all[static_cast<size_t>(rate.from)].net.gbit, to = all[static_cast<size_t>(rate.to)].net.gbit;
    const double link = from > 0 && to > 0 ? std::min(from, to) * 1e9 : 0;
    const auto back = std::find_if(rates.begin(), rates.end(),
                                   [&](const PairRate& one) { return one.from == rate.to && one.to == rate.from; });
    if (rate.bits <= 0) {
      slow.push_back(
          {rate.from, rate.to, fmt::format("no rate: {}", rate.trouble.empty() ? "the stream broke" : rate.trouble)});
    } else if (link > 0 && rate.bits < kSlowLink * std::min(link, kStreamRate)) {
      slow.push_back(
          {rate.from, rate.to, fmt::format("{:.2f} Gbit/s over links of {:g} Gbit/s", rate.bits / 1e9, link / 1e9)});
    } else if (good.size() > 4 && rate.bits < kSlowPair * median) {
      slow.push_back(
          {rate.from, rate.to, fmt::format("{:.2f} Gbit/s, the median is {:.2f}", rate.bits / 1e9, median / 1e9)});
    } else if (back != rates.end() && rate.bits < kSlowPair * back->bits) {
      slow.push_back(
          {rate.from, rate.to, fmt::format("{:.2g} Gbit/s, the way back {:.2g}", rate.bits / 1e9, back->bits / 1e9)});
    } else if (link == 0 && rate.bits < kNoCluster) {
      slow.push_back({rate.from, rate.to, fmt::format("{:.2g} Gbit/s", rate.bits / 1e9)});
    }
  }
  return slow;
}

CheckResult CompareRates(const std::vector<NodeFacts>& all, const std::vector<PairRate>& rates, bool sampled) {
  CheckOutcome outcome;
  if (rates.empty()) return {"rate", CheckOutcome::Skip("no pair could be measured")};
  AddEdges(&outcome, State::kWarn, SlowPairs(all, rates), all, "slow:",
           "look at cables, switch ports and other traffic (ethtool -S, ip -s link); measure longer with --full");
  std::vector<double> good;
  for (const PairRate& rate : rates) {
    if (rate.bits > 0) good.push_back(rate.bits);
  }
  if (!good.empty()) {
    const auto [low, high] = std::minmax_element(good.begin(), good.end());
    outcome.note = fmt::format("{:.2g} to {:.2g} Gbit/s by one stream{}", *low / 1e9, *high / 1e9, Sampled(sampled));
  }
  return {"rate", outcome};
}

}  // namespace lockstep::preflight
