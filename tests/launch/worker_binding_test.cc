#include "launch/worker_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two sockets of two NUMA nodes with four cores of two threads each; two core complexes per node. CPU c and c + 16 are
// one core, as Linux numbers them.
Topology TwoSockets() {
  Topology topology;
  for (int id = 0; id < 32; ++id) {
    const int core = id % 16;
    topology.cpus.push_back({.id = id, .core = core, .node = core / 4, .package = core / 8, .cache = core / 2 * 2});
  }
  return topology;
}

std::vector<std::string> Lists(const std::vector<RankBinding>& plan) {
  std::vector<std::string> out;
  for (const RankBinding& rank : plan) out.push_back(FormatCpuList(rank.cpus));
  return out;
}

std::vector<RankBinding> Plan(Bind bind, const Topology& topology, int ranks) {
  const auto plan = PlanBinding(bind, topology, ranks);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  return plan.ok() ? *plan : std::vector<RankBinding>{};
}

TEST(Binding, CpuListsReadAndWrite) {
  EXPECT_THAT(*ParseCpuList("0-2,8,10-11"), ElementsAre(0, 1, 2, 8, 10, 11));
  EXPECT_EQ(FormatCpuList({0, 1, 2, 8, 10, 11}), "0-2,8,10-11");
  EXPECT_THAT(*ParseCpuList(""), IsEmpty());
  for (const char* bad : {"a", "3-1", "1-", "-1", "1,,2", "99999999999"}) EXPECT_FALSE(ParseCpuList(bad).ok()) << bad;
}

TEST(Binding, NoneBindsNothingAndSharesTheThreads) {
  const auto plan = Plan(Bind::kNone, TwoSockets(), 4);
  EXPECT_THAT(Lists(plan), ElementsAre("", "", "", ""));
  EXPECT_EQ(plan[0].threads, 8);
}

TEST(Binding, NumaBindsARankToTheNodeOfItsGpu) {
  Topology topology = TwoSockets();
  topology.gpu_nodes = {3, 3, 0, 1};
  const auto plan = Plan(Bind::kNuma, topology, 4);
  EXPECT_THAT(Lists(plan), ElementsAre("12-15,28-31", "12-15,28-31", "0-3,16-19", "4-7,20-23"));
  EXPECT_EQ(plan[0].threads, 2);  // 4 cores, shared by two ranks
  EXPECT_EQ(plan[2].threads, 4);
  EXPECT_EQ(plan[0].why, "NUMA node 3 of GPU 0");
}

TEST(Binding, CoresGiveEachRankItsOwnShareOfTheNodeOfItsGpu) {
  Topology topology = TwoSockets();
  topology.gpu_nodes = {0, 0, 0, 2};
  const auto plan = Plan(Bind::kCores, topology, 4);
  EXPECT_THAT(Lists(plan), ElementsAre("0-1,16-17", "2,18", "3,19", "8-11,24-27"));
  EXPECT_EQ(plan[0].threads, 2);
  EXPECT_EQ(plan[1].threads, 1);
}

TEST(Binding, WithoutGpusCoresAreSharedOutEvenly) {
  const auto plan = Plan(Bind::kCores, TwoSockets(), 2);
  EXPECT_THAT(Lists(plan), ElementsAre("0-7,16-23", "8-15,24-31"));
  EXPECT_EQ(plan[0].threads, 8);
  EXPECT_THAT(Lists(Plan(Bind::kCores, TwoSockets(), 1)), ElementsAre("0-31"));
}

TEST(Binding, WithoutGpusRanksAreSpreadOverTheNodes) {
  EXPECT_THAT(Lists(Plan(Bind::kNuma, TwoSockets(), 4)),
              ElementsAre("0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"));
  EXPECT_THAT(Lists(Plan(Bind::kNuma, TwoSockets(), 2)), ElementsAre("0-3,16-19", "8-11,24-27"));
}

TEST(Binding, SocketTakesAllNodesOfTheSocket) {
  Topology topology = TwoSockets();
  topology.gpu_nodes = {1, 2};
  EXPECT_THAT(Lists(Plan(Bind::kSocket, topology, 2)), ElementsAre("0-7,16-23", "8-15,24-31"));
}

TEST(Binding, ComplexGivesRanksOfANodeDifferentCaches) {
  Topology topology = TwoSockets();
  topology.gpu_nodes = {0, 0, 0};
  EXPECT_THAT(Lists(Plan(Bind::kComplex, topology, 3)), ElementsAre("0-1,16-17", "2-3,18-19", "0-1,16-17"));
}

TEST(Binding, AGpuWithoutANodeNumberBelongsToTheOnlyNode) {
  Topology topology;
  for (int id = 0; id < 4; ++id) topology.cpus.push_back({.id = id, .core = id});
  topology.gpu_nodes = {-1, -1};
  EXPECT_THAT(Lists(Plan(Bind::kCores, topology, 2)), ElementsAre("0-1", "2-3"));
}

TEST(Binding, ARankWithoutAnyCpuIsAnError) {
  Topology topology = TwoSockets();
  topology.gpu_nodes = {0, 0, 0, 0, 0};
  EXPECT_THAT(PlanBinding(Bind::kCores, topology, 5).status().message(), HasSubstr("5 ranks need a core each"));
  std::erase_if(topology.cpus, [](const Cpu& cpu) { return cpu.node == 0; });
  EXPECT_THAT(PlanBinding(Bind::kNuma, topology, 1).status().message(),
              HasSubstr("may not use any CPU of NUMA node 0 of GPU 0"));
}

TEST(Binding, TheTopologyIsReadFromSysAndLimitedToAllowedCpus) {
  Result<TempDir> dir = TempDir::Create("binding-test");
  ASSERT_TRUE(dir.ok());
  const auto file = [&](const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(*dir / name).parent_path());
    std::ofstream(*dir / name) << text << "\n";
  };
  file("devices/system/node/node0/cpulist", "0-1,4-5");
  file("devices/system/node/node1/cpulist", "2-3,6-7");
  file("devices/system/node/possible", "0-1");
  for (int cpu = 0; cpu < 8; ++cpu) {
    const std::string base = "devices/system/cpu/cpu" + std::to_string(cpu);
    const int low = cpu % 4;
    file(base + "/topology/thread_siblings_list", std::to_string(low) + "," + std::to_string(low + 4));
    file(base + "/topology/physical_package_id", std::to_string(low / 2));
    file(base + "/cache/index0/level", "1");
    file(base + "/cache/index0/type", "Data");
    file(base + "/cache/index0/shared_cpu_list", std::to_string(low));
    file(base + "/cache/index1/level", "9");
    file(base + "/cache/index1/type", "Instruction");
    file(base + "/cache/index1/shared_cpu_list", "0-7");
    file(base + "/cache/index2/level", "3");
    file(base + "/cache/index2/type", "Unified");
    file(base + "/cache/index2/shared_cpu_list", low < 2 ? "0-1,4-5" : "2-3,6-7");
  }
  file("bus/pci/devices/0000:3b:00.0/numa_node", "1");
  const auto topology = ReadTopology(dir->path(), {0, 2, 3, 6}, {"00000000:3B:00.0", "0000:ff:00.0"});
  ASSERT_TRUE(topology.ok()) << topology.status().ToString();
  ASSERT_EQ(topology->cpus.size(), 4u);
  EXPECT_EQ(topology->cpus[3].id, 6);
  EXPECT_EQ(topology->cpus[3].core, 2);
  EXPECT_EQ(topology->cpus[3].node, 1);
  EXPECT_EQ(topology->cpus[3].package, 1);
  EXPECT_EQ(topology->cpus[3].cache, 2);
  EXPECT_THAT(topology->gpu_nodes, ElementsAre(1, -1));
  EXPECT_EQ(FormatCpuList(Plan(Bind::kNuma, *topology, 1)[0].cpus), "2-3,6");
}

TEST(Binding, ThisMachineCanBePlanned) {
  const CpuSet allowed = AllowedCpus();
  ASSERT_FALSE(allowed.empty());
  const auto topology = ReadTopology("/sys", allowed, {});
  ASSERT_TRUE(topology.ok()) << topology.status().ToString();
  ASSERT_EQ(topology->cpus.size(), allowed.size());
  EXPECT_EQ(Plan(Bind::kCores, *topology, 1)[0].cpus, allowed);
}

}  // namespace
}  // namespace lockstep::launch
