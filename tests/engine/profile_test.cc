#include "engine/profile.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"

namespace lockstep::engine {
namespace {

TEST(Profile, SortsKernelsByTheirNames) {
  const std::pair<const char*, const char*> rows[] = {
      {"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "matrix products"},
      {"void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(...)", "matrix products"},
      {"void cublasLt::splitKreduce_kernel<32, 16, int, float>(...)", "matrix products"},
      {"cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26", "attention"},
      {"void pytorch_flash::flash_fwd_kernel<...>(...)", "attention"},
      {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "collectives"},
      {"Memcpy DtoH (Device -> Pinned)", "copies"},
      {"Memset (Device)", "copies"},
      {"rms_norm_wide", "other"},
  };
  for (const auto& [name, kind] : rows) EXPECT_STREQ(KindOfKernel(name), kind) << name;
}

TEST(Profile, TracesTheStepsItIsAskedFor) {
  const Result<TempDir> dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const std::string file = dir->path() + "/profile/rank-0.json";
  Profile profile({.start = 2, .steps = 2}, file, /*cuda=*/false);
  std::vector<uint64_t> turns;
  std::string seen;
  for (uint64_t step = 0; step < 6; ++step) {
    if (profile.Due(step)) {
      turns.push_back(step);
      const Result<std::string> turned = profile.Turn();
      ASSERT_TRUE(turned.ok()) << turned.status().ToString();
      seen += *turned;
    }
    at::mm(at::ones({8, 8}), at::ones({8, 8}));
  }
  EXPECT_EQ(turns, (std::vector<uint64_t>{2, 4}));
  EXPECT_EQ(seen, file);
  std::ifstream in(file);
  const auto trace = nlohmann::json::parse(in);
  int products = 0;
  for (const auto& event : trace["traceEvents"]) products += event.value("name", "") == "aten::mm" ? 1 : 0;
  EXPECT_EQ(products, 2);
  EXPECT_FALSE(Profile({}, file, false).Due(0)) << "none unless asked";
}

}  // namespace
}  // namespace lockstep::engine
