// Which of many errors is the cause: whole logs in, one answer out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "diagnose/diagnosis.h"

namespace lockstep::diagnose {
namespace {

using ::testing::HasSubstr;

Diagnosis Of(const std::vector<LogText>& logs, const DiagnoseOptions& options = {}) {
  Result<Diagnosis> found = DiagnoseText(logs, options);
  EXPECT_TRUE(found.ok()) << found.status().ToString();
  return found.ok() ? *found : Diagnosis();
}
Diagnosis Of(const std::string& text) { return Of({{.name = "log", .text = text}}); }

std::string Trace(const std::string& tag, const std::string& exception) {
  return tag + "Traceback (most recent call last):\n" + tag + "  File \"/home/u/train.py\", line 31, in <module>\n" +
         tag + "    main()\n" + tag + exception + "\n";
}
std::string Steps(int from, int to) {
  std::string text;
  for (int i = from; i <= to; ++i) text += "step " + std::to_string(i) + "/1000 | loss 0.5 | lr 1e-4\n";
  return text;
}

const char kGloo[] =
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:1";

TEST(Cause, IsTheRankThatFailedNotThoseThatNoticed) {
  const Diagnosis d = Of(Trace("[rank0]: ", kGloo) + Trace("[rank1]: ", kGloo) + Trace("[rank3]: ", kGloo) +
                         Trace("[rank2]: ", "ZeroDivisionError: division by zero"));
  EXPECT_EQ(d.verdict, Verdict::kFailure);
  EXPECT_EQ(d.signature, "py-zero-division-error");
  EXPECT_EQ(d.rank, 2);
  ASSERT_FALSE(d.consequences.empty());
  EXPECT_EQ(d.consequences[0].signature, "gloo-io");
  EXPECT_EQ(d.consequences[0].ranks, (std::vector<int>{0, 1, 3}));
  ASSERT_GE(d.evidence.size(), 2u);
  EXPECT_EQ(d.evidence[0].line, 16u);
  EXPECT_THAT(d.evidence[1].text, HasSubstr("/home/u/train.py:31"));
}

// As NCCL's watchdog of torch 2.11 says it, under a launcher that sets PYTHONFAULTHANDLER.
std::string Watchdog(int rank, const std::string& work) {
  const std::string tag = "[rank" + std::to_string(rank) +
                          "]:[E1116 01:52:24.221641571 ProcessGroupNCCL.cpp:689] [Rank " + std::to_string(rank) + "] ";
  return tag + "Watchdog caught collective operation timeout: WorkNCCL(" + work +
         ", Timeout(ms)=10000) ran for 10035 milliseconds before timing out.\n" +
         "terminate called after throwing an instance of 'c10::DistBackendError'\nFatal Python error: Aborted\n\n" +
         "Thread 0x00007f6fc8c4c540 (most recent call first):\n  File \"/u/train.py\", line 16 in <module>\n";
}

TEST(Cause, OfRanksThatWaitInDifferentCollectivesIsTheDifference) {
  const std::string sum = "SeqNum=4, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024";
  const std::string gather = "SeqNum=4, OpType=_ALLGATHER_BASE, NumelIn=1024, NumelOut=2048";
  const auto of = [](const std::vector<std::string>& works) {
    std::vector<LogText> logs;
    for (int r = 0; r < static_cast<int>(works.size()); ++r) {
      logs.push_back(
          {.name = "rank-" + std::to_string(r), .rank = r, .text = Watchdog(r, works[static_cast<size_t>(r)])});
    }
    return Of(logs);
  };
  const Diagnosis d = of({sum, sum, gather});
  EXPECT_EQ(d.signature, "pt-coll-mismatch");
  EXPECT_EQ(d.rank, 2);
  EXPECT_THAT(d.cause, HasSubstr("number 4 is ALLREDUCE of 1024 elements on ranks 0, 1, _ALLGATHER_BASE on rank 2"));
  EXPECT_EQ(of({sum, "SeqNum=4, OpType=ALLREDUCE, NumelIn=1000, NumelOut=1000"}).signature, "pt-coll-mismatch");
  // The same collective everywhere, or shares of any size: a wait, and the abort after it is no cause.
  for (const std::string& other : {sum, std::string("SeqNum=5, OpType=ALLREDUCE, NumelIn=9, NumelOut=9")}) {
    EXPECT_EQ(of({sum, sum, other}).signature, "pt-wd-timeout") << other;
  }
  EXPECT_EQ(of({gather, "SeqNum=4, OpType=_ALLGATHER_BASE, NumelIn=7, NumelOut=14"}).signature, "pt-wd-timeout");
}

TEST(Cause, IsTheEarliestByTimeAcrossFiles) {
  const Diagnosis d =
      Of({{.name = "a", .rank = 0, .text = "2026-01-01 10:00:09,000 - INFO - x\n" + Trace("", "KeyError: 'late'")},
          {.name = "b", .rank = 1, .text = "2026-01-01 10:00:01,000 - INFO - x\n" + Trace("", "ValueError: early")}});
  EXPECT_EQ(d.rank, 1);
  EXPECT_THAT(d.cause, HasSubstr("early"));
}

TEST(Cause, TimesOfANodeWithAWrongClockAreCorrected) {
  DiagnoseOptions options;
  const std::vector<LogText> logs = {{.name = "a",
                                      .rank = 0,
                                      .node = "n0",
                                      .text = "2026-01-01 10:00:05,000 - INFO - x\n" + Trace("", "KeyError: 'a'")},
                                     {.name = "b",
                                      .rank = 1,
                                      .node = "n1",
                                      .text = "2026-01-01 10:00:01,000 - INFO - x\n" + Trace("", "ValueError: b")}};
  EXPECT_EQ(Of(logs).rank, 1);
  options.clock_offsets["n1"] = 60;
  EXPECT_EQ(Of(logs, options).rank, 0);
}

TEST(Cause, ALauncherThatKnowsWhoEndedFirstDecides) {
  DiagnoseOptions options;
  options.exits = {{.rank = 1, .code = 1, .time = 10}, {.rank = 0, .code = 1, .time = 12}};
  const Diagnosis d = Of({{.name = "a", .rank = 0, .text = Trace("", "KeyError: 'a'")},
                          {.name = "b", .rank = 1, .text = Trace("", "KeyError: 'b'")}},
                         options);
  EXPECT_EQ(d.rank, 1);
}

TEST(Cause, AKillForMemoryExplainsTheSignal) {
  DiagnoseOptions options;
  options.exits = {
      {.rank = 1, .signal = 9, .time = 10, .evidence = "Memory cgroup out of memory: Killed process 77 (python)"}};
  const Diagnosis d =
      Of({{.name = "a", .rank = 0, .text = Trace("", kGloo)}, {.name = "b", .rank = 1, .text = Steps(1, 5)}}, options);
  EXPECT_EQ(d.signature, "oom-cgroup");
  EXPECT_EQ(d.rank, 1);
  EXPECT_EQ(d.last_step, 5);
  EXPECT_EQ(d.restart, Restart::kNo);
}

TEST(Cause, ASilentSignalIsNamedOverThoseWhoLostTheirPeer) {
  DiagnoseOptions options;
  options.exits = {{.rank = 1, .signal = 11, .time = 10}, {.rank = 0, .code = 1, .time = 11}};
  const Diagnosis d =
      Of({{.name = "a", .rank = 0, .text = Trace("", kGloo)}, {.name = "b", .rank = 1, .text = Steps(1, 5)}}, options);
  EXPECT_EQ(d.signature, "exit-sigsegv");
  EXPECT_EQ(d.rank, 1);
}

TEST(Cause, TorchrunsTableNamesTheRank) {
  const Diagnosis d =
      Of(Steps(1, 4) +
         "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
         "Failures:\n[1]:\n  time      : 2026-01-01_10:00:02\n  host      : gpu-1\n  rank      : 0 (local_rank: 0)\n"
         "  exitcode  : -15 (pid: 1)\n  error_file: <N/A>\n"
         "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-01_10:00:01\n  host      : gpu-2\n"
         "  rank      : 5 (local_rank: 1)\n  exitcode  : -9 (pid: 2)\n");
  EXPECT_EQ(d.signature, "exit-sigkill");
  EXPECT_EQ(d.rank, 5);
  EXPECT_EQ(d.node, "gpu-2");
}

TEST(Cause, ATimeLimitOutranksTheTracebacksItLeaves) {
  const Diagnosis d = Of(
      Steps(1, 9) + "slurmstepd: error: *** JOB 4242 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n" +
      Trace("", "RuntimeError: something broke while going down"));
  EXPECT_EQ(d.signature, "slurm-time");
  EXPECT_EQ(d.restart, Restart::kYes);
}

TEST(Cause, AnErrorLongBeforeTheTimeLimitStays) {
  const Diagnosis d =
      Of(Steps(1, 9) + Trace("", "ValueError: bad sample") +
         "slurmstepd: error: *** JOB 4242 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n");
  EXPECT_EQ(d.signature, "py-value-error");
}

TEST(Cause, OfAChainIsWhatExplainsMost) {
  const Diagnosis d =
      Of("Traceback (most recent call last):\n  File \"/home/u/d.py\", line 4, in f\n    x()\nOSError: [Errno 28] No "
         "space left on device\n\n"
         "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
         "  File \"/home/u/d.py\", line 9, in g\n    y()\nRuntimeError: could not save\n");
  EXPECT_EQ(d.signature, "fs-enospc");
}

TEST(Cause, HardwareEventsComeWithTheirPolicy) {
  const Diagnosis d =
      Of("Nov 15 10:00:00 gpu-3 kernel: NVRM: Xid (PCI:0000:4a:00): 79, pid=1, GPU has fallen off the bus.\n");
  EXPECT_EQ(d.verdict, Verdict::kFailure);
  EXPECT_TRUE(d.exclude_node);
  EXPECT_EQ(d.node, "gpu-3");
  EXPECT_THAT(d.cause, HasSubstr("79"));
}

TEST(Cause, AContainedMemoryErrorNeedsNoOtherNode) {
  const Diagnosis d = Of("NVRM: Xid (PCI:0000:4a:00): 94, pid=1, Contained: SM (0x1).\n");
  EXPECT_FALSE(d.exclude_node);
  EXPECT_EQ(d.restart, Restart::kYes);
}

TEST(Cause, OfACollectiveTimeOutIsTheRankThatDidNotCome) {
  std::string text;
  for (int rank : {0, 1, 3}) {
    text +=
        "[rank" + std::to_string(rank) + "]:[E626 05:06:30.929096625 ProcessGroupNCCL.cpp:632] [Rank " +
        std::to_string(rank) +
        "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600065 milliseconds before timing out.\n";
  }
  const Diagnosis d = Of(text);
  EXPECT_EQ(d.signature, "pt-wd-timeout");
  EXPECT_EQ(d.rank, 2);
}

TEST(Healthy, IsARunThatSaysItIsDone) {
  const Diagnosis d = Of(Steps(1, 5) + "WARNING: [Errno 13] Permission denied: '/home/u/.cache' using /tmp\n" +
                         Steps(6, 10) + "training finished\n");
  EXPECT_EQ(d.verdict, Verdict::kHealthy);
}

TEST(Healthy, TheLastStepOfBarsOfEpochsIsThatOfTheRun) {
  std::string log;
  for (const char* at : {"Epoch 1/2: 50%|# | 5/10", "Epoch 1/2: 100%|##| 10/10", "Epoch 2/2: 50%|# | 5/10"}) {
    log += std::string(at) + " [00:05<00:05,  1.00it/s, loss=0.5]\n";
  }
  EXPECT_EQ(Of(log).last_step, 15);
  const Diagnosis done = Of(log + "Epoch 2/2: 100%|##| 10/10 [00:10<00:00,  1.00it/s, loss=0.5]\n");
  EXPECT_EQ(done.verdict, Verdict::kHealthy);
  EXPECT_EQ(done.last_step, 20);
}

TEST(Healthy, IsARunThatGotOverAnException) {
  const Diagnosis d = Of(Steps(1, 5) + Trace("", "ConnectionError: hub") + Steps(6, 20));
  EXPECT_EQ(d.verdict, Verdict::kHealthy);
  EXPECT_EQ(d.last_step, 20);
  ASSERT_FALSE(d.consequences.empty());
}

TEST(Healthy, IsNotARunWhoseExceptionCameLast) {
  EXPECT_EQ(Of(Steps(1, 20) + Trace("", "ConnectionError: hub")).verdict, Verdict::kFailure);
}

TEST(Healthy, IsARunWhoseLossWasNoNumberOnlyOnce) {
  EXPECT_EQ(Of(Steps(1, 5) + "step 6/1000 | loss nan | lr 1e-4\n" + Steps(7, 20)).verdict, Verdict::kHealthy);
  EXPECT_EQ(
      Of(Steps(1, 5) + "step 6/1000 | loss nan | grad_norm nan\nstep 7/1000 | loss 0.0 | grad_norm nan\n").signature,
      "num-nan");
  const Diagnosis d = Of(Steps(1, 5) + "step 6/1000 | loss nan | lr 1e-4\nstep 7/1000 | loss nan | lr 1e-4\n");
  EXPECT_EQ(d.signature, "num-nan");
}

TEST(Unknown, IsAnAnswer) {
  EXPECT_EQ(Of("hello\nworld\n").verdict, Verdict::kUnknown);
  EXPECT_EQ(Of("").verdict, Verdict::kUnknown);
  EXPECT_EQ(Of(std::vector<LogText>{}).verdict, Verdict::kUnknown);
}

TEST(Unknown, AnUnseenErrorStillHasItsWords) {
  const Diagnosis d = Of("starting\n2026-01-01 10:00:00,000 - ERROR - flux - the capacitor is cold\n");
  EXPECT_EQ(d.signature, "error-line");
  EXPECT_THAT(d.cause, HasSubstr("capacitor"));
  const Diagnosis e = Of(Trace("[rank4]: ", "flux.errors.ColdCapacitorError: too cold"));
  EXPECT_EQ(e.signature, "py-cold-capacitor-error");
  EXPECT_EQ(e.rank, 4);
  EXPECT_THAT(e.cause, HasSubstr("too cold"));
}

TEST(Restart, OfAnUnknownExceptionDependsOnWhatWasDone) {
  EXPECT_EQ(Of(Trace("", "TypeError: x")).restart, Restart::kNo);
  EXPECT_EQ(Of(Steps(1, 9) + Trace("", "TypeError: x")).restart, Restart::kAfterFix);
  EXPECT_EQ(Of(Steps(1, 9) + Trace("", "FluxError: x")).restart, Restart::kYes);
  EXPECT_EQ(Of(Trace("", "ConnectionError: x")).restart, Restart::kYes);
}

TEST(Text, IsTenLinesOrFewerWhenBrief) {
  std::string log = Steps(1, 5);
  for (int rank = 0; rank < 40; ++rank) log += Trace("[rank" + std::to_string(rank) + "]: ", kGloo);
  log += Trace("[rank9]: ", "ValueError: x") +
         "srun: error: n1: task 3: Exited with exit code 1\nncclRemoteError\nOut of memory?\n";
  const std::string text = DiagnosisText(Of(log), true, false);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 10);
  EXPECT_TRUE(text.starts_with("cause"));
}

TEST(Json, HasTheFieldsOfTheContract) {
  const nlohmann::json json = ToJson(Of(Trace("[rank2]: ", "ValueError: \xff\x01 x")));
  for (const char* field : {"verdict", "signature", "cause", "remedy", "restart", "confidence", "rank", "node",
                            "evidence", "consequences", "alternatives"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  EXPECT_EQ(json["verdict"], "failure");
  EXPECT_EQ(json["rank"], 2);
  EXPECT_EQ(json["evidence"][0]["line"], 4);
  EXPECT_NO_THROW((void)json.dump());
  EXPECT_TRUE(ToJson(Of("x\n"))["restart"].is_null());
}

TEST(Cause, ASchedulerThatNamesNobodyIsHelpedByOneThatDoes) {
  const std::string killed =
      "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have been OOM Killed.\n";
  const Diagnosis d = Of(Steps(1, 5) + killed +
                         "srun: error: gpu-b02: task 6: Out Of Memory\nsrun: error: gpu-b01: tasks 0-3: Terminated\n");
  EXPECT_EQ(d.signature, "oom-slurm");
  EXPECT_EQ(d.rank, 6);
  EXPECT_EQ(d.node, "gpu-b02");
  // Two that died of it: neither is the one.
  EXPECT_EQ(
      Of(Steps(1, 5) + killed + "srun: error: a: task 6: Out Of Memory\nsrun: error: b: task 7: Out Of Memory\n").rank,
      -1);
}

// Three ranks that fail of the same within a moment: only the first end was not asked for.
DiagnoseOptions Ends(int code) {
  DiagnoseOptions options;
  options.exits = {{.rank = 1, .code = code, .time = 10},
                   {.rank = 0, .code = code, .after_stop = true, .time = 10.1},
                   {.rank = 2, .code = code, .after_stop = true, .time = 10.2}};
  return options;
}
std::vector<LogText> Logs(const std::string& text) {
  return {{.name = "a", .rank = 0, .text = text},
          {.name = "b", .rank = 1, .text = text},
          {.name = "c", .rank = 2, .text = text}};
}

TEST(Alike, RanksThatFailOfTheSameAreNamedTogetherAndNoneIsSaidToBeSilent) {
  const Diagnosis d = Of(Logs(Trace("", "ValueError: bad shape")), Ends(1));
  EXPECT_EQ(d.rank, 1);
  EXPECT_EQ(d.alike, (std::vector<int>{0, 2}));
  EXPECT_TRUE(d.consequences.empty()) << d.consequences[0].what;
  EXPECT_THAT(DiagnosisText(d, true, false), HasSubstr("rank 1; the same on ranks 0, 2\n"));
}

TEST(Alike, AnExitCodeComesWithTheLastLine) {
  const Diagnosis d = Of(Logs("usage: --foo is not known\n"), Ends(2));
  EXPECT_EQ(d.cause, "rank 1 ended with code 2; its last line: usage: --foo is not known");
  EXPECT_EQ(d.alike, (std::vector<int>{0, 2}));
  EXPECT_TRUE(d.consequences.empty());
  ASSERT_EQ(d.evidence.size(), 1u);
  EXPECT_EQ(d.evidence[0].file, "b");
}

TEST(Alike, AnotherErrorIsNotTheSame) {
  std::vector<LogText> logs = Logs("ready\n" + Trace("", "KeyError: 'a'"));
  logs[0].text = Trace("", "KeyError: 'b'");
  const Diagnosis d = Of(logs, Ends(1));
  EXPECT_EQ(d.rank, 1);
  EXPECT_EQ(d.alike, (std::vector<int>{2}));
}

TEST(Alike, WhoEndsOtherwiseIsToldWithoutTheOneToBlame) {
  DiagnoseOptions options = Ends(1);
  options.exits[2] = {.rank = 2, .code = 9, .after_stop = true, .time = 10.2};
  std::vector<LogText> logs = Logs(Trace("", "ValueError: bad shape"));
  logs[2].text = "leaving\n";
  const Diagnosis d = Of(logs, options);
  ASSERT_EQ(d.consequences.size(), 1u);
  EXPECT_EQ(d.consequences[0].what, "ended with code 9");
  EXPECT_EQ(d.consequences[0].ranks, (std::vector<int>{2}));
}

TEST(Alike, TheLastLineOfAKilledRankIsNoEvidence) {
  DiagnoseOptions options;
  options.exits = {{.rank = 0, .signal = SIGKILL, .time = 10}};
  const Diagnosis d = Of({{.name = "a", .rank = 0, .text = Steps(1, 3) + "checkpoint saved\n"}}, options);
  EXPECT_EQ(d.signature, "exit-sigkill");
  EXPECT_TRUE(d.evidence.empty()) << d.evidence[0].text;
}

}  // namespace
}  // namespace lockstep::diagnose
