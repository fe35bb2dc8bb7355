// Limits, network, disks and software of one node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/sockets.h"
#include "preflight/healthy_node.h"
#include "preflight/interfaces.h"
#include "preflight/interpreter.h"

namespace lockstep::preflight {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SystemChecks, AHealthyNodePasses) {
  const CheckInput input = HealthyNode();
  for (auto* check : {CheckMemlock, CheckNofile, CheckPids, CheckMemory, CheckShm, CheckClock, CheckIbPorts}) {
    EXPECT_EQ(check(input).state(), State::kOk) << check(input).ToJson();
  }
}

TEST(SystemChecks, LockedMemoryMattersOnlyToRdma) {
  CheckInput input = HealthyNode();
  input.root = "/nonexistent";  // no capability lifts the limit
  input.here.limits.memlock = 65536;
  EXPECT_EQ(CheckMemlock(input).state(), State::kWarn) << "one node";
  input.nnodes = 2;
  ExpectProblem(CheckMemlock(input), State::kFail, "64.0 KiB");
  input.here.limits.memlock = 8ull << 30;
  EXPECT_EQ(CheckMemlock(input).state(), State::kWarn);
  input.here.ib.clear();
  input.here.limits.memlock = 65536;
  EXPECT_EQ(CheckMemlock(input).state(), State::kSkipped);
}

TEST(SystemChecks, SharedMemoryIsWantedPerRank) {
  CheckInput input = HealthyNode();
  input.here.filesystems[0].total = input.here.filesystems[0].free = 64ull << 20;  // docker's default
  ExpectProblem(CheckShm(input), State::kFail, "64.0 MiB");
  EXPECT_THAT(CheckShm(input).problems[0].remedy, HasSubstr("--ipc=host"));
  input.here.filesystems[0].total = input.here.filesystems[0].free = 7ull << 30;
  EXPECT_EQ(CheckShm(input).state(), State::kWarn);
  input.nproc = 4;
  EXPECT_EQ(CheckShm(input).state(), State::kOk);
  input.here.filesystems[0].total = 64ull << 30;
  input.here.filesystems[0].free = 1 << 20;
  EXPECT_THAT(CheckShm(input).problems[0].remedy, HasSubstr("dead programs"));
  input.here.filesystems.clear();
  ExpectProblem(CheckShm(input), State::kFail, "not there");
}

TEST(SystemChecks, LimitsOfFilesProcessesAndMemory) {
  CheckInput input = HealthyNode();
  input.here.limits.nofile = 256;
  ExpectProblem(CheckNofile(input), State::kFail, "256 open files");
  input.here.limits.nofile = 1024;
  ExpectProblem(CheckNofile(input), State::kWarn, "1024");
  input.here.limits.pids_max = 400;
  input.here.limits.pids_now = 300;
  ExpectProblem(CheckPids(input), State::kFail, "100 of 400");
  input.nproc = 1;
  ExpectProblem(CheckPids(input), State::kWarn, ", 1 rank may need ");
  input.nproc = 8;
  input.here.limits.memory_max = 8ull << 30;
  input.here.limits.memory_now = 4ull << 30;
  ExpectProblem(CheckMemory(input), State::kFail, "4.0 GiB free in the control group");
  input.here.limits.memory_max = 20ull << 30;
  EXPECT_EQ(CheckMemory(input).state(), State::kWarn);
}

TEST(SystemChecks, AClockNobodySetsMattersBetweenNodes) {
  CheckInput input = HealthyNode();
  input.here.clock_synchronised = false;
  EXPECT_EQ(CheckClock(input).state(), State::kOk);
  input.nnodes = 2;
  EXPECT_EQ(CheckClock(input).state(), State::kWarn);
}

TEST(HostName, OnLoopbackStopsOnlyWhereNobodyNamesTheInterface) {
  CheckInput input = HealthyNode(0);
  input.here.host = "localhost";
  EXPECT_EQ(CheckHostName(input).state(), State::kOk) << "one node";
  input.nnodes = 2;
  ExpectProblem(CheckHostName(input), State::kFail, "Gloo would tell the others");
  input.tuned = true;
  ExpectProblem(CheckHostName(input), State::kWarn, "Gloo would tell the others");
  input.env["GLOO_SOCKET_IFNAME"] = "eth0";
  EXPECT_EQ(CheckHostName(input).state(), State::kOk);
}

TEST(RdmaPorts, DownOneWarnsAllDownFails) {
  CheckInput input = HealthyNode();
  input.nnodes = 2;
  input.here.ib[2].state = "DOWN";
  input.here.ib[2].phys_state = "Polling";
  ExpectProblem(CheckIbPorts(input), State::kWarn, "mlx5_2 port 1 is DOWN (Polling)");
  input.env["NCCL_IB_HCA"] = "mlx5_2,mlx5_3";
  ExpectProblem(CheckIbPorts(input), State::kFail, "NCCL_IB_HCA=mlx5_2,mlx5_3 asks for it");
  input.env["NCCL_IB_HCA"] = "^mlx5_2";
  EXPECT_EQ(CheckIbPorts(input).state(), State::kOk);
  input.env["NCCL_IB_HCA"] = "mlx4";
  ExpectProblem(CheckIbPorts(input), State::kFail, "names no device");
  input.env.clear();
  for (hardware::IbPort& port : input.here.ib) port.state = "DOWN";
  ExpectProblem(CheckIbPorts(input), State::kFail, "no RDMA port is active");
  input.nnodes = 1;
  ExpectProblem(CheckIbPorts(input), State::kWarn, "no RDMA port is active");
  input.nnodes = 2;
  input.visible.clear();  // Gloo speaks TCP
  EXPECT_EQ(CheckIbPorts(input).state(), State::kWarn);
}

TEST(RdmaPorts, WhatIsUnusedByDesignIsNotComplainedAbout) {
  CheckInput input = HealthyNode();
  input.nnodes = 2;
  hardware::IbPort second = input.here.ib[0];  // the other port of a card, where no card uses it
  second.port = 2;
  second.state = "DOWN";
  input.here.ib.push_back(second);
  EXPECT_EQ(CheckIbPorts(input).state(), State::kOk) << CheckIbPorts(input).ToJson();
  input.env["NCCL_IB_HCA"] = "mlx5";  // a beginning that fits every card asks for none by name
  EXPECT_EQ(CheckIbPorts(input).state(), State::kOk) << CheckIbPorts(input).ToJson();
  input.env.clear();
  input.here.ib.push_back(HealthyPort(9));  // a front end that `lockstep run` leaves out by itself
  input.here.ib.back().link_layer = "Ethernet";
  input.here.ib.back().gbit = 100;
  EXPECT_EQ(CheckIbPorts(input).state(), State::kOk) << CheckIbPorts(input).ToJson();
}

TEST(RdmaPorts, APodNeedsOnlyOneItCanOpen) {
  CheckInput input = HealthyNode();
  input.nnodes = 2;
  for (hardware::IbPort& port : input.here.ib) port.verbs.clear();
  ExpectProblem(CheckIbPorts(input), State::kWarn, "mlx5_0 port 1, mlx5_1 port 1");
  EXPECT_EQ(CheckIbPorts(input).problems.size(), 1u);
  input.here.ib[5].verbs = "/dev/infiniband/uverbs5";
  EXPECT_EQ(CheckIbPorts(input).state(), State::kOk);
  EXPECT_THAT(CheckIbPorts(input).note, HasSubstr("1 can be opened here"));
}

TEST(RdmaPorts, WithoutSubnetManagerOrWithMixedRates) {
  CheckInput input = HealthyNode();
  input.nnodes = 2;
  input.here.ib[0].sm_lid = 0;
  ExpectProblem(CheckIbPorts(input), State::kFail, "sm_lid 0");
  input = HealthyNode();
  input.nnodes = 2;
  input.here.ib[0].state = "INIT";
  ExpectProblem(CheckIbPorts(input), State::kFail, "no subnet manager");
  input = HealthyNode();
  input.here.ib[5].gbit = 100;
  ExpectProblem(CheckIbPorts(input), State::kWarn, "100 Gbit/s: mlx5_5; 400 Gbit/s: mlx5_0");
}

TEST(InterfaceLists, MeanWhatNcclMakesOfThem) {
  hardware::Hardware here;
  for (const char* name : {"lo", "eth0", "eth10", "docker0"}) {
    hardware::Interface interface;
    interface.name = name;
    interface.up = true;
    interface.loopback = interface.name == "lo";
    here.interfaces.push_back(interface);
  }
  const auto names = [&](const std::string& list) {
    std::vector<std::string> found;
    for (const hardware::Interface* interface : NamedInterfaces(here, list)) found.push_back(interface->name);
    return found;
  };
  EXPECT_THAT(names("eth"), ElementsAre("eth0", "eth10"));
  EXPECT_THAT(names("=eth1"), ElementsAre());
  EXPECT_THAT(names("=eth0"), ElementsAre("eth0"));
  EXPECT_THAT(names("^docker,lo"), ElementsAre("eth0", "eth10"));
  EXPECT_THAT(names("ib"), ElementsAre());
}

TEST(InterfaceCheck, TheWayToTheMaster) {
  CheckInput input = HealthyNode();
  input.nnodes = 2;
  input.first = false;
  input.master = "node0";
  input.master_address = "10.0.0.1";
  EXPECT_EQ(CheckInterface(input).state(), State::kOk) << CheckInterface(input).ToJson();
  EXPECT_THAT(CheckInterface(input).note, HasSubstr("eth0, 25 Gbit/s, MTU 1500"));
  input.here.interfaces[1].up = false;
  ExpectProblem(CheckInterface(input), State::kFail, "is down");
  input.here.interfaces[1].up = true;
  input.env["NCCL_SOCKET_IFNAME"] = "ens5";
  ExpectProblem(CheckInterface(input), State::kFail, "names no interface of this node (there are: eth0)");
  input.env["NCCL_SOCKET_IFNAME"] = "lo";
  ExpectProblem(CheckInterface(input), State::kFail, "loopback");
  input.env.clear();
  input.here.ib.clear();
  input.here.interfaces[1].gbit = 1;
  ExpectProblem(CheckInterface(input), State::kWarn, "1 Gbit/s");
  input.here.routes.clear();
  ExpectProblem(CheckInterface(input), State::kFail, "no route");
  input.master_address = "";
  input.master_trouble = "Name or service not known";
  ExpectProblem(CheckInterface(input), State::kFail, "has no address here");
}

TEST(InterfaceCheck, GlooWantsWholeNames) {
  CheckInput input = HealthyNode();
  for (const char* value : {"eth", "=eth0", "^docker0", "eth0,eth7"}) {
    input.env["GLOO_SOCKET_IFNAME"] = value;
    ExpectProblem(CheckInterface(input), State::kFail, "there is no interface");
  }
  input.env["GLOO_SOCKET_IFNAME"] = "eth0";
  input.env["NCCL_SOCKET_IFNAME"] = "=eth0";
  EXPECT_EQ(CheckInterface(input).problems.size(), 0u) << CheckInterface(input).ToJson();
}

TEST(Ports, ABusyMasterPortNamesItsOwner) {
  auto listener = Listen(0);
  ASSERT_TRUE(listener.ok());
  CheckInput input = HealthyNode();
  input.launcher_port = LocalPort(listener->get());
  ExpectProblem(CheckPorts(input), State::kFail, fmt::format("pid {}", getpid()));
  listener->reset();
  EXPECT_EQ(CheckPorts(input).state(), State::kOk);
  input.first = false;
  EXPECT_EQ(CheckPorts(input).state(), State::kSkipped);
}

TEST(Disks, AFolderThatIsNotThereYetIsTriedAboveAndNothingIsLeft) {
  auto dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  CheckInput input = HealthyNode();
  input.log_dir = *dir / "a/b/c";
  EXPECT_NE(CheckLogDir(input).state(), State::kFail) << CheckLogDir(input).ToJson();
  EXPECT_THAT(*ListDir(dir->path()), ElementsAre());
  ASSERT_TRUE(WriteFileAtomic(*dir / "file", "x").ok());
  input.log_dir = *dir / "file";
  ExpectProblem(CheckLogDir(input), State::kFail, "is a file");
}

TEST(Disks, ATemporaryFolderThatIsNamedMustBeThere) {
  CheckInput input = HealthyNode();
  const auto said = [&] { return CheckTmp(input).ToJson().dump(); };
  EXPECT_THAT(said(), testing::Not(HasSubstr("is not there")));
  input.env["TMPDIR"] = "/nonexistent/scratch";
  EXPECT_THAT(said(), HasSubstr("TMPDIR=/nonexistent/scratch is not there"));
}

TEST(Disks, DataMustBeThereAndNotEmpty) {
  auto dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  CheckInput input = HealthyNode();
  EXPECT_EQ(CheckData(input).state(), State::kSkipped);
  input.data = {*dir / "missing"};
  ExpectProblem(CheckData(input), State::kFail, "missing");
  input.data = {dir->path()};
  ExpectProblem(CheckData(input), State::kFail, "is empty");
  ASSERT_TRUE(WriteFileAtomic(*dir / "clip.mp4", "x").ok());
  EXPECT_EQ(CheckData(input).state(), State::kOk);
}

TEST(Software, TheInterpreterIsAskedAndTellsItsVersion) {
  InterpreterQuestion question("/usr/bin/python3", {"PATH=/usr/bin:/bin"}, "/");
  const Python python = question.Answer(Now() + Millis(20000));
  EXPECT_EQ(python.trouble, "");
  EXPECT_THAT(python.version, HasSubstr("3."));
  InterpreterQuestion broken("/bin/false", {}, "/");
  EXPECT_THAT(broken.Answer(Now() + Millis(20000)).trouble, HasSubstr("does not start"));
  InterpreterQuestion missing("/nonexistent/python", {}, "/");
  EXPECT_FALSE(missing.Answer(Now() + Millis(20000)).trouble.empty());
}

TEST(Software, AFileCalledTorchIsNotPyTorch) {
  auto dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  ASSERT_TRUE(WriteFileAtomic(*dir / "torch.py", "x = 1\n").ok());
  InterpreterQuestion question("/usr/bin/python3", {"PATH=/usr/bin:/bin"}, dir->path());
  CheckInput input = HealthyNode();
  input.python = question.Answer(Now() + Millis(20000));
  ExpectProblem(CheckTorch(input), State::kFail, "torch.py, which is not PyTorch");
  // A script looks beside itself, not in the folder it is started from.
  InterpreterQuestion elsewhere("/usr/bin/python3", {"PATH=/usr/bin:/bin"}, dir->path(), "/nonexistent");
  EXPECT_NE(elsewhere.Answer(Now() + Millis(20000)).torch_path, *dir / "torch.py");
}

TEST(Software, TorchVersionFileIsReadWithoutImportingIt) {
  Python python;
  ReadTorchVersion(
      "from typing import Optional\n__version__ = '2.13.0+cu130'\ndebug = False\n"
      "cuda: Optional[str] = '13.0'\ngit_version = 'abc'\n",
      &python);
  EXPECT_EQ(python.torch_version, "2.13.0+cu130");
  EXPECT_EQ(python.torch_cuda, "13.0");
  Python cpu;
  ReadTorchVersion("__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n", &cpu);
  EXPECT_EQ(cpu.torch_cuda, "");
}

TEST(Software, AMissingTorchFailsOnlyAProgramThatImportsIt) {
  auto dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  CheckInput input = HealthyNode();
  input.python.torch_path = input.python.torch_version = "";
  input.program = *dir / "train.py";
  ASSERT_TRUE(WriteFileAtomic(input.program, "print(1)\nimport torchish, os\nfrom os import torch\n").ok());
  EXPECT_EQ(CheckTorch(input).state(), State::kWarn);
  for (const char* text : {"def f():\n    import torch.nn\n", "import os, torch\n", "from torch import nn\n"}) {
    ASSERT_TRUE(WriteFileAtomic(input.program, text).ok());
    ExpectProblem(CheckTorch(input), State::kFail, "and the program imports it");
  }
}

TEST(Deadline, ACheckThatHangsFailsAndHoldsUpNobody) {
  auto dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  auto input = std::make_shared<CheckInput>(HealthyNode());
  input->data = {*dir / "pipe"};
  ASSERT_EQ(mkfifo(input->data[0].c_str(), 0600), 0);  // opening it waits for a writer that never comes
  Selection selection;
  selection.only = {"data", "shm"};
  const auto results = RunChecks(input, selection, Millis(100));
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].outcome.state(), State::kOk);
  ExpectProblem(results[1].outcome, State::kFail, "no answer within");
}

TEST(Selection, BeginningsAndNearestNames) {
  Selection selection;
  selection.only = {"gpu", "shm"};
  selection.skip = {"gpu-xid"};
  EXPECT_TRUE(CheckSelection(selection).ok());
  EXPECT_TRUE(selection.Has("gpu-count"));
  EXPECT_FALSE(selection.Has("gpu-xid"));
  EXPECT_FALSE(selection.Has("memlock"));
  EXPECT_TRUE(Selection{}.Has("memlock"));
  selection.skip = {"memlok"};
  EXPECT_THAT(CheckSelection(selection).message(), HasSubstr("memlock"));
}

TEST(Selection, EveryRowSaysWhatItIsAndEveryRowOfANodeHasAFunction) {
  std::set<std::string> ids;
  for (const Check& check : Checks()) {
    EXPECT_TRUE(ids.insert(check.id).second) << check.id;
    EXPECT_FALSE(std::string(check.what).empty());
    EXPECT_EQ(check.run != nullptr, check.needs == Needs::kOneNode) << check.id;
  }
}

}  // namespace
}  // namespace lockstep::preflight
