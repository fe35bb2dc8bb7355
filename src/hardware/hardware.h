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

#include "base/environment.h"
#include "base/status.h"

namespace lockstep::hardware {

struct GpuProcess {
  int64_t pid = 0;
  std::string name;  // as /proc says; empty for a pid of another namespace
  std::optional<uint64_t> memory;
};

struct GpuState {
  int index = -1;               // NVML's
  std::string error;            // why nothing more is known: "the GPU is lost ..."; CUDA does not see such a one
  std::string name, uuid, pci;  // pci as /sys names it: "0000:3b:00.0"
  std::optional<uint64_t> memory_total, memory_used;
  std::string pci_path;  // the bridges above it and itself, below /sys/devices; see PciDistance
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
  std::string pci;       // of the device, "0000:1a:00.0"; empty for virtual ones
  std::string pci_path;  // as of a GPU
  std::string driver;    // "mlx5_core", "efa", "irdma", ...
  std::string model;     // "MT4129"
  std::string fw;
  std::string verbs;  // "/dev/infiniband/uverbs0"; empty: a program here cannot open it (no device node)
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
  std::string pci;
  std::string master;                  // the bond or bridge it belongs to
  std::vector<std::string> lower;      // what it stands on: a bond's members, a VLAN's interface
  std::vector<std::string> addresses;  // "10.0.0.5/24", "fe80::1/64"
};

struct Route {
  std::string destination;  // "10.0.0.0/16", "default" (IPv4), "::/0"
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
  std::optional<uint64_t> memory_max, memory_now;  // of the cgroup; `now` without cache that can be given back
  std::optional<double> cpu_quota;                 // cores
};

// A library the job's interpreter would load, found as the dynamic loader and PyTorch would find it.
struct Library {
  std::string path;
  std::string version;   // "2.30.7"; read from the file, nothing is executed
  std::string found_by;  // "LD_PRELOAD", "LD_LIBRARY_PATH", "rpath of libtorch_cuda.so", "built into libtorch_cuda.so"
  std::string cuda;      // that it was built for, "13.0"; empty: none or unknown
};

struct Hardware {
  std::string host, kernel, os, cpu_model;
  std::string container;       // "docker", "kubernetes", "podman", "apptainer", "enroot"; empty: none seen
  std::string driver;          // of the NVIDIA kernel module, "580.65.06"; empty: none
  std::string driver_library;  // NVML's own version; differs from `driver` after an update without reboot
  std::string cuda;            // newest CUDA the driver serves, "13.0"
  std::string gpu_source;      // "nvml", "/proc/driver/nvidia", "no driver", "amdgpu" (seen, not read)
  std::vector<GpuState> gpus;
  int gpus_visible = 0;         // a CUDA program with the job's environment would see
  std::string visible_because;  // "CUDA_VISIBLE_DEVICES=0,1"; empty: nothing restricts
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
  std::optional<double> clock_error;       // seconds at most, as the kernel says
  std::string interpreter;                 // the job's Python; empty: none found
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
  // "" but in tests and for trees copied from elsewhere: the folder under which all paths are looked up. What system
  // calls tell is then read from files of it: addresses from /proc/net/fib_trie, sizes from /statvfs.json.
  std::string root;
  std::string nvml;  // another NVML library; empty: LOCKSTEP_NVML of this process, then libnvidia-ml.so.1
  bool gpus = true;  // false: do not start NVML
};

Hardware ScanHardware(const HardwareOptions& options);

// The interface a packet to this address (numeric) would leave by, by longest prefix and then metric; for an address of
// this machine the interface that has it. Null: no route. Policy routing is not followed.
const Interface* RouteTo(const Hardware& here, const std::string& address);

// How far apart two PCI devices are, from their pci_path: the number of bridges a packet crosses, 0 for one device;
// nothing when they meet only in the CPU (other root ports) or one is unknown. Small is near: 2-4 is one switch.
std::optional<int> PciDistance(const std::string& path, const std::string& other);

// One document (`lockstep doctor hardware --json`); unknown values are null.
nlohmann::json ToJson(const Hardware& here);
// The inverse, for machines described in a file or sent by another node; unknown keys are ignored.
Result<Hardware> HardwareFromJson(const nlohmann::json& json);

}  // namespace lockstep::hardware
