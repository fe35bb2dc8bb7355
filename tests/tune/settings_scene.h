// Machines and questions for the tests of settings: a node with eth0 towards its peers, RDMA ports, GPUs. Header only.
#pragma once

#include <gtest/gtest.h>

#include "tune/settings.h"

namespace lockstep::tune {

using hardware::Gid;
using hardware::GpuState;
using hardware::Hardware;
using hardware::IbPort;
using hardware::Interface;

inline Interface Link(const std::string& name, const std::string& address, double gbit = 10, bool up = true) {
  Interface out;
  out.name = name;
  out.up = up;
  out.kind = name == "lo" ? "loopback" : name.starts_with("docker") ? "bridge" : "ethernet";
  out.loopback = name == "lo";
  out.is_virtual = out.loopback || out.kind == "bridge";
  if (gbit > 0) out.gbit = gbit;
  if (!address.empty()) out.addresses = {address};
  return out;
}

inline IbPort Port(const std::string& device, const std::string& layer, double gbit,
                   const std::string& state = "ACTIVE", const std::string& pci = "") {
  IbPort out;
  out.device = device;
  out.link_layer = layer;
  out.gbit = gbit;
  out.state = state;
  out.phys_state = state == "ACTIVE" ? "LinkUp" : "Polling";
  out.pci = pci;
  out.lid = layer == "InfiniBand" ? 7 : 0;
  out.sm_lid = layer == "InfiniBand" ? 1 : 0;
  return out;
}

// Node 10.0.0.5 with eth0 towards the peers and the default route.
inline Hardware Node() {
  Hardware here;
  here.host = "n5";
  here.cpus = 64;
  here.interfaces = {Link("lo", "127.0.0.1/8"), Link("eth0", "10.0.0.5/16")};
  here.routes = {{"default", "10.0.0.1", "eth0", "", 100}, {"10.0.0.0/16", "", "eth0", "10.0.0.5", 100}};
  here.nccl = hardware::Library{"/x/libnccl.so.2", "2.27.5", "system"};
  here.torch = hardware::Library{"/x/libtorch.so", "2.12.0", "system"};
  here.peermem = "nvidia_peermem";
  return here;
}

inline void AddGpus(int count, Hardware* here) {
  for (int i = 0; i < count; ++i) {
    here->gpus.emplace_back();
    here->gpus.back().index = i;
  }
}

inline JobShape TwoNodes() {
  JobShape job;
  job.nnodes = 2;
  job.nproc_per_node = 8;
  job.peers = {"10.0.0.4"};
  job.own_addresses = {"10.0.0.5"};
  return job;
}

inline const Setting* Find(const Settings& settings, const std::string& name) {
  for (const Setting& setting : settings.set) {
    if (setting.name == name) return &setting;
  }
  return nullptr;
}

inline std::string Value(const Settings& settings, const std::string& name) {
  const Setting* found = Find(settings, name);
  return found == nullptr ? "(none)" : found->value;
}

inline bool Left(const Settings& settings, const std::string& name) {
  for (const LeftAlone& left : settings.left) {
    if (left.name.find(name) != std::string::npos) return true;
  }
  return false;
}

inline bool Warned(const Settings& settings, const std::string& words) {
  for (const std::string& warning : settings.warnings) {
    if (warning.find(words) != std::string::npos) return true;
  }
  return false;
}

inline Hardware EightRails() {
  Hardware here = Node();
  AddGpus(8, &here);
  for (int i = 0; i < 8; ++i) here.ib.push_back(Port("mlx5_" + std::to_string(i), "InfiniBand", 400));
  return here;
}

}  // namespace lockstep::tune
