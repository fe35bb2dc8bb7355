// A healthy input for tests to spoil: eight GPUs, eight InfiniBand ports, roomy limits. Header only.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "preflight/check.h"
#include "preflight/rows.h"

namespace lockstep::preflight {

inline hardware::GpuState HealthyGpu(int index) {
  hardware::GpuState gpu;
  gpu.index = index;
  gpu.name = "NVIDIA H800";
  gpu.uuid = fmt::format("GPU-{:04}", index);
  gpu.pci = fmt::format("0000:{:02x}:00.0", 0x18 + index);
  gpu.memory_total = 80ull << 30;
  gpu.memory_used = 500ull << 20;
  gpu.ecc = true;
  gpu.ecc_uncorrected = 0;
  gpu.remap_pending = gpu.remap_failed = false;
  gpu.recovery_action = "none";
  gpu.nvlinks = gpu.nvlinks_active = 8;
  gpu.fabric = "completed";
  gpu.pcie_width = gpu.pcie_width_max = 16;
  return gpu;
}

inline hardware::IbPort HealthyPort(int index) {
  hardware::IbPort port;
  port.device = fmt::format("mlx5_{}", index);
  port.state = "ACTIVE";
  port.phys_state = "LinkUp";
  port.link_layer = "InfiniBand";
  port.gbit = 400;
  port.lid = 10 + index;
  port.sm_lid = 1;
  port.verbs = fmt::format("/dev/infiniband/uverbs{}", index);
  return port;
}

inline CheckInput HealthyNode(int gpus = 8) {
  CheckInput input;
  input.nproc = gpus;
  hardware::Hardware& here = input.here;
  here.host = "gpu-1";
  here.driver = here.driver_library = "550.90.07";
  here.cuda = "12.4";
  here.gpu_source = "nvml";
  for (int i = 0; i < gpus; ++i) {
    here.gpus.push_back(HealthyGpu(i));
    here.ib.push_back(HealthyPort(i));
  }
  input.visible = here.gpus;
  hardware::Interface loopback;
  loopback.name = "lo";
  loopback.loopback = loopback.up = true;
  loopback.addresses = {"127.0.0.1/8"};
  hardware::Interface ethernet;
  ethernet.name = "eth0";
  ethernet.up = true;
  ethernet.mtu = 1500;
  ethernet.gbit = 25;
  ethernet.addresses = {"10.0.0.5/24"};
  here.interfaces = {loopback, ethernet};
  here.routes = {{"10.0.0.0/24", "", "eth0", "10.0.0.5", 0}};
  here.limits.memlock = UINT64_MAX;
  here.limits.nofile = here.limits.nofile_hard = 1 << 20;
  here.limits.pids_max = UINT64_MAX;
  here.memory_total = here.memory_available = 1ull << 40;
  hardware::Filesystem shm;
  shm.path = "/dev/shm";
  shm.total = shm.free = 64ull << 30;
  here.filesystems = {shm};
  here.clock_synchronised = true;
  input.python = {"/venv/bin/python", "", "3.11.2", "/venv/lib/torch/__init__.py", "2.5.1", "12.4"};
  here.nccl = hardware::Library{"/venv/lib/libnccl.so.2", "2.21.5", "rpath of libtorch_cuda.so", "12.4"};
  return input;
}

// The row fails (or warns), its text holds the words, and it says what to do.
inline void ExpectProblem(const CheckOutcome& outcome, State state, const std::string& words) {
  EXPECT_EQ(outcome.state(), state) << outcome.ToJson();
  ASSERT_FALSE(outcome.problems.empty());
  EXPECT_THAT(outcome.problems[0].text, ::testing::HasSubstr(words));
  EXPECT_FALSE(outcome.problems[0].remedy.empty());
}

}  // namespace lockstep::preflight
