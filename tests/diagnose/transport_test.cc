#include "diagnose/transport.h"

#include <gtest/gtest.h>

namespace lockstep::diagnose {
namespace {

Transport Read(const std::vector<std::string>& lines) {
  TransportReader reader;
  for (const std::string& line : lines) reader.Line(line);
  return reader.transport();
}

// After the form NCCL 2.18 prints.
const std::vector<std::string> kInfiniBand218 = {
    "n0:4711:4711 [0] NCCL INFO Bootstrap : Using ib0:10.1.0.1<0>",
    "n0:4711:4711 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open "
    "shared "
    "object file: No such file or directory",
    "n0:4711:4711 [0] NCCL INFO NET/Plugin : No plugin found, using internal implementation",
    "n0:4711:4711 [0] NCCL INFO cudaDriverVersion 12020",
    "NCCL version 2.18.3+cuda12.1",
    "n0:4711:4790 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/IB [2]mlx5_4:1/IB [3]mlx5_5:1/IB [RO]; OOB "
    "ib0:10.1.0.1<0>",
    "n0:4711:4790 [0] NCCL INFO Using network IB",
    "n0:4711:4790 [0] NCCL INFO comm 0x7f1 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x7f2 - Init START",
    "n0:4711:4790 [0] NCCL INFO NVLS multicast support is available on dev 0",
    "n0:4711:4790 [0] NCCL INFO Channel 00/0 : 15[7] -> 0[0] [receive] via NET/IB/0/GDRDMA",
    "n0:4711:4790 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC/read",
    "n0:4711:4790 [0] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/3(1)/GDRDMA/Shared",
    "n0:4711:4790 [0] NCCL INFO 16 coll channels, 16 nvls channels, 32 p2p channels, 2 p2p channels per peer",
    "n0:4711:4790 [0] NCCL INFO comm 0x7f1 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x7f2 - Init "
    "COMPLETE",
};

// After the form NCCL 2.30 prints, with time stamps and rails.
const std::vector<std::string> kRoce230 = {
    "[2026-03-01 10:00:00] n1:99:120 [3] NCCL INFO NET/IB : Using [0]mlx5_0:1:0:1/RoCE [1]mlx5_bond_0:1/RoCE ; OOB "
    "eth0:10.0.0.2<0>",
    "[2026-03-01 10:00:00] n1:99:120 [3] NCCL INFO Initialized NET plugin IB",
    "[2026-03-01 10:00:00] n1:99:120 [3] NCCL INFO Assigned NET plugin IB to comm",
    "[2026-03-01 10:00:00] n1:99:120 [3] NCCL INFO Using network IB",
    "[2026-03-01 10:00:01] n1:99:120 [3] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p "
    "channels, "
    "2 p2p channels per peer",
    "[2026-03-01 10:00:01] n1:99:120 [3] NCCL INFO ncclCommInitRankConfig comm 0x55 rank 11 nranks 16 cudaDev 3 "
    "nvmlDev 3 "
    "busId 9a000 commId 0xb - Init COMPLETE",
    "[2026-03-01 10:00:05] n1:99:121 [3] NCCL INFO ncclCommSplit comm 0x56 rank 1 nranks 2 cudaDev 3 nvmlDev 3 busId "
    "9a000 "
    "parent 0x55 splitCount 1 color 5 key 1 - Init COMPLETE",
};

const std::vector<std::string> kSocket = {
    "ps-8:796:796 [1] NCCL INFO NET/IB : No device found.",
    "ps-8:796:796 [1] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.8<0> [1]virbr0:192.168.122.1<0>",
    "ps-8:796:796 [1] NCCL INFO Using non-device net plugin version 0",
    "ps-8:796:796 [1] NCCL INFO Using network Socket",
    "ps-8:796:796 [1] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0",
    "ps-8:796:796 [1] NCCL INFO ncclCommInitRank comm 0x1 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 1b000 commId 0x2 - "
    "Init "
    "COMPLETE",
};

const std::vector<std::string> kEfa = {
    "ip-10-0-0-1:31:31 [0] NCCL INFO NET/Plugin: Loaded net plugin AWS Libfabric (v8)",
    "ip-10-0-0-1:31:31 [0] NCCL INFO Using network AWS Libfabric",
    "ip-10-0-0-1:31:31 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId "
    "0x2 - "
    "Init COMPLETE",
};

TEST(Transport, InfiniBandOfNccl218) {
  const Transport t = Read(kInfiniBand218);
  EXPECT_TRUE(t.complete);
  EXPECT_EQ(t.rank, 0);
  EXPECT_EQ(t.nranks, 16);
  EXPECT_EQ(t.version, "2.18.3+cuda12.1");
  EXPECT_EQ(t.network, "IB");
  EXPECT_EQ(t.hcas, (std::vector<std::string>{"mlx5_0:1/IB", "mlx5_3:1/IB", "mlx5_4:1/IB", "mlx5_5:1/IB"}));
  EXPECT_EQ(t.paths, (std::set<std::string>{"NET/IB/GDRDMA", "P2P/IPC"}));
  EXPECT_EQ(t.channels, 16);
  EXPECT_EQ(t.nvls_channels, 16);
  EXPECT_EQ(NetworkText(t), "IB over 4 ports, GDRDMA");
}

TEST(Transport, RoceOfNccl230WithASmallerGroupAfterwards) {
  const Transport t = Read(kRoce230);
  EXPECT_EQ(t.rank, 11) << "the rank in the job, not in the group of two";
  EXPECT_EQ(t.nranks, 16);
  EXPECT_EQ(t.network, "IB");
  EXPECT_EQ(t.hcas, (std::vector<std::string>{"mlx5_0:1:0:1/RoCE", "mlx5_bond_0:1/RoCE"}));
  EXPECT_EQ(t.channels, 24);
  EXPECT_EQ(t.nvls_channels, 0);
}

TEST(Transport, SocketsWithTheirInterfaces) {
  const Transport t = Read(kSocket);
  EXPECT_EQ(t.network, "Socket");
  EXPECT_TRUE(t.no_ib_device);
  EXPECT_EQ(t.interfaces, (std::vector<std::string>{"eth0", "virbr0"}));
  EXPECT_EQ(t.paths, (std::set<std::string>{"NET/Socket"}));
  EXPECT_EQ(NetworkText(t), "TCP over eth0, virbr0");
}

TEST(Transport, AMachineWithoutRdmaAsNccl228SaysIt) {
  const Transport t = Read({
      "vm:572:572 [0] NCCL INFO NCCL version 2.28.9+cuda13.0",
      "vm:572:572 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so",
      "vm:572:572 [0] NCCL INFO NET/IB : No device found.",
      "vm:572:572 [0] NCCL INFO NET/IB : Using [RO]; OOB eth0:192.0.2.2<0>",
      "vm:572:572 [0] NCCL INFO Failed to initialize NET plugin IB",
      "vm:572:572 [0] NCCL INFO NET/Socket : Using [0]eth0:192.0.2.2<0>",
      "vm:572:572 [0] NCCL INFO Initialized NET plugin Socket",
      "vm:572:572 [0] NCCL INFO Assigned NET plugin Socket to comm",
      "vm:572:572 [0] NCCL INFO Using network Socket",
      "vm:572:572 [0] NCCL INFO Channel 00/64 : 0",
      "vm:572:572 [0] NCCL INFO 64 coll channels, 64 collnet channels, 0 nvls channels, 64 p2p channels, 64 p2p "
      "channels "
      "per peer",
      "vm:572:572 [0] NCCL INFO ncclCommInitRankConfig comm 0x1cc rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 60 commId "
      "0xb5 - "
      "Init COMPLETE",
      "vm:572:572 [0] NCCL INFO Init timings - ncclCommInitRankConfig: rank 0 nranks 1 total 0.32 (kernels 0.29)",
  });
  EXPECT_EQ(t.version, "2.28.9+cuda13.0");
  EXPECT_EQ(t.network, "Socket");
  EXPECT_TRUE(t.hcas.empty());
  EXPECT_TRUE(t.paths.empty());
  EXPECT_EQ(t.channels, 64);
  EXPECT_EQ(t.nranks, 1);
}

TEST(Transport, APluginByItsOwnName) {
  const Transport t = Read(kEfa);
  EXPECT_EQ(t.network, "AWS Libfabric");
  EXPECT_EQ(t.plugin, "AWS Libfabric");
}

TEST(Transport, LinesOfAProgramSayNothing) {
  const Transport t = Read({"Using network of friends", "step 1 loss 0.5 via NET/IB", "", "\xff\xfe", "NCCL INFO [0",
                            "NCCL INFO NET/IB : Using [0"});
  EXPECT_FALSE(t.complete);
  EXPECT_EQ(t.network, "");
  EXPECT_TRUE(t.hcas.empty());
}

Transport Rank(int rank, int node, Transport t) {
  t.rank = rank;
  t.node = node;
  return t;
}

TEST(Transport, FallingBackToTcpIsWarnedAboutOnlyWhereAPortIsActive) {
  const std::vector<Transport> all = {Rank(0, 0, Read(kSocket)), Rank(1, 1, Read(kSocket))};
  EXPECT_EQ(TransportWarning(all, 2, {}), "");
  const std::string warning = TransportWarning(all, 2, {0, 1});
  EXPECT_NE(warning.find("TCP over eth0"), std::string::npos) << warning;
  EXPECT_NE(warning.find("ranks 0-1"), std::string::npos) << warning;
  EXPECT_EQ(TransportWarning(all, 1, {0, 1}), "") << "one node sends nothing over the network";
}

TEST(Transport, RanksThatDifferAreNamed) {
  const std::vector<Transport> all = {Rank(0, 0, Read(kInfiniBand218)), Rank(1, 0, Read(kInfiniBand218)),
                                      Rank(2, 1, Read(kSocket)), Rank(3, 1, Read(kSocket))};
  const std::string warning = TransportWarning(all, 2, {0, 1});
  EXPECT_NE(warning.find("ranks 0-1 IB over 4 ports"), std::string::npos) << warning;
  EXPECT_NE(warning.find("ranks 2-3 TCP"), std::string::npos) << warning;
  std::vector<Transport> fewer = {Rank(0, 0, Read(kInfiniBand218)), Rank(1, 1, Read(kInfiniBand218))};
  EXPECT_EQ(TransportWarning(fewer, 2, {0, 1}), "");
  fewer[1].hcas.pop_back();
  EXPECT_NE(TransportWarning(fewer, 2, {0, 1}).find("ranks 1 IB over 3 ports"), std::string::npos);
}

TEST(Transport, NodesWhoseInterfacesHaveOtherNamesDoNotDiffer) {
  std::vector<Transport> all = {Rank(0, 0, Read(kSocket)), Rank(1, 1, Read(kSocket))};
  all[1].interfaces = {"ens3"};
  EXPECT_EQ(TransportWarning(all, 2, {}), "");
}

TEST(Transport, EqualRanksStandTogether) {
  const std::vector<Transport> all = {Rank(0, 0, Read(kEfa)), Rank(2, 1, Read(kEfa)), Rank(1, 0, Read(kEfa))};
  const auto groups = TransportGroups(all);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0]["ranks"], "0-2");
  EXPECT_EQ(groups[0]["network"], "AWS Libfabric");
  EXPECT_EQ(RankRanges({5, 1, 2, 3}), "1-3,5");
}

TEST(Transport, SurvivesTheWire) {
  const Transport before = Rank(7, 2, Read(kInfiniBand218));
  const Transport after = TransportFromJson(ToJson(before));
  EXPECT_EQ(ToJson(after), ToJson(before));
  EXPECT_EQ(TransportFromJson(nlohmann::json::parse(R"({"rank":"x","hcas":[1,null],"paths":7})")).rank, -1);
  EXPECT_EQ(TransportFromJson(nlohmann::json::array()).rank, -1);
}

}  // namespace
}  // namespace lockstep::diagnose
