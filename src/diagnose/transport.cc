#include "diagnose/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/digits.h"
#include "base/text.h"

namespace lockstep::diagnose {
namespace {

using Json = nlohmann::json;

// What follows `mark` in the text; nothing when it is not there.
bool After(std::string_view text, std::string_view mark, std::string_view* rest) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return false;
  *rest = text.substr(at + mark.size());
  return true;
}

int Number(std::string_view text) { return LeadingDigits(Trim(text)).value_or(0); }

std::string FirstWord(std::string_view text) { return std::string(text.substr(0, text.find_first_of(" \t\r"))); }

// " [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.0.0.1<0>": the things behind numbers in brackets.
std::vector<std::string> Numbered(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = text.find('['); at != std::string_view::npos; at = text.find('[', at + 1)) {
    if (at + 1 >= text.size() || !std::isdigit(static_cast<unsigned char>(text[at + 1]))) continue;
    const size_t close = text.find(']', at);
    if (close == std::string_view::npos) break;
    std::string_view rest = text.substr(close + 1);
    rest = rest.substr(0, rest.find_first_of(" ;[\r"));
    if (!rest.empty()) out.emplace_back(rest);
  }
  return out;
}

// "NET/IB/3/GDRDMA" -> "NET/IB/GDRDMA", "NET/IB/0(1)/GDRDMA/Shared": which NIC it was is not the kind of path.
std::string Path(std::string_view text) {
  std::vector<std::string> kept;
  for (const std::string& part : Split(FirstWord(text), '/')) {
    if (part.empty() || std::isdigit(static_cast<unsigned char>(part[0])) || part == "Shared" || part == "read")
      continue;
    if (kept.empty() || kept.back() != part) kept.push_back(part);
  }
  return Join(kept, "/");
}

Json Described(const Transport& t) {
  return {{"network", t.network}, {"hcas", t.hcas},         {"interfaces", t.interfaces},       {"plugin", t.plugin},
          {"paths", t.paths},     {"channels", t.channels}, {"nvls_channels", t.nvls_channels}, {"nranks", t.nranks}};
}

bool OverTcp(const Transport& t) { return t.network == "Socket"; }

}  // namespace

void TransportReader::Line(std::string_view line) {
  Transport& t = transport_;
  std::string_view text, rest;
  if (After(line, "NCCL version ", &rest)) {
    t.version = FirstWord(rest);
    return;
  }
  if (!After(line, "NCCL INFO ", &text)) return;
  if (text.starts_with("NET/IB : Using")) {
    t.hcas = Numbered(text.substr(0, text.find("; OOB")));
  } else if (text.starts_with("NET/IB : No device found")) {
    t.no_ib_device = true;
  } else if (text.starts_with("NET/Socket : Using")) {
    t.interfaces.clear();
    for (const std::string& entry : Numbered(text)) t.interfaces.push_back(entry.substr(0, entry.find(':')));
  } else if (After(text, "Using network ", &rest)) {
    t.network = Trim(rest);
  } else if (text.starts_with("Assigned NET plugin ") && After(text, "NET plugin ", &rest)) {
    t.network = rest.substr(0, rest.rfind(" to comm"));
  } else if (After(text, "NET/Plugin: Loaded net plugin ", &rest)) {
    t.plugin = rest.substr(0, rest.rfind(" ("));
  } else if (text.starts_with("Channel ") && After(text, " via ", &rest)) {
    t.paths.insert(Path(rest));
  } else if (After(text, " coll channels", &rest)) {
    t.channels = Number(text);
    std::string_view nvls = text.substr(0, text.find(" nvls channels"));
    if (nvls.size() != text.size()) t.nvls_channels = Number(nvls.substr(nvls.rfind(' ') + 1));
  } else if (text.find("Init COMPLETE") != std::string_view::npos && After(text, " nranks ", &rest)) {
    std::string_view rank;
    // Groups of a part of the ranks count them anew: the largest communicator is the job's.
    if (Number(rest) > t.nranks && After(text, " rank ", &rank)) {
      t.nranks = Number(rest);
      t.rank = Number(rank);
    }
    t.complete = true;
  }
}

std::string NetworkText(const Transport& t) {
  if (t.network.empty()) return "not said";
  if (OverTcp(t)) return t.interfaces.empty() ? "TCP" : "TCP over " + Join(t.interfaces, ", ");
  if (t.network != "IB") return t.network;
  const bool gdr = std::any_of(t.paths.begin(), t.paths.end(),
                               [](const std::string& path) { return path.find("GDRDMA") != std::string::npos; });
  return fmt::format("IB over {} port{}{}", t.hcas.size(), t.hcas.size() == 1 ? "" : "s", gdr ? ", GDRDMA" : "");
}

std::string RankRanges(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    parts.push_back(i == j ? std::to_string(ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[j]));
    i = j + 1;
  }
  return Join(parts, ",");
}

Json TransportGroups(const std::vector<Transport>& transports) {
  std::vector<std::pair<Json, std::vector<int>>> groups;
  for (const Transport& t : transports) {
    const Json described = Described(t);
    auto found =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == described; });
    if (found == groups.end()) {
      groups.emplace_back(described, std::vector<int>());
      found = std::prev(groups.end());
    }
    found->second.push_back(t.rank);
  }
  Json out = Json::array();
  for (auto& [described, ranks] : groups) {
    described["ranks"] = RankRanges(ranks);
    out.push_back(described);
  }
  return out;
}

std::string TransportWarning(const std::vector<Transport>& transports, int nnodes,
                             const std::set<int>& nodes_with_rdma) {
  if (nnodes < 2) return "";  // NCCL names a network even where it needs none
  // Interfaces may be called differently on each node, paths differ with the place in the ring: only what network it is
  // and how many ports it has must be equal.
  std::map<std::string, std::vector<int>> kinds;
  std::vector<int> fallen;
  std::string over;
  for (const Transport& t : transports) {
    if (t.network.empty()) continue;
    kinds[OverTcp(t)          ? "TCP"
          : t.network == "IB" ? fmt::format("IB over {} port{}", t.hcas.size(), t.hcas.size() == 1 ? "" : "s")
                              : t.network]
        .push_back(t.rank);
    if (OverTcp(t) && nodes_with_rdma.contains(t.node)) {
      fallen.push_back(t.rank);
      if (over.empty()) over = NetworkText(t);
    }
  }
  if (kinds.size() > 1) {
    std::vector<std::string> parts;
    for (auto& [kind, ranks] : kinds) parts.push_back(fmt::format("ranks {} {}", RankRanges(ranks), kind));
    return fmt::format(
        "ranks do not use the same network: {}; the slowest decides (`lockstep tune` on the nodes that differ)",
        Join(parts, "; "));
  }
  if (fallen.empty()) return "";
  return fmt::format(
      "NCCL uses {} between nodes although an RDMA port is ACTIVE (ranks {}): /dev/infiniband, libibverbs, "
      "NCCL_IB_DISABLE or NCCL_IB_HCA are the usual reasons; `lockstep lint --env` and the nccl-rank files beside the "
      "logs "
      "say more",
      over, RankRanges(fallen));
}

Json ToJson(const Transport& t) {
  Json json = Described(t);
  json["rank"] = t.rank;
  json["node"] = t.node;
  json["version"] = t.version;
  return json;
}

Transport TransportFromJson(const Json& json) {
  Transport t;
  if (!json.is_object()) return t;
  const auto strings = [&](const char* key) {
    std::vector<std::string> out;
    if (auto found = json.find(key); found != json.end() && found->is_array()) {
      for (const Json& item : *found) {
        if (item.is_string()) out.push_back(item.get<std::string>());
      }
    }
    return out;
  };
  const auto text = [&](const char* key) {
    auto found = json.find(key);
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto number = [&](const char* key, int otherwise) {
    auto found = json.find(key);
    return found != json.end() && found->is_number_integer() ? found->get<int>() : otherwise;
  };
  t.rank = number("rank", -1);
  t.node = number("node", -1);
  t.nranks = number("nranks", 0);
  t.channels = number("channels", 0);
  t.nvls_channels = number("nvls_channels", 0);
  t.version = text("version");
  t.network = text("network");
  t.plugin = text("plugin");
  t.hcas = strings("hcas");
  t.interfaces = strings("interfaces");
  for (std::string& path : strings("paths")) t.paths.insert(std::move(path));
  t.complete = true;
  return t;
}

}  // namespace lockstep::diagnose
