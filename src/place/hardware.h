// What is here: everything about this machine that a training job depends on, read from NVML, /proc, /sys and a few
// system calls into one plain value. Nothing is started, nothing is changed, nothing is asked of another machine. A
// part that could not be read says why in `notes`; a number that is not known is absent, never zero. Any thread.
//
//   Hardware here = ScanHardware({.env = CurrentEnvironment()});
//   for (const IbPort& port : here.ib) ...
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "place/placement.h"

namespace lockstep::place {

struct GpuProcess {
  int64_t pid = 0;
  std::string name;  // as /proc says; empty for a pid of another namespace
  std::optional<uint64_t> memory;
};

struct GpuState {
  int index = -1;               // NVML's
  std::string name, uuid, pci;  // pci as /sys names it: "0000:3b:00.0"
  std::optional<uint64_t> memory_total, memory_used;
  std::optional<int> numa;
  bool mig = false;
  std::vector<std::string> migs;
  std::optional<bool> ecc;                                 // switched on
  std::optional<uint64_t> ecc_corrected, ecc_uncorrected;  // since the driver was loaded
  std::optional<int> remapped_uncorrectable;               // rows
  std::optional<bool> remap_pending, remap_failed;
  std::string recovery_action;  // "none", "gpu reset", "node reboot", "drain P2P", "drain and reset"; empty: unknown
  std::vector<int> xids;        // seen in the kernel log for this GPU, oldest first
  std::optional<int> nvlinks_active, nvlinks;  // links that are up, links there are
  std::string fabric;                          // NVSwitch fabric state: "completed", "in progress", ...; empty: none
  std::string fabric_cluster;                  // cluster UUID + clique, for MNNVL; empty: none
  std::optional<int> sm_clock, sm_clock_max, memory_clock;  // MHz
  std::vector<std::string>
      throttle;  // reasons in NVML's words: "hw thermal slowdown", ...; idle and application limits are not among them
  std::optional<int> temperature, power_watts, utilisation;
  std::string compute_capability;  // "9.0"
  std::optional<int> pcie_gen, pcie_gen_max, pcie_width, pcie_width_max;
  std::vector<GpuProcess> processes;
};

struct Gid {
  int index = -1;
  std::string gid;   // as sysfs prints it
  std::string type;  // "IB/RoCE v1", "RoCE v2"; empty: unknown
  std::string netdev;
  bool ipv4 = false;  // ::ffff:a.b.c.d
};

// One port of one RDMA device.
struct IbPort {
  std::string device;  // "mlx5_0"
  int port = 1;
  std::string state;           // "ACTIVE", "DOWN", "INIT", "ARMED"
  std::string phys_state;      // "LinkUp", "Disabled", "Polling"
  std::string link_layer;      // "InfiniBand" | "Ethernet"
  std::optional<double> gbit;  // of the link
  std::optional<int> numa;
  std::string pci;  // of the device, "0000:1a:00.0"; empty for virtual ones
  std::string fw;
  std::optional<int> lid, sm_lid;
  std::vector<std::string> netdevs;
  std::vector<Gid> gids;  // those that are set
  bool active() const { return state == "ACTIVE"; }
  bool infiniband() const { return link_layer == "InfiniBand"; }
};

struct Interface {
  std::string name;
  bool up = false;  // administratively up and with a carrier
  bool loopback = false;
  bool is_virtual = false;  // docker0, veth, bridges, tunnels: no device behind it
  std::string kind;         // "ethernet", "ipoib", "bond", "bridge", "vlan", "veth", "loopback", "tunnel", ...
  std::optional<int> mtu;
  std::optional<double> gbit;
  std::optional<int> numa;
  std::string master;                  // the bond or bridge it belongs to
  std::vector<std::string> addresses;  // "10.0.0.5/24", "fe80::1/64"
};

struct Route {
  std::string destination;  // "10.0.0.0/16"; "default"
  std::string via;          // gateway; empty: on link
  std::string interface;
  std::string source;  // preferred source address; may be empty
  int metric = 0;
};

struct NumaNode {
  int id = -1;
  std::string cpus;  // "0-31,64-95"
  std::optional<uint64_t> memory;
};

struct Filesystem {
  std::string path;  // what was asked about: "/dev/shm", "/tmp", a run or data folder
  std::string mount, type;
  std::optional<uint64_t> total, free;  // bytes
  std::optional<uint64_t> inodes, inodes_free;
  bool read_only = false;
};

struct Limits {
  std::optional<uint64_t> memlock, nofile, nofile_hard, nproc, stack, core;  // RLIM_INFINITY: UINT64_MAX
  std::optional<uint64_t> pids_max, pids_now;                                // of the cgroup
  std::optional<uint64_t> memory_max, memory_now;                            // of the cgroup
  std::optional<double> cpu_quota;                                           // cores
};

// A library the job's interpreter would load, found as the dynamic loader and PyTorch would find it.
struct Library {
  std::string path;
  std::string version;   // "2.30.7"; read from the file, nothing is executed
  std::string found_by;  // "LD_PRELOAD", "LD_LIBRARY_PATH", "pip package nvidia-nccl-cu13", "system"
};

struct Hardware {
  std::string host, kernel, os, cpu_model;
  std::string container;       // "docker", "kubernetes", "podman", "apptainer", "enroot"; empty: none seen
  std::string driver;          // of the NVIDIA kernel module, "580.65.06"; empty: none
  std::string driver_library;  // NVML's own version; differs from `driver` after an update without reboot
  std::string cuda;            // newest CUDA the driver serves, "13.0"
  std::string gpu_source;      // "nvml", "/proc/driver/nvidia", "no driver"
  std::vector<GpuState> gpus;
  std::vector<IbPort> ib;
  std::vector<Interface> interfaces;
  std::vector<Route> routes;
  std::vector<NumaNode> numa;
  int cpus = 0;   // this process may use
  int cores = 0;  // physical cores of the machine
  std::optional<uint64_t> memory_total, memory_available;
  std::vector<Filesystem> filesystems;
  Limits limits;
  std::string clock_source;                // kernel's
  std::optional<bool> clock_synchronised;  // adjtimex
  std::optional<double> clock_error;       // seconds, as the kernel estimates it
  std::optional<Library> nccl, torch;      // that the job would load
  std::string peermem;                   // "nvidia_peermem" when loaded, "dma-buf" where the kernel can; empty: neither
  bool imex_channel = false;             // /dev/nvidia-caps-imex-channels/channel0
  std::vector<std::string> net_plugins;  // libnccl-net*.so the loader would find
  std::vector<std::string> notes;        // what could not be read, and why
};

struct HardwareOptions {
  Environment env;                   // the job's: CUDA_VISIBLE_DEVICES, LD_LIBRARY_PATH, LD_PRELOAD, VIRTUAL_ENV, ...
  std::string interpreter;           // whose libraries are looked for; empty: as `lockstep run` would choose it
  std::vector<std::string> folders;  // file systems to look at beside /dev/shm, /tmp and the working folder
  std::string root;                  // "" but in tests: the folder under which /proc, /sys, /dev, /etc are looked up
  std::string nvml;  // another NVML library; empty: LOCKSTEP_NVML of this process, then libnvidia-ml.so.1
  bool gpus = true;  // false: do not start NVML
};

Hardware ScanHardware(const HardwareOptions& options);

// The interface a packet to this address (numeric) would leave by, by longest prefix and then metric; null: no route.
const Interface* RouteTo(const Hardware& here, const std::string& address);

// One document (`lockstep doctor hardware --json`); unknown values are null.
nlohmann::json ToJson(const Hardware& here);
// The inverse, for machines described in a file or sent by another node; unknown keys are ignored.
Result<Hardware> HardwareFromJson(const nlohmann::json& json);

}  // namespace lockstep::place
