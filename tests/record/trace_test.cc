#include "record/trace.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"

namespace lockstep::record {
namespace {

using nlohmann::json;

json Event(const char* category, const char* name, int thread, double begin, double length) {
  return {{"ph", "X"}, {"cat", category}, {"name", name}, {"pid", 1}, {"tid", thread}, {"ts", begin}, {"dur", length}};
}

Result<TraceSummary> SummaryOf(const json& events) {
  Result<TempDir> dir = TempDir::Create();
  if (!dir.ok()) return dir.status();
  const std::string path = *dir / "rank-0.json";
  LOCKSTEP_RETURN_IF_ERROR(WriteFileAtomic(path, json{{"schemaVersion", 1}, {"traceEvents", events}}.dump()));
  return SummariseTrace(path, 5);
}

TEST(Trace, SortsKernelsByTheirNames) {
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

// Two steps of 100 ms: in each 10 ms of data, 30 of operators, 20 of backward, 15 of a collective of which an operator
// hides 5, and the rest something else.
TEST(Trace, TheTimeOfAStepFallsIntoPartsThatDoNotOverlap) {
  json events = json::array({json{{"ph", "M"}, {"name", "process_name"}}});
  for (const double at : {0.0, 200000.0}) {
    events.push_back(Event("user_annotation", at == 0 ? "ProfilerStep#7" : "ProfilerStep#8", 1, at, 100000));
    events.push_back(
        Event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, at, 10000));
    events.push_back(Event("cpu_op", "aten::stack", 1, at + 1000, 2000));  // inside the loader: data
    events.push_back(Event("cpu_op", "aten::linear", 1, at + 10000, 30000));
    events.push_back(Event("cpu_op", "aten::addmm", 1, at + 15000, 20000));
    events.push_back(Event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 1, at + 40000, 20000));
    events.push_back(Event("user_annotation", "gloo:all_reduce", 1, at + 55000, 15000));
    events.push_back(Event("cpu_op", "aten::mm", 2, at + 80000, 5000));                 // another thread
    events.push_back(Event("user_annotation", "gloo:broadcast", 2, at + 90000, 5000));  // the main thread waits for it
  }
  events.push_back(Event("cpu_op", "aten::late", 1, 900000, 1000));  // after the steps
  const Result<TraceSummary> found = SummaryOf(events);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->steps, 2u);
  EXPECT_NEAR(found->seconds, 0.2, 1e-9);
  const std::map<std::string, double> expected = {
      {"data", 0.02}, {"forward", 0.06}, {"collective", 0.04}, {"backward", 0.03}, {"other", 0.05}};
  ASSERT_EQ(found->host.size(), expected.size());
  for (const auto& [kind, seconds] : expected) EXPECT_NEAR(found->host.at(kind), seconds, 1e-9) << kind;
  EXPECT_NEAR(found->collective, 0.04, 1e-9);
  EXPECT_NEAR(found->collective_exposed, 0.03, 1e-9);
  EXPECT_TRUE(found->device.empty());
  EXPECT_EQ(found->operators[0].name, "aten::addmm");
  EXPECT_NEAR(found->operators[0].seconds, 0.04, 1e-9);
  for (const TraceEntry& entry : found->operators) {
    if (entry.name == "aten::linear") EXPECT_NEAR(entry.seconds, 0.02, 1e-9) << "without what it calls";
  }
  EXPECT_EQ(TraceSummary::FromJson(found->ToJson()).ToJson(), found->ToJson());
}

// An optimizer that is given a closure; and one that steps inside of the backward.
TEST(Trace, ForwardAndBackwardInAClosureAreNoneOfTheOptimizers) {
  json events = json::array();
  events.push_back(Event("user_annotation", "ProfilerStep#7", 1, 0, 100000));
  events.push_back(Event("user_annotation", "Optimizer.step#SGD.step", 1, 10000, 60000));
  events.push_back(Event("cpu_op", "aten::linear", 1, 15000, 20000));
  events.push_back(Event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 1, 40000, 10000));
  events.push_back(Event("cpu_op", "aten::add_", 1, 55000, 10000));
  events.push_back(Event("cpu_op", "autograd::engine::evaluate_function: AccumulateGrad", 1, 75000, 10000));
  events.push_back(Event("user_annotation", "Optimizer.step#SGD.step", 1, 80000, 4000));
  const Result<TraceSummary> found = SummaryOf(events);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  const std::map<std::string, double> expected = {
      {"forward", 0.02}, {"backward", 0.016}, {"optimizer", 0.024}, {"other", 0.04}};
  ASSERT_EQ(found->host.size(), expected.size());
  for (const auto& [kind, seconds] : expected) EXPECT_NEAR(found->host.at(kind), seconds, 1e-9) << kind;
}

TEST(Trace, OnADeviceACollectiveIsExposedWhereNoOtherKernelComputes) {
  const Result<TraceSummary> found =
      SummaryOf({Event("user_annotation", "ProfilerStep#1", 1, 0, 100000), Event("cpu_op", "aten::mm", 1, 0, 90000),
                 Event("kernel", "sm90_xmma_gemm_f32", 9, 10000, 40000),
                 Event("kernel", "ncclDevKernel_AllReduce", 10, 40000, 30000),
                 Event("gpu_memcpy", "Memcpy HtoD", 9, 65000, 10000)});
  ASSERT_TRUE(found.ok());
  EXPECT_NEAR(found->collective_exposed, 0.02, 1e-9);
  EXPECT_NEAR(found->device_busy, 0.065, 1e-9);
  EXPECT_NEAR(found->device.at("matrix products"), 0.04, 1e-9);
  const std::string text = ProfileText({*found});
  EXPECT_NE(text.find("GPU busy"), std::string::npos);
  EXPECT_NE(text.find("collectives 20.00 ms of 30.00 ms a step (20.0 % of the step)"), std::string::npos) << text;
}

// Two steps that the host queues in 10 ms each, behind a kernel of a step before the trace; each is one launch of two
// kernels that take 100 ms together. A kernel that is launched after the steps is not theirs.
TEST(Trace, StepsThatAreQueuedLastUntilTheirKernelsEnd) {
  json events = json::array({Event("kernel", "before", 9, -5000, 20000)});
  const auto launched = [&events](int number, double at, double begin) {
    events.push_back(Event("cuda_runtime", "cudaGraphLaunch", 1, at, 100));
    events.back()["args"] = {{"correlation", number}};
    for (const double later : {0.0, 40000.0}) {
      events.push_back(Event("kernel", later == 0 ? "gemm" : "norm", 9, begin + later, later == 0 ? 40000 : 60000));
      events.back()["args"] = {{"correlation", number}, {"stream", 7}};
    }
  };
  events.push_back(Event("user_annotation", "ProfilerStep#1", 1, 0, 10000));
  launched(70, 2000, 15000);
  events.push_back(Event("user_annotation", "ProfilerStep#2", 1, 10000, 10000));
  launched(71, 12000, 115000);
  launched(72, 30000, 215000);
  const Result<TraceSummary> found = SummaryOf(events);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_NEAR(found->seconds, 0.2, 1e-9);
  EXPECT_NEAR(found->device_busy, 0.2, 1e-9);
  EXPECT_NEAR(found->device.at("matrix products"), 0.08, 1e-9);
  ASSERT_EQ(found->kernels.size(), 2u);
  EXPECT_EQ(found->kernels[0].name, "norm");
  EXPECT_EQ(found->kernels[0].count, 2u);
}

TEST(Trace, WhatIsNoTraceIsRefused) {
  EXPECT_NE(SummaryOf(json::array()).status().message().find("holds no step"), std::string::npos);
  Result<TempDir> dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  for (const char* text :
       {"", "{\"traceEvents\": [{\"ph\": \"X\"", "[[[]]]", "{\"traceEvents\": [{\"ph\": 3, \"ts\": \"x\"}, 4]}"}) {
    ASSERT_TRUE(WriteFileAtomic(*dir / "rank-0.json", text).ok());
    EXPECT_FALSE(SummariseTrace(*dir / "rank-0.json", 0).ok()) << text;
    EXPECT_FALSE(SummariseProfile(dir->path()).ok());
  }
}

}  // namespace
}  // namespace lockstep::record
