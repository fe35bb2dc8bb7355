// What must be the same everywhere.
#include "preflight/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/text.h"

namespace lockstep::preflight {
namespace {

constexpr size_t kNamedFiles = 4;

// The nodes by what they have, the largest group first; of equals the one with node 0.
struct Group {
  std::string value;
  std::vector<int> nodes;
};

template <typename Value>
std::vector<Group> GroupBy(const std::vector<NodeFacts>& all, const Value& value) {
  std::vector<Group> groups;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string found = value(all[i]);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.value == found; });
    if (group == groups.end()) group = groups.insert(groups.end(), {found, {}});
    group->nodes.push_back(static_cast<int>(i));
  }
  std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    return a.nodes.size() != b.nodes.size() ? a.nodes.size() > b.nodes.size() : a.nodes.front() < b.nodes.front();
  });
  return groups;
}

std::string Shown(const std::string& value) { return value.empty() ? "none" : Printable(value, 120); }

// "PyTorch: node 1 (b) has 2.4.0, nodes 0, 2 have 2.5.1"
std::string Difference(const std::string& what, const std::vector<Group>& groups, const std::vector<NodeFacts>& all) {
  std::vector<std::string> parts;
  for (auto group = groups.rbegin(); group != groups.rend() && parts.size() < 4; ++group) {
    parts.push_back(fmt::format("{} {} {}", NodeNames(group->nodes, all), group->nodes.size() == 1 ? "has" : "have",
                                Shown(group->value)));
  }
  return fmt::format("{}: {}", what, fmt::join(parts, ", "));
}

std::vector<int> Minority(const std::vector<Group>& groups) {
  std::vector<int> nodes;
  for (size_t i = 1; i < groups.size(); ++i) nodes.insert(nodes.end(), groups[i].nodes.begin(), groups[i].nodes.end());
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

CheckResult SameMachine(const std::vector<NodeFacts>& all) {
  CheckOutcome outcome;
  std::map<std::string, std::set<int>> cards, machines;
  for (size_t i = 0; i < all.size(); ++i) {
    const NodeFacts& facts = all[i];
    const auto node = static_cast<int>(i);
    for (const auto& [uuid, model] : facts.gpus) {
      if (!uuid.empty()) cards[uuid].insert(node);
    }
    machines[fmt::format("{} {} {}", facts.boot_id, facts.host, fmt::join(facts.net.addresses, " "))].insert(node);
  }
  std::set<std::set<int>> told;
  for (const auto& [uuid, nodes] : cards) {
    if (nodes.size() < 2 || !told.insert(nodes).second) continue;
    const std::vector<int> list(nodes.begin(), nodes.end());
    AddProblem(&outcome, State::kFail, fmt::format("{} all have {}", NodeNames(list, all), uuid),
               "the same machine was started more than once: give each node its own --node-rank, once", list);
  }
  for (const auto& [machine, nodes] : machines) {
    if (nodes.size() < 2 || !told.insert(nodes).second) continue;
    const std::vector<int> list(nodes.begin(), nodes.end());
    AddProblem(&outcome, State::kFail, fmt::format("{} are the same machine", NodeNames(list, all)),
               "start the command once on each node", list);
  }
  outcome.note =
      Count(static_cast<int64_t>(machines.size()), "machine") + ", " + Count(static_cast<int64_t>(cards.size()), "GPU");
  return {"same-machine", outcome};
}

CheckResult SameGpus(const std::vector<NodeFacts>& all) {
  CheckOutcome outcome;
  const auto counts = GroupBy(all, [](const NodeFacts& facts) { return std::to_string(facts.gpus.size()); });
  if (counts.size() > 1) {
    AddProblem(
        &outcome, State::kFail, Difference("number of GPUs", counts, all),
        "look for a GPU that was lost there (nvidia-smi, dmesg | grep Xid), or choose the same number with --gpus",
        Minority(counts));
  }
  const auto models = GroupBy(all, [](const NodeFacts& facts) {
    std::set<std::string> names;
    for (const auto& [uuid, model] : facts.gpus) names.insert(model);
    return fmt::format("{}", fmt::join(names, " + "));
  });
  if (models.size() > 1 && counts.size() == 1) {
    AddProblem(&outcome, State::kWarn, Difference("GPU model", models, all), "the slowest decides the pace",
               Minority(models));
  }
  const auto fabrics = GroupBy(all, [](const NodeFacts& facts) { return facts.fabric; });
  if (fabrics.size() > 1) {
    AddProblem(&outcome, State::kWarn, Difference("NVLink domain", fabrics, all),
               "ranks in different domains speak over the network; place them by domain", Minority(fabrics));
  }
  if (counts.size() == 1 && counts[0].value == "0" && outcome.problems.empty()) {
    return {"same-gpus", CheckOutcome::Skip("no GPUs")};
  }
  outcome.note = fmt::format("{} x {} on every node", counts[0].value, models[0].value);
  return {"same-gpus", outcome};
}

CheckResult SameSoftware(const std::vector<NodeFacts>& all) {
  CheckOutcome outcome;
  std::set<std::string> names;
  for (const NodeFacts& facts : all) {
    for (const auto& [name, value] : facts.software) names.insert(name);
  }
  std::vector<std::string> same;
  for (const std::string& name : names) {
    const auto groups = GroupBy(all, [&](const NodeFacts& facts) {
      auto found = facts.software.find(name);
      return found == facts.software.end() ? std::string() : found->second;
    });
    if (groups.size() == 1) {
      if (!groups[0].value.empty() && name != "interpreter" && name != "kernel") {
        same.push_back(fmt::format("{} {}", name, groups[0].value));
      }
      continue;
    }
    // Of these a difference is worth knowing and usually harmless.
    const bool soft = name == "driver" || name == "kernel" || name == "interpreter" || name == "CUDA of the driver";
    AddProblem(
        &outcome, soft ? State::kWarn : State::kFail, Difference(name, groups, all),
        soft ? "make the nodes alike when convenient"
             : "install the same on every node, or start all of them in one environment (--venv, --conda, one image)",
        Minority(groups));
  }
  outcome.note = same.empty() ? "the same" : fmt::format("{}", fmt::join(same, ", "));
  return {"same-software", outcome};
}

CheckResult SameEnv(const std::vector<NodeFacts>& all) {
  // Where these differ, ranks wait for each other in different ways.
  static const std::set<std::string> must = {"NCCL_ALGO",
                                             "NCCL_PROTO",
                                             "NCCL_NET",
                                             "NCCL_NET_PLUGIN",
                                             "NCCL_IB_DISABLE",
                                             "NCCL_P2P_DISABLE",
                                             "NCCL_SHM_DISABLE",
                                             "NCCL_COMM_ID",
                                             "NCCL_CROSS_NIC",
                                             "NCCL_MIN_NCHANNELS",
                                             "NCCL_MAX_NCHANNELS",
                                             "NCCL_BUFFSIZE",
                                             "NCCL_COLLNET_ENABLE",
                                             "NCCL_NVLS_ENABLE",
                                             "NCCL_LAUNCH_MODE",
                                             "NCCL_TOPO_FILE",
                                             "NCCL_MNNVL_ENABLE",
                                             "NCCL_CUMEM_ENABLE",
                                             "TORCH_DISTRIBUTED_DEBUG"};
  CheckOutcome outcome;
  std::set<std::string> names;
  for (const NodeFacts& facts : all) {
    for (const auto& [name, value] : facts.env) names.insert(name);
  }
  for (const std::string& name : names) {
    const auto groups = GroupBy(all, [&](const NodeFacts& facts) {
      auto found = facts.env.find(name);
      return found == facts.env.end() ? std::string() : found->second;
    });
    if (groups.size() == 1) continue;
    // Names of devices differ between machines that are otherwise alike.
    const bool local = name.ends_with("_IFNAME") || name == "NCCL_IB_HCA" || name == "NCCL_IB_GID_INDEX";
    AddProblem(
        &outcome, must.contains(name) ? State::kFail : State::kWarn, Difference(name, groups, all),
        local
            ? "right if the machines name their devices differently; else set it alike, or leave it to `lockstep tune`"
            : "set it alike on every node, or on none",
        Minority(groups));
  }
  outcome.note = names.empty() ? "none set"
                 : outcome.problems.empty()
                     ? fmt::format("{} variable{}", names.size(), names.size() == 1 ? " agrees" : "s agree")
                     : fmt::format("{} of {} agree", names.size() - outcome.problems.size(), names.size());
  return {"same-env", outcome};
}

// One row for all trees of a kind.
CheckResult SameTrees(const char* id, const std::string& kind, const std::vector<NodeFacts>& all, const char* none,
                      const char* remedy) {
  CheckOutcome outcome;
  std::set<std::string> names;
  for (const NodeFacts& facts : all) {
    for (const auto& [name, tree] : facts.trees) {
      if (name == kind || name.starts_with(kind + ":")) names.insert(name);
    }
  }
  if (names.empty()) return {id, CheckOutcome::Skip(none)};
  const auto tree = [&](const NodeFacts& facts, const std::string& name) {
    auto found = facts.trees.find(name);
    return found == facts.trees.end() ? Tree{} : found->second;
  };
  for (const std::string& name : names) {
    const auto groups = GroupBy(all, [&](const NodeFacts& facts) {
      const Tree found = tree(facts, name);
      return !found.trouble.empty() ? found.trouble : found.digest.empty() ? "nothing" : found.digest;
    });
    const Tree& first = tree(all[static_cast<size_t>(groups[0].nodes[0])], name);
    if (groups.size() == 1) {
      if (!first.trouble.empty()) {
        AddProblem(&outcome, State::kWarn, fmt::format("{} could not be compared: {}", first.path, first.trouble),
                   remedy, {});
      } else {
        outcome.note += fmt::format("{}{} file{} of {}{}", outcome.note.empty() ? "" : "; ", first.files,
                                    first.files == 1 ? "" : "s", first.path, first.cut ? " (the first ones)" : "");
      }
      continue;
    }
    std::vector<Group> shown = groups;
    for (Group& group : shown) {
      const Tree& found = tree(all[static_cast<size_t>(group.nodes[0])], name);
      if (!found.trouble.empty()) {
        group.value = found.trouble;
      } else if (!found.digest.empty()) {
        group.value = fmt::format("{} file{}{}", found.files, found.files == 1 ? "" : "s",
                                  found.commit.empty() ? "" : fmt::format(" at commit {}", found.commit.substr(0, 10)));
        group.value += fmt::format(" ({})", found.digest.substr(found.digest.find(':') + 1, 8));
      }
    }
    AddProblem(&outcome, State::kFail, Difference(first.path.empty() ? name : first.path, shown, all), remedy,
               Minority(groups));
  }
  return {id, outcome};
}

}  // namespace

void AddProblem(CheckOutcome* outcome, State state, std::string text, std::string remedy, std::vector<int> nodes) {
  outcome->problems.push_back({state, std::move(text), std::move(remedy), std::move(nodes)});
}

std::string NodeNames(const std::vector<int>& nodes, const std::vector<NodeFacts>& all) {
  if (nodes.size() == all.size() && nodes.size() > 2) return "all nodes";
  std::vector<std::string> hosts;
  std::vector<std::string> ranges;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto node = static_cast<size_t>(nodes[i]);
    if (node < all.size()) hosts.push_back(all[node].host);
    size_t last = i;
    while (last + 1 < nodes.size() && nodes[last + 1] == nodes[last] + 1) ++last;
    ranges.push_back(last > i + 1 ? fmt::format("{}-{}", nodes[i], nodes[last]) : std::to_string(nodes[i]));
    if (last > i + 1) {
      for (size_t k = i + 1; k <= last; ++k) {
        if (static_cast<size_t>(nodes[k]) < all.size()) hosts.push_back(all[static_cast<size_t>(nodes[k])].host);
      }
      i = last;
    }
  }
  const std::string who = nodes.size() <= 4 ? fmt::format(" ({})", fmt::join(hosts, ", ")) : "";
  return fmt::format("node{} {}{}", nodes.size() == 1 ? "" : "s", fmt::join(ranges, ", "), who);
}

std::vector<CheckResult> CompareFacts(const std::vector<NodeFacts>& all) {
  return {SameMachine(all),
          SameGpus(all),
          SameTrees("same-code", "code", all, "no program given (--program)",
                    "bring the same code to every node: git pull, rsync, or a shared file system"),
          SameTrees("same-config", "config", all, "no configuration given (--config)",
                    "bring the same configuration to every node"),
          SameTrees("same-data", "data", all, "no data given (--data)",
                    "copy what is missing; ranks that see different data train a different model"),
          SameSoftware(all),
          SameEnv(all)};
}

std::vector<std::string> DifferingTrees(const std::vector<NodeFacts>& all) {
  std::set<std::string> names, differing;
  for (const NodeFacts& facts : all) {
    for (const auto& [name, tree] : facts.trees) names.insert(name);
  }
  for (const std::string& name : names) {
    const auto groups = GroupBy(all, [&](const NodeFacts& facts) {
      auto found = facts.trees.find(name);
      return found == facts.trees.end() ? std::string() : found->second.digest;
    });
    if (groups.size() > 1) differing.insert(name);
  }
  return {differing.begin(), differing.end()};
}

void NameDifferences(const std::vector<Findings>& findings, std::vector<CheckResult>* results) {
  std::map<std::string, std::set<std::string>> by_path;  // path of the tree -> files that differ
  std::set<std::string> names;
  for (const Findings& one : findings) {
    for (const auto& [name, tree] : one.trees) names.insert(name);
  }
  for (const std::string& name : names) {
    std::map<std::string, std::set<std::string>> values;
    size_t holders = 0;
    std::map<std::string, size_t> seen;
    std::string path;
    for (const Findings& one : findings) {
      auto tree = one.trees.find(name);
      if (tree == one.trees.end() || tree->second.digest.empty()) continue;
      ++holders;
      if (path.empty()) path = tree->second.path;
      for (const auto& [file, value] : tree->second.entries) {
        values[file].insert(value);
        ++seen[file];
      }
    }
    for (const auto& [file, found] : values) {
      if (found.size() > 1 || seen[file] != holders) by_path[path].insert(file);
    }
  }
  for (CheckResult& result : *results) {
    for (Problem& problem : result.outcome.problems) {
      for (const auto& [path, files] : by_path) {
        if (path.empty() || !problem.text.starts_with(path + ": ")) continue;
        std::vector<std::string> shown(
            files.begin(), std::next(files.begin(), static_cast<std::ptrdiff_t>(std::min(files.size(), kNamedFiles))));
        for (std::string& file : shown) file = Printable(file);
        problem.text +=
            fmt::format("; different: {}{}", fmt::join(shown, ", "),
                        files.size() > kNamedFiles ? fmt::format(" and {} more", files.size() - kNamedFiles) : "");
      }
    }
  }
}

}  // namespace lockstep::preflight
