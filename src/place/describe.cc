#include "place/describe.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace lockstep::place {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string OrUnknown(const std::optional<int>& value) { return value ? std::to_string(*value) : "unknown"; }

// Foreign text in JSON must be UTF-8.
std::string Clean(const std::string& text) { return Printable(text, 4096); }

const char* Colour(std::string_view weight) {
  if (weight == "decides") return "\x1b[32m";
  if (weight == "contradicts") return "\x1b[33m";
  if (weight == "ignored") return "\x1b[2m";
  return "";
}

}  // namespace

Json ToJson(const Placement& placement) {
  Json evidence = Json::array(), warnings = Json::array();
  for (const Evidence& item : placement.evidence)
    evidence.push_back({{"source", Clean(item.source)}, {"says", Clean(item.says)}, {"weight", item.weight}});
  for (const std::string& warning : placement.warnings) warnings.push_back(Clean(warning));
  std::optional<std::string> master = placement.master_addr;
  if (master) master = Clean(*master);
  Json json;
  json["platform"] = placement.platform;
  json["level"] = placement.level ? Json(Name(*placement.level)) : Json(nullptr);
  json["starts"] = placement.level ? Json(Name(placement.starts)) : Json(nullptr);
  json["nested"] = placement.nested;
  json["nnodes"] = OrNull(placement.nnodes);
  json["node_rank"] = OrNull(placement.node_rank);
  json["nproc_per_node"] = OrNull(placement.nproc_per_node);
  json["world_size"] = OrNull(placement.world_size);
  json["rank"] = OrNull(placement.rank);
  json["local_rank"] = OrNull(placement.local_rank);
  json["master_addr"] = OrNull(master);
  json["master_port"] = OrNull(placement.master_port);
  json["evidence"] = std::move(evidence);
  json["warnings"] = std::move(warnings);
  json["error"] = placement.error.ok()
                      ? Json(nullptr)
                      : Json(Clean(placement.error.message() +
                                   (placement.error.hint().empty() ? "" : "; " + placement.error.hint())));
  return json;
}

std::string ToText(const Placement& placement, bool colour) {
  auto paint = [&](const char* code, const std::string& text) {
    return colour && *code ? code + text + "\x1b[0m" : text;
  };
  std::string out;
  auto row = [&](const char* name, const std::string& value) { out += fmt::format("{:<10}{}\n", name, value); };
  row("platform", placement.platform + (placement.nested ? " (already inside a launch)" : ""));
  row("level", placement.level
                   ? fmt::format("{} (started {})", Name(*placement.level),
                                 placement.starts == Starts::kOnce ? "once for all nodes" : Name(placement.starts))
                   : "unknown");
  row("nodes", fmt::format("{}, this one is {}", OrUnknown(placement.nnodes), OrUnknown(placement.node_rank)));
  row("per node", placement.nproc_per_node
                      ? fmt::format("{} ({})", *placement.nproc_per_node, Clean(placement.nproc_source))
                      : "unknown");
  row("ranks",
      OrUnknown(placement.world_size) +
          (placement.rank ? fmt::format(", this one is {} (local {})", *placement.rank, OrUnknown(placement.local_rank))
                          : ""));
  row("master", fmt::format("{}:{}", placement.master_addr ? Clean(*placement.master_addr) : "unknown",
                            placement.master_port   ? std::to_string(*placement.master_port)
                            : placement.master_addr ? "any free port"
                                                    : "unknown"));
  if (placement.hosts.size() > 1) {
    std::vector<std::string> first(placement.hosts.begin(),
                                   placement.hosts.begin() + std::min<size_t>(placement.hosts.size(), 8));
    row("hosts", Clean(Join(first, " ")) + (placement.hosts.size() > 8 ? " ..." : ""));
  }
  if (!placement.evidence.empty()) out += "\nevidence\n";
  size_t width = 0;
  for (const Evidence& item : placement.evidence)
    width = std::max(width, std::min<size_t>(Clean(item.source).size(), 48));
  for (const Evidence& item : placement.evidence)
    out += fmt::format("  {}{:<{}}  {}\n", paint(Colour(item.weight), fmt::format("{:<12}", item.weight)),
                       Clean(item.source), width, Clean(item.says));
  if (!placement.warnings.empty()) out += "\nwarnings\n";
  for (const std::string& warning : placement.warnings) out += fmt::format("  {}\n", paint("\x1b[33m", Clean(warning)));
  if (!placement.error.ok()) {
    out += fmt::format("\n{} {}\n", paint("\x1b[31m", "error:"), Clean(placement.error.message()));
    if (!placement.error.hint().empty()) out += fmt::format("  do: {}\n", Clean(placement.error.hint()));
  }
  return out;
}

std::string ToShell(const Placement& placement) {
  std::string out;
  auto line = [&](const char* name, const std::optional<std::string>& value) {
    out += value ? fmt::format("export {}={}\n", name, ShellQuote(*value)) : fmt::format("unset {}\n", name);
  };
  auto number = [&](const char* name, const std::optional<int>& value) {
    line(name, value ? std::optional<std::string>(std::to_string(*value)) : std::nullopt);
  };
  number("NNODES", placement.nnodes);
  number("NODE_RANK", placement.node_rank);
  number("NPROC_PER_NODE", placement.nproc_per_node);
  number("WORLD_SIZE", placement.world_size);
  number("RANK", placement.rank);
  number("LOCAL_RANK", placement.local_rank);
  line("MASTER_ADDR", placement.master_addr);
  number("MASTER_PORT", placement.master_port);
  line("LOCKSTEP_PLATFORM", placement.platform);
  line("LOCKSTEP_LEVEL", placement.level ? std::optional<std::string>(Name(*placement.level)) : std::nullopt);
  return out;
}

}  // namespace lockstep::place
