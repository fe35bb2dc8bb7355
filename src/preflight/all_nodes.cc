#include "preflight/all_nodes.h"

#include <fmt/format.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "base/json.h"
#include "base/sockets.h"
#include "launch/admission.h"
#include "preflight/compare.h"
#include "preflight/interfaces.h"

namespace lockstep::preflight {
namespace {

using launch::LauncherGroup;
using launch::Participant;

constexpr Millis kRound{20000};  // for the slowest node
constexpr Millis kReach{2000};   // one lost first packet of a connection is sent again after a second
constexpr Millis kNames{2500};
constexpr Millis kStandardStream{40}, kFullStream{250};
constexpr int kEverybody = 64;        // nodes that all try each other
constexpr int kStandardMatches = 15;  // rounds of rates: all pairs up to 16 nodes
constexpr int kClockSamples = 16;
constexpr size_t kMeasuredAgain = 8;  // slow pairs that are measured a second time

// ---- who is a node ------------------------------------------------------------------------------------------------

// Slots of the participants that speak for a node: all of them, or on process level the first of each host.
std::vector<int> Speakers(const std::vector<Participant>& participants) {
  std::vector<int> speakers;
  std::set<std::pair<std::string, std::string>> hosts;
  for (size_t i = 0; i < participants.size(); ++i) {
    const Participant& participant = participants[i];
    if (participant.level == place::Level::kProcess && !hosts.insert({participant.boot_id, participant.host}).second)
      continue;
    speakers.push_back(static_cast<int>(i));
  }
  return speakers;
}

// The address packets to `peer` would come from.
std::string SourceTowards(const std::string& peer) {
  auto addresses = Resolve(peer, 9);
  if (!addresses.ok() || addresses->empty()) return "";
  const Address& to = addresses->front();
  const UniqueFd fd(socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  Address from;
  from.length = sizeof from.storage;
  if (!fd || connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.length) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.length) != 0) {
    return "";
  }
  return from.Host();
}

// The interface the user chose for collectives, when it means one here.
const hardware::Interface* Chosen(const CheckInput& input) {
  for (const char* variable : {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    auto value = input.env.find(variable);
    if (value == input.env.end() || value->second.empty()) continue;
    for (const hardware::Interface* interface : NamedInterfaces(input.here, value->second)) {
      if (interface->up && !interface->loopback && !AddressOf(*interface).empty()) return interface;
    }
  }
  return nullptr;
}

// As the kernel has it now, in this network namespace; 0: unknown.
int LiveMtu(const std::string& name) {
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  if (!fd || name.size() >= sizeof request.ifr_name) return 0;
  std::memcpy(request.ifr_name, name.c_str(), name.size() + 1);
  return ioctl(fd.get(), SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
}

void Describe(const CheckInput& input, const std::string& towards, Network* net) {
  const hardware::Interface* interface = Chosen(input);
  net->address = interface != nullptr ? AddressOf(*interface) : SourceTowards(towards);
  if (interface == nullptr) interface = InterfaceWith(input.here, net->address);
  if (interface != nullptr) {
    net->interface = interface->name;
    net->mtu = interface->loopback ? 0 : LiveMtu(interface->name);
    net->gbit = interface->loopback ? 0 : interface->gbit.value_or(0);
  }
  for (const hardware::Interface& one : input.here.interfaces) {
    for (const std::string& text : one.addresses) {
      if (!one.loopback && !text.starts_with("fe80")) net->addresses.push_back(text.substr(0, text.find('/')));
    }
  }
}

std::vector<std::pair<int, int>> Ranges(const CheckInput& input) {
  // On process level the workers' port is given; otherwise the bottom, the middle and the top of the range.
  if (input.worker_port > 0) {
    if (!input.first) return {};
    return {{input.worker_port, input.worker_port}};
  }
  const auto [first, last] = input.port_range.value_or(std::pair{20000, 32767});
  const int third = std::max(1, (last - first + 1) / 3);
  std::vector<std::pair<int, int>> ranges;
  for (int begin = first; begin <= last && ranges.size() < 3; begin += third) {
    ranges.emplace_back(begin, ranges.size() == 2 ? last : std::min(last, begin + third - 1));
  }
  return ranges;
}

// ---- names --------------------------------------------------------------------------------------------------------

Lookup Judge(int node, const NodeFacts& peer, const Result<std::vector<Address>>& found) {
  if (!found.ok() || found->empty()) {
    return {node, State::kWarn, fmt::format("'{}' does not resolve", peer.host)};
  }
  std::vector<std::string> seen;
  for (const Address& address : *found) {
    const std::string text = address.Host();
    if (text == peer.net.address) return {node, State::kOk, ""};
    for (const std::string& own : peer.net.addresses) {
      if (text == own) return {node, State::kOk, ""};
    }
    seen.push_back(text);
  }
  return {node, State::kFail,
          fmt::format("'{}' is {}, but that node is {}", peer.host, seen.front(), peer.net.address)};
}

// Names of all peers at once, on threads that are left behind when the name server hangs.
class NameQuestions {
 public:
  NameQuestions(const std::vector<NodeFacts>& nodes, std::vector<int> peers) : peers_(std::move(peers)) {
    shared_->answers.resize(peers_.size());
    shared_->hosts.reserve(peers_.size());
    for (int peer : peers_) shared_->hosts.push_back(nodes[static_cast<size_t>(peer)]);
    for (size_t i = 0; i < std::min<size_t>(16, peers_.size()); ++i) {
      std::thread([shared = shared_, peers = peers_] {
        while (true) {
          size_t mine = 0;
          {
            const std::lock_guard lock(shared->mutex);
            if (shared->next >= peers.size()) return;
            mine = shared->next++;
          }
          Lookup lookup = Judge(peers[mine], shared->hosts[mine], Resolve(shared->hosts[mine].host, 0));
          const std::lock_guard lock(shared->mutex);
          shared->answers[mine] = std::move(lookup);
          ++shared->done;
          shared->changed.notify_all();
        }
      }).detach();
    }
  }

  std::vector<Lookup> Answers(TimePoint deadline) {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait_until(lock, deadline, [&] { return shared_->done == peers_.size(); });
    std::vector<Lookup> answers;
    for (size_t i = 0; i < peers_.size(); ++i) {
      answers.push_back(shared_->answers[i].value_or(
          Lookup{peers_[i], State::kWarn, fmt::format("'{}' does not resolve in time", shared_->hosts[i].host)}));
    }
    return answers;
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<NodeFacts> hosts;
    std::vector<std::optional<Lookup>> answers;
    size_t next = 0, done = 0;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::vector<int> peers_;
};

// ---- rates --------------------------------------------------------------------------------------------------------

Json ToJson(const std::vector<PairRate>& rates) {
  Json list = Json::array();
  for (const PairRate& rate : rates) {
    list.push_back({{"from", rate.from}, {"to", rate.to}, {"bits", rate.bits}, {"trouble", rate.trouble}});
  }
  return list;
}

std::vector<PairRate> RatesFromJson(const Json& json) {
  std::vector<PairRate> rates;
  if (!json.is_array()) return rates;
  for (const Json& one : json) {
    rates.push_back({static_cast<int>(GetInt(one, "from", -1)), static_cast<int>(GetInt(one, "to", -1)),
                     GetNumber(one, "bits"), GetString(one, "trouble")});
  }
  return rates;
}

Target TargetOf(int node, const NodeFacts& facts) {
  Target target = facts.net.probe;
  target.node = node;
  target.address = facts.net.address;
  return target;
}

// Rounds of the tournament that are played: all, or as many as there is time for, spread over the whole.
std::vector<size_t> Rounds(size_t all, bool full) {
  std::vector<size_t> rounds;
  const size_t most = full ? all : std::min<size_t>(all, kStandardMatches);
  for (size_t i = 0; i < most; ++i) rounds.push_back(i * all / most);
  return rounds;
}

// What each node has to know of the others to try the network: no checks, no environment.
Json Card(const NodeFacts& facts) {
  NodeFacts card;
  card.host = facts.host;
  card.net = facts.net;
  return card.ToJson();
}

// ---- node 0 -------------------------------------------------------------------------------------------------------

class NodeZero {
 public:
  NodeZero(const Options& options, LauncherGroup& group) : options_(options), group_(group) {}

  // Round 1: facts in, addresses of all out.
  Json Introduce(const std::vector<Json>& documents, const CheckInput& input) {
    speakers_ = Speakers(group_.participants());
    const std::vector<std::string> addresses = group_.addresses();
    Json cards = Json::array(), slots = Json::array();
    for (int slot : speakers_) {
      NodeFacts facts = NodeFacts::FromJson(documents[static_cast<size_t>(slot)]);
      // Where a participant does not know its own address, its connection does.
      if (facts.net.address.empty() && slot != 0) facts.net.address = addresses[static_cast<size_t>(slot)];
      report_.nodes.push_back(std::move(facts));
      slots.push_back(slot);
    }
    if (Chosen(input) == nullptr && report_.nodes.size() > 1) {
      // Node 0 is where the others come to; which of its addresses that is, they decide.
      Network& net = report_.nodes[0].net;
      net.addresses.clear();
      Describe(input, report_.nodes[1].net.address, &net);
    }
    for (const NodeFacts& facts : report_.nodes) cards.push_back(Card(facts));
    if (options_.selection.Has("clock-skew")) {
      const auto readings = group_.ReadClocks(kClockSamples, kReach);
      for (int slot : speakers_) report_.clocks.push_back(readings[static_cast<size_t>(slot)]);
    }
    // Node 0's flags decide how many rounds follow, so that all stay in step whatever theirs say.
    std::vector<size_t> rounds;
    if (options_.selection.Has("rate")) {
      rounds = Rounds(Tournament(static_cast<int>(report_.nodes.size())).size(), options_.full);
    }
    return {{"seats", slots},
            {"cards", cards},
            {"explain", DifferingTrees(report_.nodes)},
            {"rounds", rounds},
            {"stream_ms", (options_.full ? kFullStream : kStandardStream).count()}};
  }

  // Round 2: what each node found of the others.
  Json TakeFindings(const std::vector<Json>& documents) {
    for (int slot : speakers_) report_.findings.push_back(Findings::FromJson(documents[static_cast<size_t>(slot)]));
    return Json::object();
  }

  Json TakeRates(const std::vector<Json>& documents) {
    for (int slot : speakers_) {
      for (PairRate& rate : RatesFromJson(documents[static_cast<size_t>(slot)])) {
        const auto count = static_cast<int>(report_.nodes.size());
        if (rate.from < 0 || rate.from >= count || rate.to < 0 || rate.to >= count) continue;
        auto known = std::find_if(report_.rates.begin(), report_.rates.end(),
                                  [&](const PairRate& one) { return one.from == rate.from && one.to == rate.to; });
        // Other work on a node only ever slows a stream: of two measurements the faster is nearer the truth.
        if (known == report_.rates.end()) {
          report_.rates.push_back(rate);
        } else if (rate.bits > known->bits) {
          *known = rate;
        }
      }
    }
    return Json::object();
  }

  // Slow pairs are measured once more, as many at a time as have no node in common.
  Json Again() const {
    std::vector<std::vector<std::pair<int, int>>> rounds;
    std::set<std::pair<int, int>> planned;
    for (const SlowPair& slow : SlowPairs(report_.nodes, report_.rates)) {
      const std::pair match{std::min(slow.from, slow.to), std::max(slow.from, slow.to)};
      if (planned.size() >= kMeasuredAgain || !planned.insert(match).second) continue;
      const auto free = [&](const std::vector<std::pair<int, int>>& round) {
        return std::none_of(round.begin(), round.end(), [&](const auto& other) {
          return other.first == match.first || other.first == match.second || other.second == match.first ||
                 other.second == match.second;
        });
      };
      auto round = std::find_if(rounds.begin(), rounds.end(), free);
      if (round == rounds.end()) round = rounds.insert(rounds.end(), {{}});
      round->push_back(match);
    }
    return rounds;
  }

  Json Conclude() {
    const auto count = static_cast<int>(report_.nodes.size());
    report_.sampled = static_cast<int>(Contacts(0, count, options_.full).size()) < count - 1;
    const bool few_matches = !options_.full && count > kStandardMatches + 1;
    std::vector<CheckResult> results = CompareFacts(report_.nodes);
    NameDifferences(report_.findings, &results);
    results.push_back(CompareClocks(report_.nodes, report_.clocks));
    results.push_back(CompareNames(report_.nodes, report_.findings, report_.sampled));
    results.push_back(CompareReach(report_.nodes, report_.findings, report_.sampled));
    results.push_back(CompareRange(report_.nodes, report_.findings));
    results.push_back(CompareMtu(report_.nodes, report_.findings));
    results.push_back(CompareRates(report_.nodes, report_.rates, few_matches));
    for (CheckResult& result : results) {
      if (options_.selection.Has(result.id)) report_.all.push_back(std::move(result));
    }
    // What is told to all is what is worth reading: no secrets of probes, no listings, no environment.
    for (NodeFacts& node : report_.nodes) {
      node.env.clear();
      node.net.probe = {};
      for (auto& [name, tree] : node.trees) tree.entries.clear();
    }
    for (Findings& one : report_.findings) one.trees.clear();
    if (count <= kEverybody) return report_.ToJson();
    // Of many nodes the others hear what is wrong; the whole stays with node 0.
    PreflightReport told = report_;
    told.findings.clear();
    told.rates.clear();
    for (NodeFacts& node : told.nodes) {
      std::erase_if(node.checks, [](const CheckResult& check) { return check.outcome.state() < State::kWarn; });
      node.software.clear();
      node.trees.clear();
    }
    return told.ToJson();
  }

  const PreflightReport& report() const { return report_; }

 private:
  const Options& options_;
  LauncherGroup& group_;
  std::vector<int> speakers_;
  PreflightReport report_;
};

// ---- all nodes ----------------------------------------------------------------------------------------------------

Findings TryNetwork(const Options& options, const std::vector<NodeFacts>& nodes, int self, const NodeFacts& mine,
                    const std::vector<std::string>& explain) {
  Findings findings;
  const Selection& selection = options.selection;
  const std::vector<int> peers = Contacts(self, static_cast<int>(nodes.size()), options.full);
  std::optional<NameQuestions> names;
  const TimePoint start = Now();
  if (selection.Has("dns")) names.emplace(nodes, peers);
  const bool mtu = selection.Has("mtu");
  if (selection.Has("reach") || selection.Has("port-range") || selection.Has("rate") || mtu) {
    std::vector<Target> targets;
    for (int peer : peers) {
      targets.push_back(TargetOf(peer, nodes[static_cast<size_t>(peer)]));
      if (!selection.Has("port-range")) targets.back().range_ports.clear();
    }
    findings.reached = ReachAll(targets, mtu ? mine.net.mtu : 0, kReach);
  }
  for (const std::string& name : explain) {
    auto tree = mine.trees.find(name);
    if (tree != mine.trees.end()) findings.trees[name] = tree->second;
  }
  if (names) findings.names = names->Answers(start + kNames);
  return findings;
}

// The match of this node in one round; only the lower of the two measures, for both directions.
std::vector<PairRate> Play(const std::vector<std::pair<int, int>>& matches, int self,
                           const std::vector<NodeFacts>& nodes, const Findings& findings, Millis time) {
  for (const auto& [low, high] : matches) {
    if (low != self) continue;
    const int other = high;
    const auto reached = std::find_if(findings.reached.begin(), findings.reached.end(),
                                      [&](const Reached& one) { return one.node == other; });
    // What cannot be reached is another row's; it would only hold up the tournament.
    if (reached != findings.reached.end() && !reached->trouble.empty()) return {};
    auto rate = MeasureRate(TargetOf(other, nodes[static_cast<size_t>(other)]), time);
    if (!rate.ok()) return {{self, other, 0, rate.status().message()}};
    return {{self, other, rate->forth, ""}, {other, self, rate->back, ""}};
  }
  return {};
}

}  // namespace

std::vector<int> Contacts(int node, int count, bool full) {
  std::set<int> peers;
  if (full || count <= kEverybody) {
    for (int i = 0; i < count; ++i) peers.insert(i);
  } else {
    // Node 0, the neighbours in the ring (NCCL's), and doubling steps (its trees).
    peers.insert(0);
    for (int step = 1; step < count; step *= 2) {
      peers.insert((node + step) % count);
      peers.insert((node - step + count) % count);
    }
  }
  peers.erase(node);
  return {peers.begin(), peers.end()};
}

PreflightReport CheckAllNodes(const launch::LaunchPlan& plan, const Options& options, const CheckInput& input,
                              NodeFacts mine, const launch::LauncherGroupEvents& events) {
  PreflightReport report;
  const auto alone = [&](const Status& why) {
    report.rendezvous = why.WithCode(why.code() == Code::kTimeout ? Code::kRendezvous : why.code());
    report.nodes = {mine};
    report.index = 0;
    return report;
  };

  Participant self = launch::DescribeParticipant(plan);
  // A preflight and a job on one port must not take each other for their own.
  self.job = self.job.empty() ? "preflight" : "preflight of " + self.job;
  UniqueFd listener;
  launch::ClaimNodeZeroByAddress(plan, &self, &listener);
  if (self.index == 0 && !listener) {
    auto held = launch::ListenForLaunchers(plan, /*loopback_only=*/false);
    if (!held.ok()) return alone(held.status());
    listener = std::move(*held);
  }
  auto probe = Probe::Open(Ranges(input));
  if (!probe.ok()) return alone(probe.status());
  mine.net.probe.secret = (*probe)->secret();
  mine.net.probe.port = (*probe)->port();
  mine.net.probe.udp_port = (*probe)->udp_port();
  mine.net.probe.range_ports = (*probe)->range_ports();
  Describe(input, launch::LauncherHost(plan), &mine.net);

  launch::LauncherGroupOptions meeting;
  meeting.host = launch::LauncherHost(plan);
  meeting.port = launch::LauncherPort(plan);
  meeting.token = plan.token;
  meeting.hosts = plan.placement.hosts;
  meeting.join_timeout = options.timeout;
  auto met = LauncherGroup::Form(meeting, self, std::move(listener), events);
  if (!met.ok()) return alone(met.status());
  LauncherGroup& group = **met;

  NodeZero judge(options, group);
  auto book =
      group.Round(mine.ToJson(), [&](const std::vector<Json>& all) { return judge.Introduce(all, input); }, kRound);
  if (!book.ok()) return alone(book.status());
  std::vector<NodeFacts> nodes;
  int node = -1;  // which node this participant speaks for; -1: another does
  for (size_t i = 0; i < (*book)["cards"].size(); ++i) {
    nodes.push_back(NodeFacts::FromJson((*book)["cards"][i]));
    if ((*book)["seats"][i] == group.index()) node = static_cast<int>(i);
  }
  std::vector<std::string> explain;
  for (const Json& name : (*book)["explain"]) explain.push_back(name.get<std::string>());
  if (node >= 0 && node < static_cast<int>(nodes.size())) {
    nodes[static_cast<size_t>(node)].trees = mine.trees;
    mine.net.mtu = nodes[static_cast<size_t>(node)].net.mtu;
  }

  Findings findings;
  if (node >= 0) findings = TryNetwork(options, nodes, node, mine, explain);
  auto taken =
      group.Round(findings.ToJson(), [&](const std::vector<Json>& all) { return judge.TakeFindings(all); }, kRound);
  if (!taken.ok()) return alone(taken.status());

  const auto tournament = Tournament(static_cast<int>(nodes.size()));
  const Millis time(std::clamp<int64_t>(GetInt(*book, "stream_ms", 40), 1, 1000));
  for (const Json& round : (*book)["rounds"]) {
    std::vector<PairRate> rates;
    if (node >= 0) rates = Play(tournament.at(round.get<size_t>()), node, nodes, findings, time);
    auto played =
        group.Round(ToJson(rates), [&](const std::vector<Json>& all) { return judge.TakeRates(all); }, kRound);
    if (!played.ok()) return alone(played.status());
  }
  if (!(*book)["rounds"].empty()) {
    auto again = group.Round(Json::object(), [&](const std::vector<Json>&) { return judge.Again(); }, kRound);
    if (!again.ok()) return alone(again.status());
    for (const Json& round : *again) {
      std::vector<PairRate> rates;
      if (node >= 0) rates = Play(round.get<std::vector<std::pair<int, int>>>(), node, nodes, findings, 2 * time);
      auto played =
          group.Round(ToJson(rates), [&](const std::vector<Json>& all) { return judge.TakeRates(all); }, kRound);
      if (!played.ok()) return alone(played.status());
    }
  }

  auto verdict = group.Round(Json::object(), [&](const std::vector<Json>&) { return judge.Conclude(); }, kRound);
  if (!verdict.ok()) return alone(verdict.status());
  report = group.index() == 0 ? judge.report() : PreflightReport::FromJson(*verdict);
  report.index = node >= 0 ? node : 0;
  return report;
}

}  // namespace lockstep::preflight
