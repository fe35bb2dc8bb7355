// Limits, network, disks and software of one node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/sockets.h"
#include "preflight/interfaces.h"
#include "preflight/interpreter.h"
#include "preflight/scene.h"

namespace lockstep::preflight {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void ExpectProblem(const Outcome& outcome, State state, const std::string& words) {
  EXPECT_EQ(outcome.state(), state) << outcome.ToJson();
  ASSERT_FALSE(outcome.problems.empty());
  EXPECT_THAT(outcome.problems[0].text, HasSubstr(words));
  EXPECT_FALSE(outcome.problems[0].remedy.empty());
}

TEST(SystemChecks, AHealthyNodePasses) {
  const Scene scene = HealthyScene();
  for (auto* check : {CheckMemlock, CheckNofile, CheckPids, CheckMemory, CheckShm, CheckClock, CheckIbPorts}) {
    EXPECT_EQ(check(scene).state(), State::kOk) << check(scene).ToJson();
  }
}

TEST(SystemChecks, LockedMemoryMattersOnlyToRdma) {
  Scene scene = HealthyScene();
  scene.root = "/nonexistent";  // no capability lifts the limit
  scene.here.limits.memlock = 65536;
  EXPECT_EQ(CheckMemlock(scene).state(), State::kWarn) << "one node";
  scene.nnodes = 2;
  ExpectProblem(CheckMemlock(scene), State::kFail, "64.0 KiB");
  scene.here.limits.memlock = 8ull << 30;
  EXPECT_EQ(CheckMemlock(scene).state(), State::kWarn);
  scene.here.ib.clear();
  scene.here.limits.memlock = 65536;
  EXPECT_EQ(CheckMemlock(scene).state(), State::kSkipped);
}

TEST(SystemChecks, SharedMemoryIsWantedPerRank) {
  Scene scene = HealthyScene();
  scene.here.filesystems[0].total = scene.here.filesystems[0].free = 64ull << 20;  // docker's default
  ExpectProblem(CheckShm(scene), State::kFail, "64.0 MiB");
  EXPECT_THAT(CheckShm(scene).problems[0].remedy, HasSubstr("--ipc=host"));
  scene.here.filesystems[0].total = scene.here.filesystems[0].free = 7ull << 30;
  EXPECT_EQ(CheckShm(scene).state(), State::kWarn);
  scene.nproc = 4;
  EXPECT_EQ(CheckShm(scene).state(), State::kOk);
  scene.here.filesystems[0].total = 64ull << 30;
  scene.here.filesystems[0].free = 1 << 20;
  EXPECT_THAT(CheckShm(scene).problems[0].remedy, HasSubstr("dead programs"));
  scene.here.filesystems.clear();
  ExpectProblem(CheckShm(scene), State::kFail, "not there");
}

TEST(SystemChecks, LimitsOfFilesProcessesAndMemory) {
  Scene scene = HealthyScene();
  scene.here.limits.nofile = 256;
  ExpectProblem(CheckNofile(scene), State::kFail, "256 open files");
  scene.here.limits.nofile = 1024;
  ExpectProblem(CheckNofile(scene), State::kWarn, "1024");
  scene.here.limits.pids_max = 400;
  scene.here.limits.pids_now = 300;
  ExpectProblem(CheckPids(scene), State::kFail, "100 of 400");
  scene.nproc = 1;
  ExpectProblem(CheckPids(scene), State::kWarn, ", 1 rank may need ");
  scene.nproc = 8;
  scene.here.limits.memory_max = 8ull << 30;
  scene.here.limits.memory_now = 4ull << 30;
  ExpectProblem(CheckMemory(scene), State::kFail, "4.0 GiB free in the control group");
  scene.here.limits.memory_max = 20ull << 30;
  EXPECT_EQ(CheckMemory(scene).state(), State::kWarn);
}

TEST(SystemChecks, AClockNobodySetsMattersBetweenNodes) {
  Scene scene = HealthyScene();
  scene.here.clock_synchronised = false;
  EXPECT_EQ(CheckClock(scene).state(), State::kOk);
  scene.nnodes = 2;
  EXPECT_EQ(CheckClock(scene).state(), State::kWarn);
}

TEST(HostName, OnLoopbackStopsOnlyWhereNobodyNamesTheInterface) {
  Scene scene = HealthyScene(0);
  scene.here.host = "localhost";
  EXPECT_EQ(CheckHostName(scene).state(), State::kOk) << "one node";
  scene.nnodes = 2;
  ExpectProblem(CheckHostName(scene), State::kFail, "Gloo would tell the others");
  scene.tuned = true;
  ExpectProblem(CheckHostName(scene), State::kWarn, "Gloo would tell the others");
  scene.env["GLOO_SOCKET_IFNAME"] = "eth0";
  EXPECT_EQ(CheckHostName(scene).state(), State::kOk);
}

TEST(RdmaPorts, DownOneWarnsAllDownFails) {
  Scene scene = HealthyScene();
  scene.nnodes = 2;
  scene.here.ib[2].state = "DOWN";
  scene.here.ib[2].phys_state = "Polling";
  ExpectProblem(CheckIbPorts(scene), State::kWarn, "mlx5_2 port 1 is DOWN (Polling)");
  scene.env["NCCL_IB_HCA"] = "mlx5_2,mlx5_3";
  ExpectProblem(CheckIbPorts(scene), State::kFail, "NCCL_IB_HCA=mlx5_2,mlx5_3 asks for it");
  scene.env["NCCL_IB_HCA"] = "^mlx5_2";
  EXPECT_EQ(CheckIbPorts(scene).state(), State::kOk);
  scene.env["NCCL_IB_HCA"] = "mlx4";
  ExpectProblem(CheckIbPorts(scene), State::kFail, "names no device");
  scene.env.clear();
  for (hardware::IbPort& port : scene.here.ib) port.state = "DOWN";
  ExpectProblem(CheckIbPorts(scene), State::kFail, "no RDMA port is active");
  scene.nnodes = 1;
  ExpectProblem(CheckIbPorts(scene), State::kWarn, "no RDMA port is active");
  scene.nnodes = 2;
  scene.visible.clear();  // Gloo speaks TCP
  EXPECT_EQ(CheckIbPorts(scene).state(), State::kWarn);
}

TEST(RdmaPorts, WhatIsUnusedByDesignIsNotComplainedAbout) {
  Scene scene = HealthyScene();
  scene.nnodes = 2;
  hardware::IbPort second = scene.here.ib[0];  // the other port of a card, where no card uses it
  second.port = 2;
  second.state = "DOWN";
  scene.here.ib.push_back(second);
  EXPECT_EQ(CheckIbPorts(scene).state(), State::kOk) << CheckIbPorts(scene).ToJson();
  scene.env["NCCL_IB_HCA"] = "mlx5";  // a beginning that fits every card asks for none by name
  EXPECT_EQ(CheckIbPorts(scene).state(), State::kOk) << CheckIbPorts(scene).ToJson();
  scene.env.clear();
  scene.here.ib.push_back(HealthyPort(9));  // a front end that `lockstep run` leaves out by itself
  scene.here.ib.back().link_layer = "Ethernet";
  scene.here.ib.back().gbit = 100;
  EXPECT_EQ(CheckIbPorts(scene).state(), State::kOk) << CheckIbPorts(scene).ToJson();
}

TEST(RdmaPorts, APodNeedsOnlyOneItCanOpen) {
  Scene scene = HealthyScene();
  scene.nnodes = 2;
  for (hardware::IbPort& port : scene.here.ib) port.verbs.clear();
  ExpectProblem(CheckIbPorts(scene), State::kWarn, "mlx5_0 port 1, mlx5_1 port 1");
  EXPECT_EQ(CheckIbPorts(scene).problems.size(), 1u);
  scene.here.ib[5].verbs = "/dev/infiniband/uverbs5";
  EXPECT_EQ(CheckIbPorts(scene).state(), State::kOk);
  EXPECT_THAT(CheckIbPorts(scene).note, HasSubstr("1 can be opened here"));
}

TEST(RdmaPorts, WithoutSubnetManagerOrWithMixedRates) {
  Scene scene = HealthyScene();
  scene.nnodes = 2;
  scene.here.ib[0].sm_lid = 0;
  ExpectProblem(CheckIbPorts(scene), State::kFail, "sm_lid 0");
  scene = HealthyScene();
  scene.nnodes = 2;
  scene.here.ib[0].state = "INIT";
  ExpectProblem(CheckIbPorts(scene), State::kFail, "no subnet manager");
  scene = HealthyScene();
  scene.here.ib[5].gbit = 100;
  ExpectProblem(CheckIbPorts(scene), State::kWarn, "100 Gbit/s: mlx5_5; 400 Gbit/s: mlx5_0");
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
  Scene scene = HealthyScene();
  scene.nnodes = 2;
  scene.first = false;
  scene.master = "node0";
  scene.master_address = "10.0.0.1";
  EXPECT_EQ(CheckInterface(scene).state(), State::kOk) << CheckInterface(scene).ToJson();
  EXPECT_THAT(CheckInterface(scene).note, HasSubstr("eth0, 25 Gbit/s, MTU 1500"));
  scene.here.interfaces[1].up = false;
  ExpectProblem(CheckInterface(scene), State::kFail, "is down");
  scene.here.interfaces[1].up = true;
  scene.env["NCCL_SOCKET_IFNAME"] = "ens5";
  ExpectProblem(CheckInterface(scene), State::kFail, "names no interface of this node (there are: eth0)");
  scene.env["NCCL_SOCKET_IFNAME"] = "lo";
  ExpectProblem(CheckInterface(scene), State::kFail, "loopback");
  scene.env.clear();
  scene.here.ib.clear();
  scene.here.interfaces[1].gbit = 1;
  ExpectProblem(CheckInterface(scene), State::kWarn, "1 Gbit/s");
  scene.here.routes.clear();
  ExpectProblem(CheckInterface(scene), State::kFail, "no route");
  scene.master_address = "";
  scene.master_trouble = "Name or service not known";
  ExpectProblem(CheckInterface(scene), State::kFail, "has no address here");
}

TEST(InterfaceCheck, GlooWantsWholeNames) {
  Scene scene = HealthyScene();
  for (const char* value : {"eth", "=eth0", "^docker0", "eth0,eth7"}) {
    scene.env["GLOO_SOCKET_IFNAME"] = value;
    ExpectProblem(CheckInterface(scene), State::kFail, "there is no interface");
  }
  scene.env["GLOO_SOCKET_IFNAME"] = "eth0";
  scene.env["NCCL_SOCKET_IFNAME"] = "=eth0";
  EXPECT_EQ(CheckInterface(scene).problems.size(), 0u) << CheckInterface(scene).ToJson();
}

TEST(Ports, ABusyMasterPortNamesItsOwner) {
  auto listener = Listen(0);
  ASSERT_TRUE(listener.ok());
  Scene scene = HealthyScene();
  scene.launcher_port = LocalPort(listener->get());
  ExpectProblem(CheckPorts(scene), State::kFail, fmt::format("pid {}", getpid()));
  listener->reset();
  EXPECT_EQ(CheckPorts(scene).state(), State::kOk);
  scene.first = false;
  EXPECT_EQ(CheckPorts(scene).state(), State::kSkipped);
}

TEST(Disks, AFolderThatIsNotThereYetIsTriedAboveAndNothingIsLeft) {
  auto dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  Scene scene = HealthyScene();
  scene.log_dir = *dir / "a/b/c";
  EXPECT_NE(CheckLogDir(scene).state(), State::kFail) << CheckLogDir(scene).ToJson();
  EXPECT_THAT(*ListDir(dir->path()), ElementsAre());
  ASSERT_TRUE(WriteFileAtomic(*dir / "file", "x").ok());
  scene.log_dir = *dir / "file";
  ExpectProblem(CheckLogDir(scene), State::kFail, "is a file");
}

TEST(Disks, ATemporaryFolderThatIsNamedMustBeThere) {
  Scene scene = HealthyScene();
  const auto said = [&] { return CheckTmp(scene).ToJson().dump(); };
  EXPECT_THAT(said(), testing::Not(HasSubstr("is not there")));
  scene.env["TMPDIR"] = "/nonexistent/scratch";
  EXPECT_THAT(said(), HasSubstr("TMPDIR=/nonexistent/scratch is not there"));
}

TEST(Disks, DataMustBeThereAndNotEmpty) {
  auto dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  Scene scene = HealthyScene();
  EXPECT_EQ(CheckData(scene).state(), State::kSkipped);
  scene.data = {*dir / "missing"};
  ExpectProblem(CheckData(scene), State::kFail, "missing");
  scene.data = {dir->path()};
  ExpectProblem(CheckData(scene), State::kFail, "is empty");
  ASSERT_TRUE(WriteFileAtomic(*dir / "clip.mp4", "x").ok());
  EXPECT_EQ(CheckData(scene).state(), State::kOk);
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
  Scene scene = HealthyScene();
  scene.python = question.Answer(Now() + Millis(20000));
  ExpectProblem(CheckTorch(scene), State::kFail, "torch.py, which is not PyTorch");
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
  Scene scene = HealthyScene();
  scene.python.torch_path = scene.python.torch_version = "";
  scene.program = *dir / "train.py";
  ASSERT_TRUE(WriteFileAtomic(scene.program, "print(1)\nimport torchish, os\nfrom os import torch\n").ok());
  EXPECT_EQ(CheckTorch(scene).state(), State::kWarn);
  for (const char* text : {"def f():\n    import torch.nn\n", "import os, torch\n", "from torch import nn\n"}) {
    ASSERT_TRUE(WriteFileAtomic(scene.program, text).ok());
    ExpectProblem(CheckTorch(scene), State::kFail, "and the program imports it");
  }
}

TEST(Deadline, ACheckThatHangsFailsAndHoldsUpNobody) {
  auto dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  auto scene = std::make_shared<Scene>(HealthyScene());
  scene->data = {*dir / "pipe"};
  ASSERT_EQ(mkfifo(scene->data[0].c_str(), 0600), 0);  // opening it waits for a writer that never comes
  Selection selection;
  selection.only = {"data", "shm"};
  const auto results = RunChecks(scene, selection, Millis(100));
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
