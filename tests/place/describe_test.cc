#include "place/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sanitized.h"

namespace lockstep::place {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Machine EightGpus() {
  Machine machine;
  machine.gpus = 8;
  machine.gpus_source = "nvml";
  machine.cpus = 64;
  machine.host = "box";
  return machine;
}

TEST(Json, HasExactlyTheKeysOfTheContractWithNullForUnknown) {
  const auto json = ToJson(Resolve({{"WORLD_SIZE", "16"}, {"RANK", "1"}}, {}, EightGpus()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(
      keys, ElementsAre("platform", "level", "starts", "nested", "nnodes", "node_rank", "nproc_per_node", "world_size",
                        "rank", "local_rank", "master_addr", "master_port", "evidence", "warnings", "error"));
  EXPECT_TRUE(json["level"].is_null());
  EXPECT_TRUE(json["world_size"].is_null());
  EXPECT_TRUE(json["error"].is_string());
  for (const auto& item : json["evidence"]) {
    EXPECT_TRUE(item["source"].is_string());
    EXPECT_TRUE(item["says"].is_string());
    EXPECT_TRUE(item["weight"].is_string());
  }
}

TEST(Json, SurvivesBytesThatAreNoText) {
  const Placement placement = Resolve({{"NNODES", "\xff\x1b[31m"}, {"NODE_RANK", "0"}}, {}, EightGpus());
  const std::string text = ToJson(placement).dump();
  EXPECT_THAT(text, Not(HasSubstr("\xff")));
  EXPECT_THAT(ToText(placement, false), Not(HasSubstr("\x1b")));
}

TEST(Text, IsColouredOnlyWhenAsked) {
  const Placement placement = Resolve({}, {}, EightGpus());
  EXPECT_THAT(ToText(placement, false), Not(HasSubstr("\x1b")));
  EXPECT_THAT(ToText(placement, true), HasSubstr("\x1b"));
}

TEST(Shell, KnownValuesAreExportedAndUnknownOnesUnset) {
  Flags flags;
  flags.nnodes = 2;
  flags.node_rank = 1;
  flags.master_addr = "head";
  const std::string text = ToShell(Resolve({}, flags, EightGpus()));
  EXPECT_EQ(text,
            "export NNODES=2\nexport NODE_RANK=1\nexport NPROC_PER_NODE=8\nexport WORLD_SIZE=16\nunset RANK\nunset "
            "LOCAL_RANK\n"
            "export MASTER_ADDR=head\nexport MASTER_PORT=29500\nexport LOCKSTEP_PLATFORM=local\nexport "
            "LOCKSTEP_LEVEL=node\n");
}

TEST(Shell, NoValueCanBreakOutOfItsQuotes) {
  Placement placement = Resolve({}, {}, EightGpus());
  placement.master_addr = "x'; rm -rf $HOME #";
  EXPECT_THAT(ToShell(placement), HasSubstr("export MASTER_ADDR='x'\\''; rm -rf $HOME #'\n"));
}

TEST(Resolve, RefusesAMasterThatIsNoHost) {
  for (const char* address : {"a b", "host:29500", "http://x/", "$(id)", "a;b"}) {
    const Placement placement =
        Resolve({{"NNODES", "2"}, {"NODE_RANK", "1"}, {"MASTER_ADDR", address}}, {}, EightGpus());
    EXPECT_FALSE(placement.error.ok()) << address;
  }
}

// Any text in any variable of the table: an answer, never a crash.
TEST(Resolve, AnswersForEveryCorruptValueOfEveryVariable) {
  const std::vector<std::string> names = {"WORLD_SIZE",
                                          "RANK",
                                          "LOCAL_RANK",
                                          "LOCAL_WORLD_SIZE",
                                          "NNODES",
                                          "NODE_RANK",
                                          "NPROC_PER_NODE",
                                          "MASTER_ADDR",
                                          "MASTER_PORT",
                                          "PET_NNODES",
                                          "PET_NODE_RANK",
                                          "PET_NPROC_PER_NODE",
                                          "PET_MASTER_PORT",
                                          "PET_RDZV_ENDPOINT",
                                          "SLURM_JOB_ID",
                                          "SLURM_STEP_ID",
                                          "SLURM_PROCID",
                                          "SLURM_NODEID",
                                          "SLURM_LOCALID",
                                          "SLURM_NTASKS",
                                          "SLURM_STEP_TASKS_PER_NODE",
                                          "SLURM_STEP_NODELIST",
                                          "SLURM_JOB_NODELIST",
                                          "SLURM_TASKS_PER_NODE",
                                          "SLURM_GPUS_ON_NODE",
                                          "OMPI_COMM_WORLD_SIZE",
                                          "OMPI_COMM_WORLD_RANK",
                                          "OMPI_COMM_WORLD_LOCAL_SIZE",
                                          "OMPI_COMM_WORLD_LOCAL_RANK",
                                          "JOB_COMPLETION_INDEX",
                                          "TORCHELASTIC_RUN_ID",
                                          "KUBEBRAIN_X",
                                          "NODE_COUNT"};
  const std::vector<std::string> values = {"",
                                           " ",
                                           "0",
                                           "1",
                                           "2",
                                           "8",
                                           "-1",
                                           "x",
                                           "99999999999",
                                           "2147483647",
                                           "1.5",
                                           "a[1-2]",
                                           "[",
                                           "1(x2)",
                                           "2(x3),1",
                                           "tcp://1:2",
                                           "4294967290",
                                           "dlc1-master-0",
                                           std::string("\0x", 2)};
  // Not random: every pair of variables with every pair of values, over a base that makes most rows reachable.
  constexpr size_t kStep = kSanitized ? 17 : 1;  // prime to the number of values: all of them are still met
  const Machine machine = EightGpus();
  int errors = 0, answers = 0;
  size_t at = 0;
  for (size_t a = 0; a < names.size(); ++a)
    for (size_t b = a + 1; b < names.size(); ++b)
      for (const std::string& x : values)
        for (const std::string& y : values) {
          if (at++ % kStep != 0) continue;
          const Placement placement = Resolve({{names[a], x}, {names[b], y}}, {}, machine);
          ASSERT_FALSE(placement.platform.empty());
          ++(placement.error.ok() ? answers : errors);
          if (!placement.error.ok()) continue;
          // Whatever is answered is possible.
          if (placement.rank && placement.world_size) ASSERT_LT(*placement.rank, *placement.world_size);
          if (placement.node_rank && placement.nnodes) ASSERT_LT(*placement.node_rank, *placement.nnodes);
          if (placement.nnodes.value_or(1) > 1 && placement.starts != Starts::kOnce &&
              placement.node_rank.value_or(0) > 0)
            ASSERT_TRUE(placement.master_addr.has_value());
        }
  EXPECT_GT(errors, 1000);
  EXPECT_GT(answers, 1000);
}

}  // namespace
}  // namespace lockstep::place
