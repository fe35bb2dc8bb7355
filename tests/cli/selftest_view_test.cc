#include "cli/selftest_view.h"

#include <gtest/gtest.h>

#include "base/files.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::json;

Stage Of(const char* backend, int ranks, int nnodes) {
  Stage stage;
  stage.name = nnodes > 1 ? "all nodes" : "one node";
  stage.ranks = ranks;
  stage.nnodes = nnodes;
  stage.ok = true;
  stage.result = {{"backend", backend},
                  {"sizes", Json::array({{{"bytes", 8}, {"us", 20.0}, {"algbw", 0.0}, {"busbw", 0.0}},
                                         {{"bytes", 1 << 24}, {"us", 100.0}, {"algbw", 160.0}, {"busbw", 280.0}}})}};
  return stage;
}

hardware::Hardware Node() {
  hardware::Hardware here;
  hardware::Interface eth;
  eth.name = "eth0";
  eth.up = true;
  eth.gbit = 10;
  eth.addresses = {"10.0.0.5/16"};
  here.interfaces = {eth};
  here.routes = {{"10.0.0.0/16", "", "eth0", "", 0}};
  hardware::GpuState gpu;
  gpu.name = "NVIDIA H200";
  gpu.compute_capability = "9.0";
  gpu.nvlinks_active = 18;
  here.gpus = {gpu, gpu};
  return here;
}

TEST(SelftestView, TheWireBetweenGpusOfOneNodeIsNvlinkElsePcie) {
  hardware::Hardware here = Node();
  ASSERT_TRUE(LimitOf(here, Of("nccl", 2, 1), "").has_value());
  EXPECT_DOUBLE_EQ(LimitOf(here, Of("nccl", 2, 1), "")->gbytes, 450);
  here.gpus[0].nvlinks_active.reset();
  EXPECT_FALSE(LimitOf(here, Of("nccl", 2, 1), "").has_value());
  here.gpus[0].pcie_gen_max = 5;
  here.gpus[0].pcie_width = 16;
  EXPECT_NEAR(LimitOf(here, Of("nccl", 2, 1), "")->gbytes, 63, 0.1);
  EXPECT_FALSE(LimitOf(here, Of("gloo", 2, 1), "").has_value()) << "memory of a host";
  EXPECT_FALSE(LimitOf(here, Of("nccl", 1, 1), "").has_value()) << "nobody to talk to";
}

TEST(SelftestView, TheWireBetweenNodesIsRdmaForNcclAndTheRouteForGloo) {
  hardware::Hardware here = Node();
  for (int i = 0; i < 8; ++i) {
    hardware::IbPort port;
    port.device = "mlx5_" + std::to_string(i);
    port.state = "ACTIVE";
    port.gbit = 400;
    here.ib.push_back(port);
  }
  here.ib.emplace_back().state = "ACTIVE";
  here.ib.back().gbit = 25;  // management
  EXPECT_DOUBLE_EQ(LimitOf(here, Of("nccl", 16, 2), "10.0.0.4")->gbytes, 400);
  EXPECT_DOUBLE_EQ(LimitOf(here, Of("gloo", 16, 2), "10.0.0.4")->gbytes, 1.25);
  EXPECT_FALSE(LimitOf(here, Of("gloo", 16, 2), "192.0.2.1").has_value()) << "no route";
}

TEST(SelftestView, ALineSaysTheShareOfTheWireOrWhoFailed) {
  Stage stage = Of("nccl", 2, 1);
  const auto limit = LimitOf(Node(), stage, "");
  EXPECT_NE(StageLine(stage, limit, false).find("62 % of what 18 NVLinks of NVIDIA H200 could give"), std::string::npos)
      << StageLine(stage, limit, false);
  EXPECT_EQ(Details(stage, limit).find("less than half"), std::string::npos);
  EXPECT_NE(Details(stage, LinkLimit{1000, "x"}).find("less than half"), std::string::npos);
  stage.ok = false;
  stage.error = "rank 3 (node 1, b, pid 7) does not answer";
  EXPECT_NE(StageLine(stage, limit, false).find(stage.error), std::string::npos);
  EXPECT_EQ(StageLine(stage, limit, false).find('\x1b'), std::string::npos);
}

TEST(SelftestView, SlowPairsAndLossesAreNamed) {
  Stage stage = Of("gloo", 4, 1);
  stage.result["pairs"] = Json::array();
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      if (i != j) stage.result["pairs"].push_back({i, j, i == 2 && j == 3 ? 0.1 : 1.0});
    }
  }
  stage.result["scale"] = Json::array({{{"ranks", 4},
                                        {"compute_ms", 10.0},
                                        {"exchange_ms", 10.0},
                                        {"efficiency", 0.4},
                                        {"lost_to_exchange", 0.5},
                                        {"lost_to_compute", 0.1}}});
  const std::string text = Details(stage, std::nullopt);
  EXPECT_NE(text.find("slow pair: rank 2 to rank 3"), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 0 to rank 1"), std::string::npos);
  EXPECT_NE(text.find("exchange 50 %"), std::string::npos) << text;
}

TEST(SelftestView, TheLowestRankThatLeftAWordSpeaks) {
  const TempDir dir = *TempDir::Create();
  EXPECT_TRUE(ReadVerdict(dir.path()).is_null());
  EXPECT_TRUE(ReadVerdict(dir.path() + "/absent").is_null());
  ASSERT_TRUE(WriteFileAtomic(dir / "rank-3.json", R"({"rank":3,"error":"three"})").ok());
  ASSERT_TRUE(WriteFileAtomic(dir / "rank-1.json", R"({"rank":1,"error":"one"})").ok());
  ASSERT_TRUE(WriteFileAtomic(dir / "rank-0.json", "{torn").ok());
  EXPECT_EQ(ReadVerdict(dir.path())["error"], "one");
}

TEST(SelftestView, OddResultsAreShownAsFarAsTheyGo) {
  Stage stage = Of("gloo", 2, 1);
  for (const char* text :
       {"null", "[]", R"({"sizes":7,"pairs":[[1],["a","b","c"],7],"scale":{},"notes":[3]})",
        R"({"sizes":[1,null,{}],"scale":[[]],"pairs":[[0,1,"x"],[0,1,2],[0,1,2],[0,1,2],[0,1,2],[0,1,2],[0,1,2]]})"}) {
    stage.result = Json::parse(text);
    (void)StageLine(stage, std::nullopt, true);
    (void)Details(stage, std::nullopt);
    (void)ToJson(stage, std::nullopt);
    EXPECT_FALSE(LimitOf(Node(), stage, "").has_value());
  }
}

}  // namespace
}  // namespace lockstep::cli
