// Hardware as JSON and back. One list of fields per struct serves both ways, so they cannot drift apart.
#include <fmt/format.h>

#include <type_traits>

#include "base/text.h"
#include "hardware/hardware.h"

namespace lockstep::hardware {
namespace {

using nlohmann::json;

// Fields(visit, value): visit(name, member) for every member. V is the writer or the reader below; T may be const.
template <typename V>
void Fields(V& visit, auto& v, const GpuProcess*) {
  visit("pid", v.pid), visit("name", v.name), visit("memory", v.memory);
}

template <typename V>
void Fields(V& visit, auto& v, const GpuState*) {
  visit("index", v.index), visit("error", v.error);
  visit("name", v.name), visit("uuid", v.uuid), visit("pci", v.pci);
  visit("pci_path", v.pci_path), visit("numa", v.numa);
  visit("memory_total", v.memory_total), visit("memory_used", v.memory_used);
  visit("mig", v.mig), visit("migs", v.migs);
  visit("ecc", v.ecc), visit("ecc_corrected", v.ecc_corrected), visit("ecc_uncorrected", v.ecc_uncorrected);
  visit("remapped_uncorrectable", v.remapped_uncorrectable);
  visit("remap_pending", v.remap_pending), visit("remap_failed", v.remap_failed);
  visit("recovery_action", v.recovery_action), visit("xids", v.xids);
  visit("nvlinks_active", v.nvlinks_active), visit("nvlinks", v.nvlinks);
  visit("fabric", v.fabric), visit("fabric_cluster", v.fabric_cluster);
  visit("sm_clock", v.sm_clock), visit("sm_clock_max", v.sm_clock_max), visit("memory_clock", v.memory_clock);
  visit("throttle", v.throttle), visit("temperature", v.temperature), visit("power_watts", v.power_watts);
  visit("utilisation", v.utilisation), visit("compute_capability", v.compute_capability);
  visit("pcie_gen", v.pcie_gen), visit("pcie_gen_max", v.pcie_gen_max);
  visit("pcie_width", v.pcie_width), visit("pcie_width_max", v.pcie_width_max);
  visit("processes", v.processes);
}

template <typename V>
void Fields(V& visit, auto& v, const Gid*) {
  visit("index", v.index), visit("gid", v.gid), visit("type", v.type), visit("netdev", v.netdev), visit("ipv4", v.ipv4);
}

template <typename V>
void Fields(V& visit, auto& v, const IbPort*) {
  visit("device", v.device), visit("port", v.port), visit("state", v.state), visit("phys_state", v.phys_state);
  visit("link_layer", v.link_layer), visit("gbit", v.gbit), visit("numa", v.numa), visit("pci", v.pci);
  visit("pci_path", v.pci_path), visit("driver", v.driver), visit("model", v.model), visit("fw", v.fw);
  visit("verbs", v.verbs), visit("lid", v.lid), visit("sm_lid", v.sm_lid), visit("netdevs", v.netdevs);
  visit("gids", v.gids);
}

template <typename V>
void Fields(V& visit, auto& v, const Interface*) {
  visit("name", v.name), visit("up", v.up), visit("loopback", v.loopback), visit("virtual", v.is_virtual);
  visit("kind", v.kind), visit("mtu", v.mtu), visit("gbit", v.gbit), visit("numa", v.numa), visit("pci", v.pci);
  visit("master", v.master), visit("lower", v.lower), visit("addresses", v.addresses);
}

template <typename V>
void Fields(V& visit, auto& v, const Route*) {
  visit("destination", v.destination), visit("via", v.via), visit("interface", v.interface);
  visit("source", v.source), visit("metric", v.metric);
}

template <typename V>
void Fields(V& visit, auto& v, const NumaNode*) {
  visit("id", v.id), visit("cpus", v.cpus), visit("memory", v.memory);
}

template <typename V>
void Fields(V& visit, auto& v, const Filesystem*) {
  visit("path", v.path), visit("mount", v.mount), visit("type", v.type), visit("total", v.total), visit("free", v.free);
  visit("inodes", v.inodes), visit("inodes_free", v.inodes_free), visit("read_only", v.read_only);
}

template <typename V>
void Fields(V& visit, auto& v, const Limits*) {
  visit("memlock", v.memlock), visit("nofile", v.nofile), visit("nofile_hard", v.nofile_hard);
  visit("nproc", v.nproc), visit("stack", v.stack), visit("core", v.core);
  visit("pids_max", v.pids_max), visit("pids_now", v.pids_now);
  visit("memory_max", v.memory_max), visit("memory_now", v.memory_now), visit("cpu_quota", v.cpu_quota);
}

template <typename V>
void Fields(V& visit, auto& v, const Library*) {
  visit("path", v.path), visit("version", v.version), visit("found_by", v.found_by), visit("cuda", v.cuda);
}

template <typename V>
void Fields(V& visit, auto& v, const Hardware*) {
  visit("host", v.host), visit("kernel", v.kernel), visit("os", v.os), visit("cpu_model", v.cpu_model);
  visit("container", v.container), visit("driver", v.driver), visit("driver_library", v.driver_library);
  visit("cuda", v.cuda), visit("gpu_source", v.gpu_source), visit("gpus", v.gpus);
  visit("gpus_visible", v.gpus_visible), visit("visible_because", v.visible_because);
  visit("ib", v.ib), visit("interfaces", v.interfaces), visit("routes", v.routes), visit("numa", v.numa);
  visit("cpus", v.cpus), visit("cores", v.cores);
  visit("memory_total", v.memory_total), visit("memory_available", v.memory_available);
  visit("filesystems", v.filesystems), visit("limits", v.limits);
  visit("clock_source", v.clock_source), visit("clock_synchronised", v.clock_synchronised);
  visit("clock_error", v.clock_error), visit("interpreter", v.interpreter), visit("nccl", v.nccl);
  visit("torch", v.torch), visit("peermem", v.peermem), visit("imex_channel", v.imex_channel);
  visit("net_plugins", v.net_plugins), visit("notes", v.notes);
}

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};
template <typename T>
constexpr bool kPlain = std::is_arithmetic_v<T> || std::is_same_v<T, std::string>;

template <typename T>
json Write(const T& value);

struct Writer {
  json out = json::object();
  template <typename T>
  void operator()(const char* name, const T& value) {
    out[name] = Write(value);
  }
};

template <typename T>
json Write(const T& value) {
  if constexpr (IsOptional<T>::value) {
    return value ? Write(*value) : json();
  } else if constexpr (IsVector<T>::value) {
    json list = json::array();
    for (const auto& item : value) list.push_back(Write(item));
    return list;
  } else if constexpr (kPlain<T>) {
    return value;
  } else {
    Writer writer;
    Fields(writer, value, static_cast<const T*>(nullptr));
    return std::move(writer.out);
  }
}

template <typename T>
void Read(const json& from, const std::string& where, T* value, Status* status);

struct Reader {
  const json& from;
  const std::string& where;
  Status* status;
  template <typename T>
  void operator()(const char* name, T& value) {
    const auto it = from.find(name);
    if (it != from.end()) Read(*it, where.empty() ? name : where + "." + name, &value, status);
  }
};

void Refuse(const std::string& where, const char* expected, const json& found, Status* status) {
  if (!status->ok()) return;
  *status = Status(Code::kUsage, fmt::format("hardware description, {}: expected {}, found {}", where, expected,
                                             Printable(found.dump(-1, ' ', true, json::error_handler_t::replace), 60)));
}

template <typename T>
bool Fits(const json& from) {
  if constexpr (std::is_same_v<T, bool>) return from.is_boolean();
  if constexpr (std::is_same_v<T, std::string>) return from.is_string();
  if constexpr (std::is_floating_point_v<T>) return from.is_number();
  if constexpr (std::is_same_v<T, uint64_t>) return from.is_number_unsigned();
  if (!from.is_number_integer()) return false;
  if (from.is_number_unsigned() && from.template get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return false;
  const int64_t number = from.template get<int64_t>();
  return std::is_same_v<T, int64_t> || (number >= INT32_MIN && number <= INT32_MAX);
}

template <typename T>
constexpr const char* Expected() {
  if (std::is_same_v<T, bool>) return "true or false";
  if (std::is_same_v<T, std::string>) return "a text";
  return std::is_floating_point_v<T> ? "a number" : "a whole number";
}

template <typename T>
void Read(const json& from, const std::string& where, T* value, Status* status) {
  if constexpr (IsOptional<T>::value) {
    if (from.is_null()) return value->reset();
    Read(from, where, &value->emplace(), status);
  } else if constexpr (IsVector<T>::value) {
    if (!from.is_array()) return Refuse(where, "a list", from, status);
    value->clear();
    for (size_t i = 0; i < from.size(); ++i)
      Read(from[i], fmt::format("{}[{}]", where, i), &value->emplace_back(), status);
  } else if constexpr (kPlain<T>) {
    if (!Fits<T>(from)) return Refuse(where, Expected<T>(), from, status);
    *value = from.template get<T>();
  } else {
    if (!from.is_object()) return Refuse(where, "an object", from, status);
    Reader reader{from, where, status};
    Fields(reader, *value, static_cast<const T*>(nullptr));
  }
}

}  // namespace

nlohmann::json ToJson(const Hardware& here) { return Write(here); }

Result<Hardware> HardwareFromJson(const nlohmann::json& json) {
  Hardware here;
  Status status;
  if (!json.is_object()) return Status(Code::kUsage, "a hardware description is one JSON object");
  Read(json, "", &here, &status);
  if (!status.ok()) return status;
  return here;
}

}  // namespace lockstep::hardware
