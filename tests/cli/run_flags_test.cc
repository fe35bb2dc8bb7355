#include "cli/run_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

namespace lockstep::cli {
namespace {

using launch::Bind;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

Result<RunFlags> Parse(std::vector<std::string> args, const Environment& env = {}, ParseMode mode = ParseMode::kRun) {
  args.insert(args.begin(), "run");
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  return ParseRunFlags(static_cast<int>(argv.size()), argv.data(), env, mode);
}

launch::RunOptions Good(const std::vector<std::string>& args, const Environment& env = {}) {
  Result<RunFlags> flags = Parse(args, env);
  EXPECT_TRUE(flags.ok()) << flags.status().ToString();
  return flags.ok() ? flags->options : launch::RunOptions{};
}

// "message | hint" of a command line that must be refused as a usage error.
std::string Bad(const std::vector<std::string>& args, const Environment& env = {}) {
  const Result<RunFlags> flags = Parse(args, env);
  EXPECT_FALSE(flags.ok()) << "accepted: " << testing::PrintToString(args);
  EXPECT_EQ(flags.status().code(), Code::kUsage);
  return flags.status().message() + " | " + flags.status().hint();
}

TEST(RunFlags, NothingButAProgramLeavesEverythingToThePlatform) {
  const auto o = Good({"train.py"});
  EXPECT_EQ(o.program, "train.py");
  EXPECT_FALSE(o.place.nnodes.has_value());
  EXPECT_FALSE(o.place.nproc_per_node.has_value());
  EXPECT_FALSE(o.place.master_addr.has_value());
  EXPECT_EQ(o.max_restarts, 0);
  EXPECT_EQ(o.role, "default");
  EXPECT_EQ(o.grace, seconds(15));
}

TEST(RunFlags, HyphensAndUnderscoresMeanTheSame) {
  EXPECT_EQ(Good({"--nproc_per_node", "4", "a.py"}).place.nproc_per_node, "4");
  EXPECT_EQ(Good({"--nproc-per-node=4", "a.py"}).place.nproc_per_node, "4");
  EXPECT_EQ(Good({"--nproc_per-node=4", "a.py"}).place.nproc_per_node, "4");
  EXPECT_EQ(Good({"--port_range", "30000-30010", "a.py"}).port_range, std::make_pair(30000, 30010));
}

TEST(RunFlags, AUniqueBeginningIsEnoughAndTorchrunsNamesGoFirst) {
  EXPECT_EQ(Good({"--nproc", "2", "a.py"}).place.nproc_per_node, "2");
  EXPECT_EQ(Good({"--node", "0", "a.py"}).place.node_rank, 0);  // not our --node-timeout
  EXPECT_EQ(Good({"--log-", "x", "a.py"}).log_dir, "x");        // not our --log-rotate
  EXPECT_TRUE(Good({"--mod", "pkg.train"}).module);             // not our --module-load
  EXPECT_EQ(Good({"--work", "/tmp", "a.py"}).workdir, "/tmp");  // only ours begins so
  EXPECT_THAT(Bad({"--no", "a.py"}), AllOf(HasSubstr("--node-rank"), HasSubstr("--no-python")));
  EXPECT_THAT(Bad({"--rdzv", "x", "a.py"}), HasSubstr("more than one flag"));
}

TEST(RunFlags, WhatFollowsTheProgramBelongsToTheProgram) {
  const auto o =
      Good({"--nproc-per-node", "2", "train.py", "--nproc-per-node", "9", "-m", "--", "--help", "-r3", "--unknown"});
  EXPECT_EQ(o.place.nproc_per_node, "2");
  EXPECT_FALSE(o.module);
  EXPECT_THAT(o.args, ElementsAre("--nproc-per-node", "9", "-m", "--", "--help", "-r3", "--unknown"));
}

TEST(RunFlags, ADoubleHyphenEndsTheFlags) {
  const auto o = Good({"--nproc-per-node=2", "--", "--odd-name.py", "-x"});
  EXPECT_EQ(o.program, "--odd-name.py");
  EXPECT_THAT(o.args, ElementsAre("-x"));
}

TEST(RunFlags, ShortFlagsTakeTheirValueInEveryFormArgparseKnows) {
  EXPECT_EQ(Good({"-r", "3", "a.py"}).redirects.all, 3);
  EXPECT_EQ(Good({"-r3", "a.py"}).redirects.all, 3);
  EXPECT_EQ(Good({"-r=3", "a.py"}).redirects.all, 3);
  const auto o = Good({"-mt3", "pkg.train"});
  EXPECT_TRUE(o.module);
  EXPECT_EQ(o.tee->all, 3);
}

TEST(RunFlags, ANegativeNumberIsAValueAndIsRefusedAsSuch) {
  EXPECT_THAT(Bad({"--node-rank", "-1", "a.py"}),
              HasSubstr("--node-rank: expected a node rank from 0 to 99999, found '-1'"));
  EXPECT_THAT(Bad({"--max-restarts", "--tee", "a.py"}), HasSubstr("--max-restarts: expected a value, found '--tee'"));
  EXPECT_THAT(Bad({"--max-restarts"}), HasSubstr("found the end of the line"));
}

TEST(RunFlags, ASwitchTakesNoValue) {
  EXPECT_THAT(Bad({"--standalone=1", "a.py"}), HasSubstr("is a switch"));
  EXPECT_THAT(Bad({"--module=cuda/12.4", "a.py"}), HasSubstr("--module-load cuda/12.4"));
}

TEST(RunFlags, AnUnknownFlagIsAnErrorWithTheNearestName) {
  EXPECT_THAT(Bad({"--nproc-pre-node", "2", "a.py"}),
              AllOf(HasSubstr("unknown flag --nproc-pre-node"), HasSubstr("did you mean --nproc-per-node?")));
  EXPECT_THAT(Bad({"--dryrun", "a.py"}), HasSubstr("--dry-run"));
  EXPECT_THAT(Bad({"-x", "a.py"}), HasSubstr("unknown flag -x"));
}

TEST(RunFlags, ImpossibleCountsSayWhatWasExpectedAndFound) {
  EXPECT_THAT(Bad({"--nnodes", "0", "a.py"}),
              HasSubstr("--nnodes: expected a number of nodes from 1 to 100000, or N:N, found '0'"));
  EXPECT_THAT(Bad({"--nproc-per-node", "0", "a.py"}), HasSubstr("found '0'"));
  EXPECT_THAT(Bad({"--nproc-per-node", "-2", "a.py"}), HasSubstr("found '-2'"));
  EXPECT_THAT(Bad({"--nproc-per-node", "1000000", "a.py"}), HasSubstr("from 1 to 4096"));
  EXPECT_THAT(Bad({"--nproc-per-node", "gpus", "a.py"}), HasSubstr("auto, gpu or cpu"));
  EXPECT_THAT(Bad({"--nproc-per-node", "1e3", "a.py"}), HasSubstr("found '1e3'"));
  EXPECT_THAT(Bad({"--nnodes", "1000", "--nproc-per-node", "1000", "a.py"}),
              HasSubstr("expected at most 999999 ranks, found 1000000"));
  EXPECT_THAT(Bad({"--nnodes", "99999999999999999999", "a.py"}), HasSubstr("--nnodes"));
  EXPECT_THAT(Bad({"--master-port", "70000", "a.py"}),
              HasSubstr("--master-port: expected a port from 0 to 65535, found '70000'"));
  EXPECT_THAT(Bad({"--nnodes", "2", "--node-rank", "2", "a.py"}),
              HasSubstr("--node-rank 2: expected 0 to 1 with --nnodes 2"));
  EXPECT_THAT(Bad({"--max-restarts", "-1", "a.py"}), HasSubstr("--max-restarts"));
  EXPECT_THAT(Bad({"--nproc-per-node", "xpu", "a.py"}), HasSubstr("xpu is not supported"));
}

TEST(RunFlags, TheNumberOfNodesIsFixed) {
  EXPECT_EQ(Good({"--nnodes=1:1", "a.py"}).place.nnodes, 1);
  EXPECT_EQ(Good({"--nnodes=4:4", "a.py"}).place.nnodes, 4);
  EXPECT_THAT(Bad({"--nnodes=1:4", "a.py"}), AllOf(HasSubstr("not supported"), HasSubstr("use --nnodes 4")));
  EXPECT_THAT(Bad({"--nnodes=4:1", "a.py"}), HasSubstr("MIN not above MAX"));
  EXPECT_THAT(Bad({"--nnodes=1:2:3", "a.py"}), HasSubstr("1:2:3"));
}

TEST(RunFlags, StandaloneIsOneNodeAndDropsTheRendezvousFlags) {
  const auto o = Good({"--standalone", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "--rdzv-id=7", "a.py"});
  EXPECT_TRUE(o.place.standalone);
  EXPECT_THAT(o.place.rdzv_backend, IsEmpty());
  EXPECT_THAT(o.place.rdzv_endpoint, IsEmpty());
  EXPECT_THAT(o.rdzv_id, IsEmpty());
  EXPECT_THAT(Bad({"--standalone", "--nnodes=2", "a.py"}), HasSubstr("--standalone is one node"));
}

TEST(RunFlags, TheBackendMayBeStaticOrC10dButNotAStore) {
  EXPECT_EQ(Good({"--rdzv-backend=c10d", "a.py"}).place.rdzv_backend, "c10d");
  EXPECT_EQ(Good({"--rdzv-backend=static", "a.py"}).place.rdzv_backend, "static");
  EXPECT_THAT(Bad({"--rdzv-backend=etcd-v2", "a.py"}), HasSubstr("need no store"));
  EXPECT_THAT(Bad({"--rdzv-backend=zeus", "a.py"}), HasSubstr("expected static, c10d, found 'zeus'"));
}

TEST(RunFlags, EndpointsAreChecked) {
  EXPECT_EQ(Good({"--rdzv-endpoint=node-0:29400", "a.py"}).place.rdzv_endpoint, "node-0:29400");
  EXPECT_EQ(Good({"--rdzv-endpoint=[::1]:0", "a.py"}).place.rdzv_endpoint, "[::1]:0");
  EXPECT_THAT(Bad({"--rdzv-endpoint=node:70000", "a.py"}), HasSubstr("node:70000"));
  EXPECT_THAT(Bad({"--rdzv-endpoint=node:", "a.py"}), HasSubstr("HOST:PORT"));
  EXPECT_THAT(Bad({"--rdzv-endpoint=fe80::1:29400", "a.py"}), HasSubstr("brackets"));
  EXPECT_THAT(Bad({"--rdzv-endpoint=http://node:1", "a.py"}), HasSubstr("HOST"));
  EXPECT_EQ(Good({"--master-addr=[fd00::1]", "a.py"}).place.master_addr, "fd00::1");
  EXPECT_THAT(Bad({"--master-addr=node:29500", "a.py"}), HasSubstr("--master-port"));
}

TEST(RunFlags, MasterPortZeroAsksForAFreeOneOnOneNode) {
  EXPECT_FALSE(Good({"--master-port=0", "a.py"}).place.master_port.has_value());
  EXPECT_THAT(Bad({"--nnodes=2", "--master-port=0", "a.py"}), HasSubstr("a port nobody knows"));
}

TEST(RunFlags, RendezvousSettingsAreMappedOrNamedAsWithoutEffect) {
  const auto flags = Parse({"--rdzv-conf", "join_timeout=120, is_host=1,last_call_timeout=5,speed=9", "a.py"});
  ASSERT_TRUE(flags.ok()) << flags.status().ToString();
  EXPECT_EQ(flags->options.join_timeout, seconds(120));
  EXPECT_EQ(flags->options.place.node_rank, 0);
  EXPECT_THAT(flags->warnings,
              testing::UnorderedElementsAre(HasSubstr("last_call_timeout has no effect"),
                                            HasSubstr("speed is not known"), HasSubstr("this is node 0")));
  EXPECT_EQ(Good({"--rdzv-conf=timeout=60", "a.py"}).join_timeout, seconds(60));
  EXPECT_EQ(Good({"--rdzv-conf=timeout=60,join_timeout=90", "a.py"}).join_timeout, seconds(90));
  EXPECT_EQ(Good({"--rdzv-conf=timeout=60", "--join-timeout=5m", "a.py"}).join_timeout, std::chrono::minutes(5));
  EXPECT_FALSE(Good({"--rdzv-conf=is_host=0", "a.py"}).place.node_rank.has_value());
  EXPECT_THAT(Bad({"--rdzv-conf=join_timeout", "a.py"}), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(Bad({"--rdzv-conf=join_timeout=soon", "a.py"}), HasSubstr("join_timeout: expected seconds"));
  EXPECT_THAT(Bad({"--rdzv-conf=store_type=file", "a.py"}), HasSubstr("store_type"));
}

TEST(RunFlags, StreamSetsReadAsTorchrunReadsThem) {
  const auto o = Good({"--redirects", "3", "--tee", "0:3,1:1", "--local-ranks-filter=0,2", "a.py"});
  EXPECT_EQ(o.redirects.For(5), 3);
  EXPECT_EQ(o.tee->For(0), 3);
  EXPECT_EQ(o.tee->For(1), 1);
  EXPECT_EQ(o.tee->For(2), 0);
  EXPECT_THAT(*o.local_ranks_filter, ElementsAre(0, 2));
  EXPECT_THAT(Bad({"-r", "4", "a.py"}), HasSubstr("--redirects: expected 0 (none)"));
  EXPECT_THAT(Bad({"-t", "0:", "a.py"}), HasSubstr("--tee"));
  EXPECT_THAT(Bad({"--local-ranks-filter", "0,x", "a.py"}), HasSubstr("local ranks like 0,1,2"));
}

TEST(RunFlags, SignalsAreNames) {
  EXPECT_THAT(Good({"--signals-to-handle", "SIGTERM,SIGUSR1", "a.py"}).signals, ElementsAre(SIGTERM, SIGUSR1));
  EXPECT_THAT(Bad({"--signals-to-handle", "SIGFOO", "a.py"}), HasSubstr("SIGFOO"));
  EXPECT_THAT(Bad({"--signals-to-handle", "SIGKILL", "a.py"}), HasSubstr("cannot be handled"));
}

TEST(RunFlags, NumaBindingIsTorchrunsNameOfBind) {
  EXPECT_EQ(Good({"--numa-binding=node", "a.py"}).bind, Bind::kNuma);
  EXPECT_EQ(Good({"--numa-binding=exclusive", "a.py"}).bind, Bind::kCores);
  EXPECT_EQ(Good({"--numa-binding=socket", "a.py"}).bind, Bind::kSocket);
  EXPECT_EQ(Good({"--numa-binding=core-complex", "a.py"}).bind, Bind::kComplex);
  EXPECT_EQ(Good({"--bind=cores", "a.py"}).bind, Bind::kCores);
  EXPECT_THAT(Bad({"--bind=none", "--numa-binding=node", "a.py"}), HasSubstr("contradict"));
  EXPECT_THAT(Bad({"--numa-binding=core", "a.py"}), HasSubstr("expected node, socket, exclusive, core-complex"));
}

TEST(RunFlags, ShutdownTimeoutIsTorchrunsNameOfGrace) {
  EXPECT_EQ(Good({"--shutdown-timeout", "40", "a.py"}).grace, seconds(40));
  EXPECT_EQ(Good({"a.py"}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "50"}}).grace, seconds(50));
  EXPECT_EQ(Good({"--grace=2m", "--shutdown-timeout", "40", "a.py"}).grace, seconds(120));
  EXPECT_THAT(Bad({"--shutdown-timeout", "-1", "a.py"}), HasSubstr("seconds"));
}

TEST(RunFlags, FlagsWithoutEffectAreStillChecked) {
  Good({"--monitor-interval=0.5", "--start-method=fork", "--event-log-handler=null", "--use-env", "a.py"});
  EXPECT_THAT(Bad({"--monitor-interval=0", "a.py"}), HasSubstr("a number above 0"));
  EXPECT_THAT(Bad({"--start-method=thread", "a.py"}), HasSubstr("forkserver"));
  EXPECT_THAT(Bad({"--event-log-handler=mine", "a.py"}), HasSubstr("events.jsonl"));
}

TEST(RunFlags, WhatCannotBeServedIsRefusedWithTheReason) {
  EXPECT_THAT(Bad({"--logs-specs=mine", "a.py"}), HasSubstr("Python entry point"));
  EXPECT_THAT(Bad({"--duplicate-stdout-filters=a,b", "a.py"}), HasSubstr("grep"));
  EXPECT_THAT(Bad({"--duplicate_stderr_filters", "a", "a.py"}), HasSubstr("grep"));
}

TEST(RunFlags, VariablesOfTorchrunAreDefaultsThatTheCommandLineOverrides) {
  const Environment env = {{"PET_NNODES", "2"},       {"PET_NPROC_PER_NODE", "8"},  {"PET_NODE_RANK", "1"},
                           {"PET_MASTER_ADDR", "m0"}, {"PET_MASTER_PORT", "23456"}, {"PET_MAX_RESTARTS", "3"},
                           {"PET_TEE", "3"},          {"PET_MODULE", "1"},          {"PET_STANDALONE", "0"},
                           {"PET_LOG_DIR", "/logs"},  {"PET_RDZV_ID", "job7"},      {"PET_ROLE", ""}};
  const auto o = Good({"--nproc-per-node", "4", "pkg.train"}, env);
  EXPECT_EQ(o.place.nnodes, 2);
  EXPECT_EQ(o.place.nproc_per_node, "4");
  EXPECT_EQ(o.place.node_rank, 1);
  EXPECT_EQ(o.place.master_addr, "m0");
  EXPECT_EQ(o.place.master_port, 23456);
  EXPECT_EQ(o.max_restarts, 3);
  EXPECT_EQ(o.tee->all, 3);
  EXPECT_TRUE(o.module);
  EXPECT_FALSE(o.place.standalone);
  EXPECT_EQ(o.log_dir, "/logs");
  EXPECT_EQ(o.rdzv_id, "job7");
  EXPECT_EQ(o.role, "default");
}

TEST(RunFlags, ABadVariableIsNamed) {
  EXPECT_THAT(Bad({"a.py"}, {{"PET_NNODES", "two"}}), HasSubstr("PET_NNODES (variable of --nnodes): expected"));
  EXPECT_THAT(Bad({"a.py"}, {{"PET_STANDALONE", "yes"}}), HasSubstr("PET_STANDALONE"));
  Good({"--nnodes=1", "a.py"}, {{"PET_NNODES", "two"}});  // overridden: not looked at, as in torchrun
}

TEST(RunFlags, OursAreParsedWithUnits) {
  const auto o = Good({"--gpus",
                       "0, 2",
                       "--conda",
                       "torch",
                       "--module-load",
                       "cuda/12.4,gcc",
                       "--modules=nccl",
                       "--env",
                       "A=1",
                       "--env=B=x=y",
                       "--workdir",
                       "/w",
                       "--name",
                       "exp7",
                       "--grace",
                       "1m30s",
                       "--node-timeout=45",
                       "--join-timeout=250ms",
                       "--backoff",
                       "2s",
                       "--port-range",
                       "30000-30100",
                       "--log-rotate",
                       "10MiB:3",
                       "--token-file",
                       "/t",
                       "--debug",
                       "--dry-run",
                       "--json",
                       "--exec",
                       "--quiet",
                       "--console",
                       "0,8-10",
                       "--level",
                       "process",
                       "a.py"});
  EXPECT_EQ(o.gpus, "0,2");
  EXPECT_EQ(o.conda, "torch");
  EXPECT_THAT(o.modules, ElementsAre("cuda/12.4", "gcc", "nccl"));
  EXPECT_THAT(o.env, ElementsAre(Pair("A", "1"), Pair("B", "x=y")));
  EXPECT_EQ(o.workdir, "/w");
  EXPECT_EQ(o.name, "exp7");
  EXPECT_EQ(o.grace, seconds(90));
  EXPECT_EQ(o.node_timeout, seconds(45));
  EXPECT_EQ(o.join_timeout, milliseconds(250));
  EXPECT_EQ(o.backoff, seconds(2));
  EXPECT_EQ(o.port_range, std::make_pair(30000, 30100));
  EXPECT_EQ(o.rotation.bytes, 10u << 20);
  EXPECT_EQ(o.rotation.keep, 3);
  EXPECT_EQ(o.token_file, "/t");
  EXPECT_TRUE(o.debug && o.dry_run && o.json && o.exec && o.quiet);
  EXPECT_EQ(o.console.kind, launch::ConsoleRanks::Kind::kListed);
  EXPECT_THAT(o.console.ranks, ElementsAre(0, 8, 9, 10));
  EXPECT_EQ(o.place.level, place::Level::kProcess);
}

TEST(RunFlags, OursAreRefusedWhenWrong) {
  EXPECT_THAT(Bad({"--gpus=0,0", "a.py"}), HasSubstr("each GPU once"));
  EXPECT_THAT(Bad({"--gpus=all", "a.py"}), HasSubstr("GPU numbers"));
  EXPECT_THAT(Bad({"--env=RANK=3", "a.py"}), HasSubstr("RANK says who a worker is"));
  EXPECT_THAT(Bad({"--env=1A=3", "a.py"}), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(Bad({"--env=LOCKSTEP_TOKEN=s", "a.py"}), AllOf(HasSubstr("token"), Not(HasSubstr("=s"))));
  EXPECT_THAT(Bad({"--grace=soon", "a.py"}), HasSubstr("--grace"));
  EXPECT_THAT(Bad({"--port-range=5-1", "a.py"}), HasSubstr("FIRST-LAST"));
  EXPECT_THAT(Bad({"--port-range=1-70000", "a.py"}), HasSubstr("FIRST-LAST"));
  EXPECT_THAT(Bad({"--log-rotate=10", "a.py"}), HasSubstr("at least 4KiB"));
  EXPECT_THAT(Bad({"--log-rotate=10MiB:x", "a.py"}), HasSubstr("KEEP"));
  EXPECT_THAT(Bad({"--level=rank", "a.py"}), HasSubstr("node, process"));
  EXPECT_THAT(Bad({"--name=../x", "a.py"}), HasSubstr("--name"));
  EXPECT_THAT(Bad({"--console=4-2", "a.py"}), HasSubstr("all, none"));
  EXPECT_THAT(Bad({"--conda=a", "--venv=b", "a.py"}), HasSubstr("one environment"));
  EXPECT_THAT(Bad({"--exec", "--level=node", "a.py"}), HasSubstr("--exec"));
  EXPECT_THAT(Bad({"--gpus=0", "--virtual-local-rank", "--nproc-per-node=2", "a.py"}),
              HasSubstr("expected at most 1 rank with"));
}

TEST(RunFlags, ATokenOnTheCommandLineIsRefusedWithoutRepeatingIt) {
  for (const auto& args : std::vector<std::vector<std::string>>{{"--token", "s3cret", "a.py"},
                                                                {"--token=s3cret", "a.py"},
                                                                {"--tok=s3cret", "a.py"},
                                                                {"--tokne=s3cret", "a.py"}}) {
    EXPECT_THAT(Bad(args), AllOf(HasSubstr("--token"), Not(HasSubstr("s3cret"))));
  }
}

TEST(RunFlags, AProgramIsRequiredToRunButNotToExplain) {
  EXPECT_THAT(Bad({"--nproc-per-node=2"}), HasSubstr("no program"));
  EXPECT_THAT(Bad({}), HasSubstr("no program"));
  EXPECT_TRUE(Parse({"--nproc-per-node=2"}, {}, ParseMode::kExplain).ok());
}

TEST(RunFlags, TheThreeWaysToStartAProgramExcludeEachOther) {
  EXPECT_THAT(Bad({"-m", "--no-python", "a"}), HasSubstr("contradict"));
  EXPECT_TRUE(Good({"--run-path", "--no-python", "/a.py"}).run_path);  // takes precedence, as in torchrun
  EXPECT_THAT(Bad({"--module", "cuda/12.4", "a.py"}), AllOf(HasSubstr("module name"), HasSubstr("--module-load")));
}

TEST(RunFlags, ExplainKnowsItsOwnFlags) {
  const auto flags =
      Parse({"--env-file", "e", "--assume-gpus", "8", "--assume-cpus=64", "--assume-host=h", "--nnodes=2"}, {},
            ParseMode::kExplain);
  ASSERT_TRUE(flags.ok()) << flags.status().ToString();
  EXPECT_EQ(flags->explain.env_file, "e");
  EXPECT_EQ(flags->explain.assume_gpus, 8);
  EXPECT_EQ(flags->explain.assume_cpus, 64);
  EXPECT_EQ(flags->explain.assume_host, "h");
  EXPECT_EQ(flags->options.place.nnodes, 2);
  EXPECT_THAT(Bad({"--assume-gpus", "8", "a.py"}), HasSubstr("unknown flag"));
}

TEST(RunFlags, HelpAndVersionPrintAndExitWhateverFollows) {
  for (const char* flag : {"-h", "--help", "--version"}) {
    const auto flags = Parse({flag, "--nonsense"}, {{"PET_NNODES", "bad"}});
    ASSERT_TRUE(flags.ok()) << flag;
    EXPECT_TRUE(flags->print_and_exit);
    EXPECT_THAT(flags->text, Not(IsEmpty()));
  }
  const std::string help = RunHelp(ParseMode::kRun);
  EXPECT_THAT(help, AllOf(HasSubstr("--nproc-per-node"), HasSubstr("examples:"), Not(HasSubstr("--dump-flags")),
                          Not(HasSubstr("--assume-gpus"))));
  EXPECT_THAT(RunHelp(ParseMode::kExplain), HasSubstr("--assume-gpus"));
}

TEST(RunFlags, TheHelpFitsATerminal) {
  size_t width = 0, start = 0;
  const std::string help = RunHelp(ParseMode::kRun);
  for (size_t end = help.find('\n'); end != std::string::npos; start = end + 1, end = help.find('\n', start))
    width = std::max(width, end - start);
  EXPECT_LE(width, 120u);
}

TEST(RunFlags, TheDumpIsJsonWithAReasonForEveryFlagOfTorchrun) {
  const auto flags = Parse({"--dump-flags"});
  ASSERT_TRUE(flags.ok());
  const auto rows = nlohmann::json::parse(flags->text);
  ASSERT_GT(rows.size(), 50u);
  for (const auto& row : rows) {
    if (row["torchrun"] != "ours") EXPECT_NE(row["reason"], "") << row["name"];
  }
}

TEST(RunFlags, ATrainProgramIsSaidToBeOneAndTheEngineIsKnown) {
  EXPECT_TRUE(Good({"--train-program", "--no-python", "./my-train", "train", "mine"}).train_program);
  EXPECT_TRUE(Good({"--no-python", "/opt/bin/lockstep-train", "train", "taehv"}).train_program);
  EXPECT_FALSE(Good({"--no-python", "./my-train", "train", "mine"}).train_program);
  EXPECT_FALSE(Good({"train.py", "lockstep-train"}).train_program);
}

TEST(RunFlags, TheCommandLineIsKeptForStartingItAgain) {
  EXPECT_THAT(Good({"--nproc", "2", "a.py", "--x"}).argv, ElementsAre("--nproc", "2", "a.py", "--x"));
}

}  // namespace
}  // namespace lockstep::cli
