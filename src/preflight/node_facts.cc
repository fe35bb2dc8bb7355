#include "preflight/node_facts.h"

#include "base/json.h"

namespace lockstep::preflight {
namespace {

constexpr size_t kMaxEntries = 20000;  // a listing that crosses the wire

std::vector<Json> List(const Json& json, const char* key) {
  auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return {};
  return found->get<std::vector<Json>>();
}

std::map<std::string, std::string> Words(const Json& json, const char* key) {
  std::map<std::string, std::string> words;
  auto found = json.find(key);
  if (found == json.end() || !found->is_object()) return words;
  for (const auto& [name, value] : found->items()) {
    if (value.is_string()) words[name] = value.get<std::string>();
  }
  return words;
}

Json TreesJson(const std::map<std::string, Tree>& trees, bool entries) {
  Json json = Json::object();
  for (const auto& [name, tree] : trees) {
    json[name] = {{"path", tree.path},   {"digest", tree.digest}, {"commit", tree.commit},
                  {"files", tree.files}, {"cut", tree.cut},       {"trouble", tree.trouble}};
    if (!entries) continue;
    Json list = Json::object();
    for (const auto& [entry, value] : tree.entries) {
      if (list.size() >= kMaxEntries) break;
      list[entry] = value;
    }
    json[name]["entries"] = std::move(list);
  }
  return json;
}

std::map<std::string, Tree> TreesFromJson(const Json& json) {
  std::map<std::string, Tree> trees;
  auto found = json.find("trees");
  if (found == json.end() || !found->is_object()) return trees;
  for (const auto& [name, value] : found->items()) {
    Tree& tree = trees[name];
    tree.path = GetString(value, "path");
    tree.digest = GetString(value, "digest");
    tree.commit = GetString(value, "commit");
    tree.files = static_cast<uint64_t>(std::max<int64_t>(0, GetInt(value, "files")));
    tree.cut = GetBool(value, "cut");
    tree.trouble = GetString(value, "trouble");
    if (value.is_object()) tree.entries = Words(value, "entries");
  }
  return trees;
}

std::vector<std::string> Strings(const Json& json, const char* key) {
  std::vector<std::string> strings;
  for (const Json& value : List(json, key)) {
    if (value.is_string()) strings.push_back(value.get<std::string>());
  }
  return strings;
}

std::vector<int> Ints(const Json& json, const char* key) {
  std::vector<int> ints;
  for (const Json& value : List(json, key)) {
    if (value.is_number_integer()) ints.push_back(value.get<int>());
  }
  return ints;
}

}  // namespace

Json NodeFacts::ToJson(bool entries) const {
  Json list = Json::array();
  for (const CheckResult& check : checks) {
    Json entry = check.outcome.ToJson();
    entry["id"] = check.id;
    list.push_back(std::move(entry));
  }
  Json cards = Json::array();
  for (const auto& [uuid, model] : gpus) cards.push_back({{"uuid", uuid}, {"model", model}});
  return {{"host", host},
          {"boot_id", boot_id},
          {"checks", list},
          {"gpus", cards},
          {"fabric", fabric},
          {"software", software},
          {"env", env},
          {"trees", TreesJson(trees, entries)},
          {"network",
           {{"address", net.address},
            {"interface", net.interface},
            {"addresses", net.addresses},
            {"mtu", net.mtu},
            {"gbit", net.gbit},
            {"secret", net.probe.secret},
            {"port", net.probe.port},
            {"udp_port", net.probe.udp_port},
            {"range_ports", net.probe.range_ports}}}};
}

NodeFacts NodeFacts::FromJson(const Json& json) {
  NodeFacts facts;
  if (!json.is_object()) return facts;
  facts.host = GetString(json, "host");
  facts.boot_id = GetString(json, "boot_id");
  for (const Json& check : List(json, "checks")) {
    if (check.is_object()) facts.checks.push_back({GetString(check, "id"), CheckOutcome::FromJson(check)});
  }
  for (const Json& gpu : List(json, "gpus")) facts.gpus.emplace_back(GetString(gpu, "uuid"), GetString(gpu, "model"));
  facts.fabric = GetString(json, "fabric");
  facts.software = Words(json, "software");
  facts.env = Words(json, "env");
  facts.trees = TreesFromJson(json);
  if (auto net = json.find("network"); net != json.end() && net->is_object()) {
    facts.net.address = GetString(*net, "address");
    facts.net.interface = GetString(*net, "interface");
    facts.net.addresses = Strings(*net, "addresses");
    facts.net.mtu = static_cast<int>(GetInt(*net, "mtu"));
    facts.net.gbit = GetNumber(*net, "gbit");
    facts.net.probe.secret = GetString(*net, "secret");
    facts.net.probe.port = static_cast<int>(GetInt(*net, "port"));
    facts.net.probe.udp_port = static_cast<int>(GetInt(*net, "udp_port"));
    facts.net.probe.range_ports = Ints(*net, "range_ports");
  }
  return facts;
}

Json Findings::ToJson() const {
  Json contacts = Json::array();
  for (const Reached& one : reached) {
    Json closed = Json::array();
    for (const auto& [port, why] : one.closed) closed.push_back({{"port", port}, {"why", why}});
    contacts.push_back({{"node", one.node},
                        {"trouble", one.trouble},
                        {"closed", closed},
                        {"round_trip", one.round_trip},
                        {"mtu_sent", one.mtu_sent},
                        {"mtu_through", one.mtu_through},
                        {"udp", one.udp}});
  }
  Json lookups = Json::array();
  for (const Lookup& one : names) {
    lookups.push_back({{"node", one.node}, {"state", Name(one.state)}, {"text", one.text}});
  }
  return {{"reached", contacts}, {"names", lookups}, {"trees", TreesJson(trees, true)}};
}

Findings Findings::FromJson(const Json& json) {
  Findings findings;
  if (!json.is_object()) return findings;
  for (const Json& one : List(json, "reached")) {
    if (!one.is_object()) continue;
    Reached reached;
    reached.node = static_cast<int>(GetInt(one, "node", -1));
    reached.trouble = GetString(one, "trouble");
    for (const Json& closed : List(one, "closed")) {
      reached.closed.emplace_back(static_cast<int>(GetInt(closed, "port")), GetString(closed, "why"));
    }
    reached.round_trip = GetNumber(one, "round_trip");
    reached.mtu_sent = static_cast<int>(GetInt(one, "mtu_sent"));
    reached.mtu_through = static_cast<int>(GetInt(one, "mtu_through"));
    reached.udp = GetBool(one, "udp", true);
    findings.reached.push_back(std::move(reached));
  }
  for (const Json& one : List(json, "names")) {
    const std::string state = GetString(one, "state");
    findings.names.push_back({static_cast<int>(GetInt(one, "node", -1)),
                              state == "fail"   ? State::kFail
                              : state == "warn" ? State::kWarn
                                                : State::kOk,
                              GetString(one, "text")});
  }
  findings.trees = TreesFromJson(json);
  return findings;
}

std::map<std::string, std::string> KeyEnvironment(const Environment& env) {
  // Differ by node or rank on every healthy cluster, or say only where something is written.
  static constexpr const char* kOwn[] = {"CUDA_VISIBLE_DEVICES",   "NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE",
                                         "NCCL_GRAPH_DUMP_FILE",   "CUDA_CACHE_PATH", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
                                         "TORCH_FR_DUMP_TEMP_FILE"};
  static constexpr const char* kPrefixes[] = {"NCCL_",          "TORCH_",
                                              "PYTORCH_",       "GLOO_",
                                              "UCX_",           "FI_",
                                              "CUDA_",          "CUBLAS_",
                                              "CUDNN_",         "OMP_",
                                              "MKL_",           "PYTHONHASHSEED",
                                              "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
                                              "LD_PRELOAD",     "DS_",
                                              "ACCELERATE_"};
  std::map<std::string, std::string> key;
  for (const auto& [name, value] : env) {
    bool taken = false, own = false;
    for (const char* prefix : kPrefixes) taken = taken || name.starts_with(prefix);
    for (const char* other : kOwn) own = own || name == other;
    // Nobody's secrets travel.
    for (const char* word : {"TOKEN", "SECRET", "PASSWORD", "_KEY", "CREDENTIAL"}) {
      own = own || name.find(word) != std::string::npos;
    }
    if (taken && !own) key[name] = value;
  }
  return key;
}

}  // namespace lockstep::preflight
