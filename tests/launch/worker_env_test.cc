#include "launch/worker_env.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

namespace lockstep::launch {
namespace {

using testing::HasSubstr;

WorkerIdentity Rank5() {
  return {.rank = 5,
          .local_rank = 1,
          .world_size = 8,
          .local_world_size = 4,
          .node_rank = 1,
          .nnodes = 2,
          .master_addr = "node0",
          .master_port = 30123,
          .attempt = 7,
          .restart_count = 2,
          .run_dir = "/runs/x",
          .run_id = "x",
          .error_file = "/runs/x/error-5.json",
          .metrics_path = "/runs/x/metrics/rank-5.jsonl",
          .log_dir_of_node = "/runs/x/logs"};
}

Environment Make(const Environment& base, const RunOptions& options = {}, const EnvChanges& program = {},
                 const RankSettings& settings = {.threads = 3}, const WorkerIdentity& who = Rank5()) {
  const auto made = WorkerEnvironment(who, base, options, program, settings);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  Environment env;
  if (!made.ok()) return env;
  EXPECT_TRUE(std::is_sorted(made->begin(), made->end()));
  for (const std::string& entry : *made) env[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
  return env;
}

TEST(WorkerEnv, HasTorchrunsCompleteSet) {
  RunOptions options;
  options.max_restarts = 3;
  options.role = "trainer";
  const auto env = Make({}, options);
  const std::map<std::string, std::string> expected = {
      {"RANK", "5"},
      {"LOCAL_RANK", "1"},
      {"WORLD_SIZE", "8"},
      {"LOCAL_WORLD_SIZE", "4"},
      {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "2"},
      {"ROLE_NAME", "trainer"},
      {"ROLE_RANK", "5"},
      {"ROLE_WORLD_SIZE", "8"},
      {"MASTER_ADDR", "node0"},
      {"MASTER_PORT", "30123"},
      {"TORCHELASTIC_RESTART_COUNT", "2"},
      {"TORCHELASTIC_MAX_RESTARTS", "3"},
      {"TORCHELASTIC_RUN_ID", "x"},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCHELASTIC_ERROR_FILE", "/runs/x/error-5.json"},
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
      {"LOCKSTEP_RUN_DIR", "/runs/x"},
      {"LOCKSTEP_RUN_ID", "x"},
      {"LOCKSTEP_ATTEMPT", "7"},
      {"LOCKSTEP_RESTART_COUNT", "2"},
      {"LOCKSTEP_METRICS", "/runs/x/metrics/rank-5.jsonl"},
      {"LOCKSTEP_NODE", "1"}};
  for (const auto& [name, value] : expected) EXPECT_EQ(env.at(name), value) << name;
}

TEST(WorkerEnv, TheRendezvousIdIsTheRunIdOfTorchelasticWhereGiven) {
  RunOptions options;
  options.rdzv_id = "job7";
  EXPECT_EQ(Make({}, options).at("TORCHELASTIC_RUN_ID"), "job7");
}

TEST(WorkerEnv, TheEnvironmentOfTheLauncherIsPassedOnUntouched) {
  const auto env = Make({{"HOME", "/h"}, {"CUDA_VISIBLE_DEVICES", "2,3"}, {"EMPTY", ""}, {"NCCL_DEBUG", "WARN"}});
  EXPECT_EQ(env.at("HOME"), "/h");
  EXPECT_EQ(env.at("CUDA_VISIBLE_DEVICES"), "2,3");
  EXPECT_EQ(env.at("EMPTY"), "");
  EXPECT_EQ(env.at("NCCL_DEBUG"), "WARN");
  EXPECT_FALSE(Make({}).contains("CUDA_VISIBLE_DEVICES"));
}

TEST(WorkerEnv, VariablesOfAnOuterLauncherAreReplacedOrRemoved) {
  const auto env = Make({{"RANK", "99"},
                         {"LOCAL_RANK", "9"},
                         {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                         {"LOCAL_SIZE", "8"},
                         {"CROSS_RANK", "1"},
                         {"TORCHELASTIC_TIMER_FILE", "/t"},
                         {"LOCKSTEP_RUN_ID", "outer"}});
  EXPECT_EQ(env.at("RANK"), "5");
  EXPECT_EQ(env.at("TORCHELASTIC_USE_AGENT_STORE"), "False");
  EXPECT_EQ(env.at("LOCKSTEP_RUN_ID"), "x");
  for (const char* name : {"LOCAL_SIZE", "CROSS_RANK", "TORCHELASTIC_TIMER_FILE"})
    EXPECT_FALSE(env.contains(name)) << name;
}

TEST(WorkerEnv, WorkersAreToldWhoHostsTheStore) {
  WorkerIdentity who = Rank5();
  who.agent_store = true;
  EXPECT_EQ(Make({}, {}, {}, {.threads = 3}, who).at("TORCHELASTIC_USE_AGENT_STORE"), "True");
}

TEST(WorkerEnv, TheTokenNeverReachesAWorker) {
  EXPECT_FALSE(Make({{"LOCKSTEP_TOKEN", "s3cret"}}).contains("LOCKSTEP_TOKEN"));
  EXPECT_FALSE(Make({}, {}, {{"LOCKSTEP_TOKEN", "s3cret"}}).contains("LOCKSTEP_TOKEN"));
}

TEST(WorkerEnv, ThreadsFollowTheCoresUnlessSomebodyChose) {
  EXPECT_EQ(Make({}).at("OMP_NUM_THREADS"), "3");
  EXPECT_EQ(Make({{"OMP_NUM_THREADS", "0"}}).at("OMP_NUM_THREADS"), "3");
  EXPECT_EQ(Make({{"OMP_NUM_THREADS", ""}}).at("OMP_NUM_THREADS"), "3");
  EXPECT_EQ(Make({{"OMP_NUM_THREADS", "12"}}).at("OMP_NUM_THREADS"), "12");
  RunOptions options;
  options.env = {{"OMP_NUM_THREADS", "2"}};
  EXPECT_EQ(Make({{"OMP_NUM_THREADS", "12"}}, options).at("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(Make({}, {}, {}, {.threads = 0}).at("OMP_NUM_THREADS"), "1");
  EXPECT_EQ(DefaultThreads(8, 3), 2);
  EXPECT_EQ(DefaultThreads(2, 8), 1);
}

TEST(WorkerEnv, EvidenceOfAHangIsOnByDefaultUnderBothSpellings) {
  const auto env = Make({});
  EXPECT_EQ(env.at("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "3");
  EXPECT_EQ(env.at("TORCH_FR_BUFFER_SIZE"), "2000");
  EXPECT_EQ(env.at("TORCH_NCCL_TRACE_BUFFER_SIZE"), "2000");
  EXPECT_EQ(env.at("TORCH_NCCL_DUMP_ON_TIMEOUT"), "1");
  EXPECT_EQ(env.at("TORCH_FR_DUMP_TEMP_FILE"), "/runs/x/logs/nccl_trace_rank_");
  EXPECT_EQ(env.at("TORCH_NCCL_DEBUG_INFO_TEMP_FILE"), "/runs/x/logs/nccl_trace_rank_");
  EXPECT_EQ(env.at("PYTHONFAULTHANDLER"), "1");
}

TEST(WorkerEnv, ANewerTorchGetsTheNewNamesOnly) {
  const auto made = WorkerEnvironment(Rank5(), {}, {}, {}, {.threads = 1, .old_torch_names = false});
  ASSERT_TRUE(made.ok());
  int old_names = 0, new_names = 0;
  for (const std::string& entry : *made) {
    old_names +=
        entry.starts_with("TORCH_NCCL_TRACE_BUFFER_SIZE=") || entry.starts_with("TORCH_NCCL_DEBUG_INFO_TEMP_FILE=");
    new_names += entry.starts_with("TORCH_FR_BUFFER_SIZE=") || entry.starts_with("TORCH_FR_DUMP_TEMP_FILE=");
  }
  EXPECT_EQ(old_names, 0);
  EXPECT_EQ(new_names, 2);
}

TEST(WorkerEnv, EvidenceTheUserChoseIsLeftAlone) {
  const auto env = Make({{"TORCH_NCCL_TRACE_BUFFER_SIZE", "0"},
                         {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                         {"TORCH_FR_DUMP_TEMP_FILE", "/tmp/fr"},
                         {"PYTHONFAULTHANDLER", ""}});
  EXPECT_EQ(env.at("TORCH_NCCL_TRACE_BUFFER_SIZE"), "0");
  EXPECT_FALSE(env.contains("TORCH_FR_BUFFER_SIZE"));  // the new name would win over the user's old one
  EXPECT_EQ(env.at("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "1");
  EXPECT_EQ(env.at("TORCH_FR_DUMP_TEMP_FILE"), "/tmp/fr");
  EXPECT_EQ(env.at("PYTHONFAULTHANDLER"), "");
}

TEST(WorkerEnv, DebugWritesIntoFilesOfTheRun) {
  RunOptions options;
  options.debug = true;
  const auto env = Make({{"NCCL_DEBUG", "WARN"}}, options);
  EXPECT_EQ(env.at("NCCL_DEBUG"), "INFO");
  EXPECT_EQ(env.at("NCCL_DEBUG_SUBSYS"), "INIT,NET,ENV,GRAPH");
  EXPECT_EQ(env.at("NCCL_DEBUG_FILE"), "/runs/x/logs/nccl-debug.%h.%p.log");
  EXPECT_EQ(env.at("TORCH_DISTRIBUTED_DEBUG"), "DETAIL");
  EXPECT_EQ(env.at("TORCH_SHOW_CPP_STACKTRACES"), "1");
  EXPECT_EQ(Make({{"NCCL_DEBUG", "TRACE"}}, options).at("NCCL_DEBUG"), "TRACE");
  EXPECT_FALSE(Make({}).contains("NCCL_DEBUG"));
}

TEST(WorkerEnv, VirtualLocalRankGivesOneGpuAsDeviceZero) {
  RunOptions options;
  options.virtual_local_rank = true;
  auto env = Make({}, options);
  EXPECT_EQ(env.at("LOCAL_RANK"), "0");
  EXPECT_EQ(env.at("CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_EQ(Make({{"CUDA_VISIBLE_DEVICES", "6, 7"}}, options).at("CUDA_VISIBLE_DEVICES"), "7");
  options.gpus = "GPU-a,GPU-b";
  EXPECT_EQ(Make({{"CUDA_VISIBLE_DEVICES", "6,7"}}, options).at("CUDA_VISIBLE_DEVICES"), "GPU-b");
  options.gpus = "3";
  const auto made = WorkerEnvironment(Rank5(), {}, options, {}, {});
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.status().message(), HasSubstr("found CUDA_VISIBLE_DEVICES=3"));
}

// Who wins, for one variable: a row sets it in some of the layers, weakest first.
struct Precedence {
  const char* why;
  const char* name;
  std::optional<std::string> base;
  std::optional<std::optional<std::string>> program;  // an inner nothing: --venv, --conda or --module-load unsets it
  std::string gpus;
  bool debug;
  std::optional<std::string> user;     // --env
  std::optional<std::string> shared;   // before the start, for preflight and tune; nothing: not set
  std::optional<std::string> started;  // what a rank gets
};

TEST(WorkerEnv, TheStrongerLayerWinsEverywhere) {
  const std::optional<std::string> no;
  const std::optional<std::optional<std::string>> none;
  const std::optional<std::optional<std::string>> unset = std::optional<std::string>();
  const std::optional<std::optional<std::string>> conda = std::optional<std::string>("conda");
  const char* kGpus = "CUDA_VISIBLE_DEVICES";
  const Precedence cases[] = {
      {"inherited", "A", "base", none, "", false, no, "base", "base"},
      {"an empty value is a value", "A", "", none, "", false, no, "", ""},
      {"the program's over the launcher's", "A", "base", conda, "", false, no, "conda", "conda"},
      {"unset by the program's", "A", "base", unset, "", false, no, no, no},
      {"--env over the program's", "A", "base", conda, "", false, "user", "user", "user"},
      {"--env over what was unset", "A", "base", unset, "", false, "user", "user", "user"},
      {"no --gpus", kGpus, "0", none, "", false, no, "0", "0"},
      {"--gpus over the launcher's", kGpus, "0", none, "4,5", false, no, "4,5", "4,5"},
      {"--gpus over the program's", kGpus, no, conda, "4,5", false, no, "4,5", "4,5"},
      {"--env over --gpus", kGpus, "0", none, "4,5", false, "6,7", "6,7", "6,7"},
      {"--env alone", kGpus, no, none, "", false, "6,7", "6,7", "6,7"},
      {"--debug over the launcher's", "NCCL_DEBUG", "WARN", none, "", true, no, "WARN", "INFO"},
      {"--debug keeps more", "NCCL_DEBUG", "TRACE", none, "", true, no, "TRACE", "TRACE"},
      {"--env over --debug", "NCCL_DEBUG", no, none, "", true, "WARN", "WARN", "WARN"},
      {"--env over --debug", "TORCH_DISTRIBUTED_DEBUG", no, none, "", true, "OFF", "OFF", "OFF"},
      {"nobody chose 0 threads", "OMP_NUM_THREADS", "0", none, "", false, no, no, "3"},
      {"the user did", "OMP_NUM_THREADS", "8", none, "", false, "0", "0", "0"},
      {"a secret", "LOCKSTEP_TOKEN", "s", conda, "", false, no, no, no},
      {"of an outer launcher", "TORCHELASTIC_TIMER_FILE", "/p", none, "", false, no, no, no},
      {"identity is the launcher's", "RANK", "9", conda, "", false, no, "conda", "5"},
      {"DeepSpeed's name of it", "LOCAL_SIZE", "9", none, "", false, no, "9", no},
  };
  for (const Precedence& test : cases) {
    SCOPED_TRACE(fmt::format("{}: {}", test.name, test.why));
    Environment base;
    EnvChanges program;
    RunOptions options;
    if (test.base) base[test.name] = *test.base;
    if (test.program) program[test.name] = *test.program;
    options.gpus = test.gpus;
    options.debug = test.debug;
    if (test.user) options.env = {{test.name, *test.user}};
    const auto found = [&](const Environment& env) {
      const auto it = env.find(test.name);
      return it == env.end() ? no : std::optional<std::string>(it->second);
    };
    EXPECT_EQ(found(RankEnvironment(base, program, options)), test.shared);
    EXPECT_EQ(found(Make(base, options, program)), test.started);
  }
}

TEST(WorkerEnv, NobodyButTheLauncherSetsAnIdentity) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "LOCKSTEP_RUN_DIR"}) {
    RunOptions options;
    options.env = {{name, "1"}};
    const auto made = WorkerEnvironment(Rank5(), {}, options, {}, {});
    ASSERT_FALSE(made.ok()) << name;
    EXPECT_EQ(made.status().code(), Code::kUsage);
    EXPECT_THAT(made.status().message(), HasSubstr(name));
  }
  EXPECT_TRUE(CheckUserVariable("RANKS").ok());
}

TEST(WorkerEnv, SignalsToHandleAreToldToTheWorkersAsNames) {
  RunOptions options;
  options.signals = {SIGTERM, SIGUSR1};
  EXPECT_EQ(Make({}, options).at("TORCHELASTIC_SIGNALS_TO_HANDLE"), "SIGTERM,SIGUSR1");
}

TEST(WorkerEnv, SettingsOfTheMachineOnlyFillWhatNobodySet) {
  RankSettings settings{.threads = 3};
  settings.tuned = {{"NCCL_SOCKET_IFNAME", "eth0"}, {"GLOO_SOCKET_IFNAME", "eth0"}, {"OMP_NUM_THREADS", "99"}};
  settings.gpus = "4,5";
  RunOptions options;
  options.env = {{"GLOO_SOCKET_IFNAME", "eth7"}};
  const auto env = Make({}, options, {}, settings);
  EXPECT_EQ(env.at("CUDA_VISIBLE_DEVICES"), "4,5");
  EXPECT_EQ(Make({{"CUDA_VISIBLE_DEVICES", "0"}}, options, {}, settings).at("CUDA_VISIBLE_DEVICES"), "0");
  EXPECT_EQ(env.at("NCCL_SOCKET_IFNAME"), "eth0");
  EXPECT_EQ(env.at("GLOO_SOCKET_IFNAME"), "eth7");
  EXPECT_EQ(env.at("OMP_NUM_THREADS"), "3") << "the binding knows better";
  EXPECT_EQ(Make({{"NCCL_SOCKET_IFNAME", ""}}, options, {}, settings).at("NCCL_SOCKET_IFNAME"), "")
      << "empty is a choice";
}

TEST(WorkerEnv, NcclsLinesGoToAFilePerRankUnlessTheUserAskedForThem) {
  EXPECT_FALSE(Make({}).contains("NCCL_DEBUG"));
  const RankSettings settings{.threads = 3, .collect_nccl = true};
  WorkerIdentity who = Rank5();
  who.log_dir_of_node = "/runs/50%p/logs";
  const auto env = Make({}, {}, {}, settings, who);
  EXPECT_EQ(env.at("NCCL_DEBUG"), "INFO");
  EXPECT_EQ(env.at("NCCL_DEBUG_FILE"), "/runs/50%%p/logs/nccl-rank-5.%p.log") << "NCCL expands %";
  EXPECT_FALSE(Make({{"NCCL_DEBUG", "WARN"}}, {}, {}, settings).contains("NCCL_DEBUG_FILE"));
}

}  // namespace
}  // namespace lockstep::launch
