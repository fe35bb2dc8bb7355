// accelerate's YAML: what it hands on to DeepSpeed, and what it does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/config_json.h"
#include "base/files.h"
#include "foreign/deepspeed.h"

namespace lockstep::foreign {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;

class AccelerateTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  Result<DeepSpeedReport> Read(const std::string& text, const DeepSpeedContext& context = {}) const {
    return ReadAccelerate(Write("a.yaml", text), context);
  }
  std::string ErrorOf(const std::string& text) const {
    const Result<DeepSpeedReport> made = Read(text);
    return made.ok() ? made->Check().ToString() : made.status().ToString();
  }

  TempDir folder_ = *TempDir::Create();  // tests run beside each other
};

// deepspeed_16gpu.yaml and the nested blocks of its larger sisters.
constexpr char kSixteen[] = R"(compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  deepspeed_multinode_launcher: standard
  gradient_accumulation_steps: 2
  offload_optimizer_device: none
  offload_param_device: none
  zero3_init_flag: true
  zero_stage: 3
  allgather_bucket_size: 500000000
  reduce_bucket_size: 500000000
  overlap_comm: true
  stage3_prefetch_bucket_size: 2e8
  communication_data_type: bf16
  bf16: {enabled: true}
  zero_optimization:
    stage: 2
distributed_type: DEEPSPEED
downcast_bf16: 'no'
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 2
num_processes: 16
rdzv_backend: static
same_network: true
use_cpu: false
)";

TEST_F(AccelerateTest, HandsOnAFixedListAndListsTheRest) {
  const Result<DeepSpeedReport> made = Read(kSixteen);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  ASSERT_TRUE(made->Check().ok()) << made->Check().ToString();
  EXPECT_EQ(made->stage, 3);
  EXPECT_EQ(made->precision, "bf16");
  EXPECT_EQ(made->ranks, 16);
  EXPECT_EQ(made->micro_batch, 8U);
  EXPECT_EQ(made->global_batch, 8U * 2 * 16);
  EXPECT_TRUE(made->buckets.empty());
  EXPECT_EQ(made->ignored_by_accelerate.size(), 7U);
  for (const char* key : {"reduce_bucket_size", "overlap_comm", "stage3_prefetch_bucket_size", "zero_optimization",
                          "communication_data_type", "bf16"}) {
    EXPECT_THAT(made->ignored_by_accelerate, Contains(std::string("deepspeed_config.") + key));
  }
  const json document = json::parse(made->Json());
  EXPECT_EQ(document["ignored_by_accelerate"].size(), 7U);
  EXPECT_EQ(document["config"]["train"]["zero"], json::parse(R"({"stage": 3})"));
  EXPECT_EQ(document["config"]["train"]["parameters"], "bf16");
}

// The launcher's ranks are what counts.
TEST_F(AccelerateTest, TheLauncherDecidesTheRanks) {
  DeepSpeedContext context;
  context.ranks = 2;
  const Result<DeepSpeedReport> made = Read(kSixteen, context);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->ranks, 2);
  const auto it = std::ranges::find(made->ignored, "num_processes", &Note::key);
  ASSERT_NE(it, made->ignored.end());
  EXPECT_THAT(it->reason, HasSubstr("there are 2 ranks"));
}

TEST_F(AccelerateTest, FollowsTheFileOfDeepSpeed) {
  Write("ds.json",
        "{zero_optimization: {stage: 2, reduce_bucket_size: 1e6}, bf16: {enabled: true},\n"
        " train_micro_batch_size_per_gpu: 4}");
  const std::string yaml =
      "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n"
      "  deepspeed_config_file: ds.json\n  zero3_init_flag: false\n";
  const Result<DeepSpeedReport> made = Read(yaml);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  ASSERT_TRUE(made->Check().ok()) << made->Check().ToString();
  EXPECT_EQ(made->stage, 2);
  EXPECT_EQ(made->global_batch, 16U);
  EXPECT_EQ(made->buckets.size(), 1U);
  // accelerate refuses these two together.
  EXPECT_THAT(ErrorOf(yaml + "  zero_stage: 3\n"),
              HasSubstr("a.yaml:6: deepspeed_config.zero_stage = 3: accelerate refuses it beside"));
  // What is wrong in that file is told with its name and line.
  Write("ds.json", "{zero_optimization: {stage: 2,\n offload_param: {device: \"cpu\"}}}");
  EXPECT_THAT(ErrorOf(yaml), HasSubstr("ds.json:2: zero_optimization.offload_param.device = cpu: "));
  EXPECT_THAT(ErrorOf(yaml), testing::Not(HasSubstr("a.yaml:2")));
  EXPECT_THAT(ErrorOf("distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: none.json}\n"),
              HasSubstr("none.json"));
}

TEST_F(AccelerateTest, WithoutDeepSpeedItIsDdpWithAutocast) {
  const Result<DeepSpeedReport> made = Read("distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 2\n");
  ASSERT_TRUE(made.ok() && made->Check().ok());
  const json train = json::parse(made->Json())["config"]["train"];
  EXPECT_EQ(train, json::parse(R"({"zero": {"stage": 0}, "precision": "bf16"})"));
  // Blocks of another distributed_type are left behind by accelerate's own editor, and not read.
  const Result<DeepSpeedReport> idle = Read(
      "distributed_type: MULTI_GPU\nfsdp_config: {fsdp_offload_params: true}\nmegatron_lm_config: {a: 1}\n"
      "fp8_config: {backend: TE}\n"
      "deepspeed_config: {deepspeed_config_file: none.json, zero_stage: 3, offload_optimizer_device: nvme}\n");
  ASSERT_TRUE(idle.ok()) << idle.status().ToString();
  EXPECT_TRUE(idle->Check().ok()) << idle->Check().ToString();
  EXPECT_EQ(idle->stage, 0);
  EXPECT_EQ(idle->ignored.size(), 6U);
}

TEST_F(AccelerateTest, BadInput) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "a.yaml:1:1: the file is empty"},
      {"distributed_type: DEEPSPEED\nnum_machine: 2\n", "a.yaml:2:1: unknown key 'num_machine' (did you mean"},
      {"distributed_type: DEEPSPEED\ndeepspeed_config: &ds\n  zero_stage: 2\n", "a.yaml:2:19: YAML anchors"},
      {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  <<: *ds\n", "a.yaml:3:"},
      {"distributed_type: FSDP\n", "a.yaml:1: distributed_type = FSDP: "},
      {"num_processes: 2\n", "expected the key distributed_type"},
      {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n  offload_param_device: cpu\n",
       "a.yaml:4: zero_optimization.offload_param.device = cpu: parameters are offloaded at stage 3"},
      {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  offload_optimizer_device: nvme\n", "nvme is not here"},
      {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stge: 2\n", "unknown key 'deepspeed_config.zero_stge'"},
      {"distributed_type: [DEEPSPEED\n", "a.yaml:"},
      {"mixed_precision: fp8\ndistributed_type: NO\n", "a.yaml:1: mixed_precision = fp8: "},
      {"mixed_precision: fp8\ndistributed_type: NO\nfp8_config: {backend: TE}\n", "fp8 is not here: use"},
      {"distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n", "a.yaml:2: fsdp_config"},
      {"distributed_type: MULTI_NPU\n", "devices other than GPUs and CPUs are not here"},
      {"compute_environment: AMAZON_SAGEMAKER\ndistributed_type: NO\nec2_instance_type: x\n",
       "a.yaml:1: compute_environment = AMAZON_SAGEMAKER: SageMaker is not here"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(ErrorOf(text), HasSubstr(message)) << text;
  EXPECT_THAT(ReadAccelerate("/tmp", {}).status().ToString(), HasSubstr("/tmp"));
}

}  // namespace
}  // namespace lockstep::foreign
