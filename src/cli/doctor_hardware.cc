// `lockstep doctor hardware`: what is here, as tables for people or one JSON document.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/environment.h"
#include "base/files.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "hardware/hardware.h"
#include "place/machine.h"

namespace lockstep::cli {
namespace {

using hardware::Filesystem;
using hardware::Gid;
using hardware::GpuProcess;
using hardware::GpuState;
using hardware::Hardware;
using hardware::HardwareOptions;
using hardware::IbPort;
using hardware::Interface;
using hardware::Library;
using hardware::Limits;
using hardware::NumaNode;
using hardware::Route;

struct Cell {
  std::string text;
  bool bad = false;
};

using HardwareRow = std::vector<Cell>;

// Columns as wide as their widest cell; the last one as it is. Nothing when there are no rows below the heading.
void PrintTable(const std::vector<HardwareRow>& rows, bool colour) {
  if (rows.size() < 2) return;
  std::vector<size_t> widths(rows[0].size());
  for (const HardwareRow& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].text.size());
  fmt::print("\n");
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < rows[r].size(); ++i) {
      const Cell& cell = rows[r][i];
      const std::string text = i + 1 < rows[r].size() ? fmt::format("{:<{}}  ", cell.text, widths[i]) : cell.text;
      line += colour && cell.bad ? "\x1b[31m" + text + "\x1b[0m"
              : colour && r == 0 ? "\x1b[1m" + text + "\x1b[0m"
                                 : text;
    }
    if (!colour) line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
}

template <typename T>
std::string Text(const std::optional<T>& value, std::string_view unit = "") {
  return value ? fmt::format("{}{}", *value, unit) : "-";
}

std::string Size(const std::optional<uint64_t>& bytes) {
  if (!bytes) return "-";
  return *bytes == UINT64_MAX ? "unlimited" : FormatSize(*bytes);
}

std::string Limit(const std::optional<uint64_t>& number) {
  if (!number) return "-";
  return *number == UINT64_MAX ? "unlimited" : fmt::format("{}", *number);
}

std::string Speed(const std::optional<double>& gbit) { return gbit ? fmt::format("{:g}", *gbit) : "-"; }

std::string OrDash(const std::string& text) { return text.empty() ? "-" : Printable(text); }

// What a person must know first about a GPU; "ok" when there is nothing.
Cell StateOf(const GpuState& gpu) {
  if (!gpu.error.empty()) return {gpu.error, true};
  std::vector<std::string> trouble;
  if (!gpu.recovery_action.empty() && gpu.recovery_action != "none") trouble.push_back("needs " + gpu.recovery_action);
  if (!gpu.xids.empty()) {
    std::vector<int> kinds = gpu.xids;
    std::sort(kinds.begin(), kinds.end());
    kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
    trouble.push_back(fmt::format("Xid {}", fmt::join(kinds, ",")));
  }
  if (gpu.ecc_uncorrected.value_or(0) > 0) trouble.push_back(fmt::format("{} uncorrected ECC", *gpu.ecc_uncorrected));
  if (gpu.remap_failed.value_or(false)) trouble.push_back("row remapping failed");
  if (gpu.remap_pending.value_or(false)) trouble.push_back("row remapping pending");
  if (gpu.nvlinks && gpu.nvlinks_active && *gpu.nvlinks_active < *gpu.nvlinks)
    trouble.push_back(fmt::format("{} NVLinks down", *gpu.nvlinks - *gpu.nvlinks_active));
  if (!gpu.fabric.empty() && gpu.fabric != "completed") trouble.push_back("fabric " + gpu.fabric);
  for (const std::string& reason : gpu.throttle)
    if (reason != "sw power cap") trouble.push_back(reason);
  if (!trouble.empty()) return {Join(trouble, ", "), true};
  if (!gpu.memory_total && gpu.compute_capability.empty()) return {"unknown"};  // NVML was not asked
  return {gpu.mig ? "MIG, " + Count(static_cast<int64_t>(gpu.migs.size()), "device") : "ok", false};
}

void PrintGpus(const Hardware& here, bool colour) {
  std::vector<HardwareRow> rows = {{{"GPU"},
                                    {"NAME"},
                                    {"MEMORY"},
                                    {"PCI"},
                                    {"NUMA"},
                                    {"NVLINK"},
                                    {"PCIE"},
                                    {"SM MHZ"},
                                    {"TEMP"},
                                    {"WATT"},
                                    {"USED BY"},
                                    {"STATE"}}};
  for (const GpuState& gpu : here.gpus) {
    std::vector<std::string> users;
    for (const GpuProcess& process : gpu.processes)
      users.push_back(fmt::format("{}{}", process.pid, process.name.empty() ? "" : " " + Printable(process.name)));
    rows.push_back({{fmt::format("{}", gpu.index)},
                    {OrDash(gpu.name)},
                    {gpu.memory_total ? Size(gpu.memory_used) + " of " + Size(gpu.memory_total) : "-"},
                    {OrDash(gpu.pci)},
                    {Text(gpu.numa)},
                    {gpu.nvlinks ? fmt::format("{}/{}", Text(gpu.nvlinks_active), *gpu.nvlinks) : "-"},
                    {gpu.pcie_gen ? fmt::format("{}x{}", *gpu.pcie_gen, Text(gpu.pcie_width)) : "-"},
                    {gpu.sm_clock ? fmt::format("{} of {}", *gpu.sm_clock, Text(gpu.sm_clock_max)) : "-"},
                    {Text(gpu.temperature, " C")},
                    {Text(gpu.power_watts)},
                    {users.empty() ? "-" : Join(users, ", ")},
                    StateOf(gpu)});
  }
  PrintTable(rows, colour);
}

// "2 RoCE v2 10.1.0.3 at 3": how many are set, and the index that routes.
std::string GidText(const IbPort& port) {
  if (port.infiniband()) return fmt::format("lid {}, sm {}", Text(port.lid), Text(port.sm_lid));
  for (const Gid& gid : port.gids)
    if (gid.ipv4 && gid.type == "RoCE v2")
      return fmt::format("{} GIDs, RoCE v2 with IPv4 at {}", port.gids.size(), gid.index);
  return fmt::format("{} GIDs, none RoCE v2 with IPv4", port.gids.size());
}

std::string NearGpus(const Hardware& here, const IbPort& port) {
  std::vector<std::string> near;
  for (const GpuState& gpu : here.gpus)
    if (hardware::PciDistance(port.pci_path, gpu.pci_path)) near.push_back(fmt::format("{}", gpu.index));
  return near.empty() ? "-" : Join(near, ",");
}

void PrintRdma(const Hardware& here, bool colour) {
  std::vector<HardwareRow> rows = {
      {{"RDMA"}, {"STATE"}, {"LINK"}, {"GBIT/S"}, {"NUMA"}, {"PCI"}, {"NEAR GPU"}, {"INTERFACES"}, {"ADDRESS"}}};
  for (const IbPort& port : here.ib) {
    const std::string state = port.state + (port.active() || port.phys_state.empty() ? "" : ", " + port.phys_state);
    rows.push_back(
        {{fmt::format("{}:{}", Printable(port.device), port.port)},
         {OrDash(state + (port.verbs.empty() ? ", no device node" : "")), !port.active() || port.verbs.empty()},
         {OrDash(port.link_layer)},
         {Speed(port.gbit)},
         {Text(port.numa)},
         {OrDash(port.pci)},
         {NearGpus(here, port)},
         {port.netdevs.empty() ? "-" : Join(port.netdevs, ",")},
         {GidText(port)}});
  }
  PrintTable(rows, colour);
}

void PrintNetwork(const Hardware& here, bool all, bool colour) {
  std::vector<HardwareRow> rows = {{{"INTERFACE"}, {"STATE"}, {"KIND"}, {"GBIT/S"}, {"MTU"}, {"NUMA"}, {"ADDRESSES"}}};
  int hidden = 0;
  for (const Interface& it : here.interfaces) {
    // Halves of container networks would fill the screen.
    if (!all && it.is_virtual && it.addresses.empty() && !it.loopback) {
      ++hidden;
      continue;
    }
    std::string kind = it.kind;
    if (!it.master.empty()) kind += " of " + it.master;
    if (!it.lower.empty() && it.kind != "bridge") kind += fmt::format(" over {}", fmt::join(it.lower, ","));
    rows.push_back({{Printable(it.name)},
                    {it.up ? "up" : "down"},
                    {OrDash(kind)},
                    {Speed(it.gbit)},
                    {Text(it.mtu)},
                    {Text(it.numa)},
                    {it.addresses.empty() ? "-" : Join(it.addresses, " ")}});
  }
  PrintTable(rows, colour);
  if (hidden > 0) fmt::print("({} more without addresses, made by software: --all)\n", hidden);
  rows = {{{"ROUTE"}, {"BY"}, {"VIA"}, {"METRIC"}}};
  for (const Route& route : here.routes) {
    if (!all && route.destination.starts_with("fe80::/")) continue;
    rows.push_back(
        {{route.destination}, {Printable(route.interface)}, {OrDash(route.via)}, {fmt::format("{}", route.metric)}});
  }
  PrintTable(rows, colour);
}

void PrintStorage(const Hardware& here, bool colour) {
  std::vector<HardwareRow> rows = {{{"FOLDER"}, {"TYPE"}, {"FREE"}, {"INODES FREE"}, {"MOUNTED AT"}}};
  for (const Filesystem& fs : here.filesystems) {
    const bool full = fs.free && fs.total && *fs.total > 0 && *fs.free < *fs.total / 50;
    rows.push_back({{Printable(fs.path)},
                    {OrDash(fs.type) + (fs.read_only ? ", read-only" : ""), fs.read_only},
                    {fs.total ? Size(fs.free) + " of " + Size(fs.total) : "-", full},
                    {Limit(fs.inodes_free)},
                    {OrDash(fs.mount)}});
  }
  PrintTable(rows, colour);
}

void Line(const char* name, const std::string& text) {
  if (!text.empty()) fmt::print("{:<10}{}\n", name, text);
}

std::string LibraryText(const std::optional<Library>& library, const char* name) {
  if (!library) return "";
  return fmt::format(
      "{} {}{}, {} ({})", name, library->version.empty() ? "of unknown version" : library->version,
      library->cuda.empty() || library->version.find("+cu") != std::string::npos ? "" : " for CUDA " + library->cuda,
      Printable(library->path), Printable(library->found_by));
}

void PrintHead(const Hardware& here) {
  std::string system = OrDash(here.host);
  for (const std::string& part : {here.os, here.kernel.empty() ? "" : "kernel " + here.kernel,
                                  here.container.empty() ? "" : "in " + here.container})
    if (!part.empty()) system += ", " + Printable(part);
  Line("host", system);
  Line("cpu", fmt::format("{}, {}, {} usable, {}", OrDash(here.cpu_model), Count(here.cores, "core"), here.cpus,
                          Count(static_cast<int64_t>(here.numa.size()), "NUMA node")));
  for (const NumaNode& node : here.numa)
    if (here.numa.size() > 1) Line("", fmt::format("node {}: cpus {}, {}", node.id, node.cpus, Size(node.memory)));
  Line("memory", fmt::format("{}, {} available", Size(here.memory_total), Size(here.memory_available)));
  const Limits& limits = here.limits;
  std::string cgroup;
  if (limits.memory_max) cgroup += fmt::format(", memory {} of {}", Size(limits.memory_now), Size(limits.memory_max));
  if (limits.pids_max) cgroup += fmt::format(", processes {} of {}", Limit(limits.pids_now), Limit(limits.pids_max));
  if (limits.cpu_quota) cgroup += fmt::format(", {:g} cpus", *limits.cpu_quota);
  if (!cgroup.empty()) Line("cgroup", cgroup.substr(2));
  Line("limits", fmt::format("locked memory {}, open files {} (at most {}), processes {}, stack {}, core {}",
                             Size(limits.memlock), Limit(limits.nofile), Limit(limits.nofile_hard), Limit(limits.nproc),
                             Size(limits.stack), Size(limits.core)));
  std::string clock = here.clock_source;
  if (here.clock_synchronised) {
    clock += *here.clock_synchronised ? ", synchronised" : ", not synchronised";
    if (here.clock_error) clock += fmt::format(" (error at most {:.1f} ms)", *here.clock_error * 1e3);
  }
  Line("clock", clock);
  std::string driver = here.driver.empty() ? "none (" + here.gpu_source + ")" : here.driver;
  if (!here.driver_library.empty() && here.driver_library != here.driver) driver += ", library " + here.driver_library;
  if (!here.cuda.empty()) driver += ", CUDA up to " + here.cuda;
  if (!here.driver.empty() && !here.ib.empty())
    driver += here.peermem.empty() ? ", no GPUDirect RDMA" : ", GPUDirect RDMA by " + here.peermem;
  if (here.imex_channel) driver += ", IMEX channel";
  Line("driver", driver);
  if (!here.visible_because.empty())
    Line("visible", fmt::format("{} of {} ({})", here.gpus_visible,
                                Count(static_cast<int64_t>(here.gpus.size()), "GPU"), here.visible_because));
  Line("python", Printable(here.interpreter));
  Line("", LibraryText(here.torch, "torch"));
  if (!here.interpreter.empty() && !here.torch) Line("", "no torch among its packages");
  Line("", LibraryText(here.nccl, "NCCL"));
  for (const std::string& plugin : here.net_plugins) Line("", "NCCL plugin " + Printable(plugin));
}

double Milliseconds(const HardwareOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  (void)ScanHardware(options);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// The first scan reads what the kernel has to fetch; the median of the others is what a second caller pays.
void PrintTimes(HardwareOptions options) {
  auto measure = [&](const char* what) {
    const double first = Milliseconds(options);
    std::vector<double> times;
    for (int i = 0; i < 9; ++i) times.push_back(Milliseconds(options));
    std::nth_element(times.begin(), times.begin() + 4, times.end());
    fmt::print(stderr, "{}: first {:.1f} ms, then {:.1f} ms (median of 9)\n", what, first, times[4]);
  };
  const bool gpus = options.gpus;
  options.gpus = false;
  measure("scan without NVML");
  options.gpus = true;
  if (gpus) measure("scan with NVML");
}

}  // namespace

int DoctorHardwareMain(int argc, char** argv) {
  Arguments args("Shows what is here: GPUs, RDMA ports, interfaces, routes, NUMA, limits, file systems, libraries.",
                 "doctor hardware");
  HardwareOptions options;
  bool json = false, all = false, time = false, no_gpus = false;
  args.Flag("--json", &json, "one JSON document; what is unknown is null");
  args.Flag("--all", &all, "also interfaces made by software that have no address");
  args.Option("--python", &options.interpreter, "interpreter whose torch and NCCL are looked for").Named("FILE");
  args.Option("--folder", &options.folders, "a folder whose file system is looked at, too (may be repeated)")
      .Named("DIR");
  args.Option("--root", &options.root, "read /proc, /sys, /dev and /etc below this folder (a copied tree)")
      .Named("DIR");
  args.Option("--nvml", &options.nvml, "another NVML library").Named("FILE");
  args.Flag("--no-gpus", &no_gpus, "do not start NVML");
  args.Flag("--time", &time, "also say how long a scan takes (standard error)");
  args.Footer(
      "Nothing is started, changed or asked of another machine. What could not be read is said at the end.\n\n"
      "examples:\n"
      "  lockstep doctor hardware\n"
      "  lockstep doctor hardware --json | jq '.ib[] | select(.state != \"ACTIVE\")'\n"
      "  srun --ntasks-per-node 1 lockstep doctor hardware --json > nodes.jsonl");
  if (std::optional<int> code = ParseCommand(args, argc, argv)) return *code;
  if (!options.root.empty()) {
    const auto names = ListDir(options.root);
    while (options.root.ends_with('/')) options.root.pop_back();
    if (!names.ok()) return Complain("doctor hardware", names.status().Context("--root"));
  }
  options.gpus = !no_gpus;
  options.env = CurrentEnvironment();
  const Hardware here = ScanHardware(options);
  if (json) {
    fmt::print("{}\n", ToJson(here).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    const bool colour = UseColour(STDOUT_FILENO);
    PrintHead(here);
    PrintGpus(here, colour);
    PrintRdma(here, colour);
    PrintNetwork(here, all, colour);
    PrintStorage(here, colour);
    if (!here.notes.empty()) fmt::print("\n");
    for (const std::string& note : here.notes) fmt::print("note: {}\n", Printable(note, 400));
  }
  if (std::fflush(stdout) != 0) {
    return Complain("doctor hardware", Status(Code::kEnvironment, fmt::format("cannot write: {}", ErrnoText(errno))));
  }
  if (time) PrintTimes(options);
  return 0;
}

}  // namespace lockstep::cli
