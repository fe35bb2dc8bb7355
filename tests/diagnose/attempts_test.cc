// Files to which several attempts were appended, scripts that go on, and ends that explain nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "diagnose/diagnosis.h"

namespace lockstep::diagnose {
namespace {

using ::testing::HasSubstr;

Diagnosis DiagnoseLog(const std::string& text) {
  Result<Diagnosis> found = DiagnoseText({{.name = "log", .text = text}}, {});
  EXPECT_TRUE(found.ok()) << found.status().ToString();
  return found.ok() ? *found : Diagnosis();
}
std::string FitTrace(const std::string& tag, const std::string& exception) {
  return tag + "Traceback (most recent call last):\n" + tag + "  File \"/home/u/fit.py\", line 7, in <module>\n" + tag +
         "    main()\n" + tag + exception + "\n";
}
std::string Words(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += "reading shard of the corpus, part " + std::to_string(i * 7) + "\n";
  return text;
}

TEST(Attempts, TheLastOfThoseInOneFileDecides) {
  const Diagnosis d =
      DiagnoseLog(Words(3) + FitTrace("", "KeyError: 'first'") + Words(60) + FitTrace("", "ValueError: second"));
  EXPECT_EQ(d.signature, "py-value-error");
  EXPECT_THAT(d.cause, HasSubstr("second"));
  // Close together the second may follow from the first.
  EXPECT_EQ(DiagnoseLog(FitTrace("", "KeyError: 'first'") + Words(5) + FitTrace("", "ValueError: second")).signature,
            "py-key-error");
}

TEST(Attempts, AFileThatGoesOnForLongAfterAnExceptionGotOverIt) {
  EXPECT_EQ(DiagnoseLog(FitTrace("", "KeyError: 'first'") + Words(150)).verdict, Verdict::kUnknown);
  EXPECT_EQ(DiagnoseLog(FitTrace("", "KeyError: 'first'") + Words(50)).verdict, Verdict::kFailure);
}

TEST(Attempts, WhereSeveralRanksSpeakTheFirstErrorStaysTheCause) {
  const Diagnosis d = DiagnoseLog(FitTrace("[rank1]: ", "KeyError: 'first'") + Words(150) +
                                  FitTrace("[rank0]: ", "ValueError: second"));
  EXPECT_EQ(d.signature, "py-key-error");
  EXPECT_EQ(d.rank, 1);
}

TEST(Attempts, AShellGoesOnAfterALineThatFailed) {
  const std::string shell = "job.sh: line 4: ml: command not found\n";
  EXPECT_EQ(DiagnoseLog(shell + FitTrace("", "KeyError: 'x'")).signature, "py-key-error");
  EXPECT_EQ(DiagnoseLog(shell).signature, "shell");
  EXPECT_THAT(DiagnoseLog(shell).cause, HasSubstr("ml: command not found"));
  EXPECT_EQ(DiagnoseLog(shell + "loading\ndone\n").verdict, Verdict::kHealthy);
}

TEST(Attempts, ABareDoneIsAnEndOnlyAsTheLastWord) {
  EXPECT_EQ(DiagnoseLog("loading\nDONE\n").verdict, Verdict::kHealthy);
  EXPECT_EQ(DiagnoseLog("loading\nDONE\n" + Words(9)).verdict, Verdict::kUnknown);
}

TEST(Attempts, AnInterruptionAtTheEndSaysMoreThanARefusedCommandLongBefore) {
  const Diagnosis d = DiagnoseLog("fit.py: error: argument --workers: expected one argument\n" + Words(60) +
                                  FitTrace("", "KeyboardInterrupt"));
  EXPECT_EQ(d.signature, "interrupted");
  EXPECT_EQ(DiagnoseLog("fit.py: error: argument --workers: expected one argument\n").signature, "usage");
}

TEST(Attempts, TheEndOfAnEarlierOneIsForgotten) {
  const std::string step = "srun: error: n1: task 0: Exited with exit code 1\n";
  const Diagnosis d =
      DiagnoseLog(FitTrace("", "KeyError: 'first'") + step + Words(150) + FitTrace("", "ValueError: second") + step);
  EXPECT_THAT(d.cause, HasSubstr("second"));
  EXPECT_EQ(d.rank, 0);
  EXPECT_EQ(DiagnoseLog(FitTrace("", "KeyError: 'first'") + step + Words(150)).verdict, Verdict::kUnknown);
}

TEST(Attempts, TheKernelsWordsAreNotHistory) {
  const std::string lines = Words(400);
  const Diagnosis d =
      DiagnoseLog("[  100.000001] NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.\n" + lines);
  EXPECT_EQ(d.verdict, Verdict::kFailure);
}

TEST(Warnings, AGraveOneGivesWayToWhatEndedTheProgram) {
  const std::string warning =
      "/x/torch/cuda/__init__.py:1: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old\n";
  EXPECT_EQ(DiagnoseLog(warning + FitTrace("", "KeyError: 'x'")).signature, "py-key-error");
  EXPECT_EQ(DiagnoseLog(warning).signature, "cuda-drv-old");
  // What follows from it does not replace it.
  EXPECT_EQ(DiagnoseLog(warning + FitTrace("", "RuntimeError: No CUDA GPUs are available")).signature, "cuda-drv-old");
}

TEST(Tracebacks, ASignalThatCameFirstExplainsWhatWasRaisedWhileItWasHandled) {
  const std::string during = "\nDuring handling of the above exception, another exception occurred:\n\n";
  const Diagnosis d = DiagnoseLog(FitTrace("", "torch.x.SignalException: Process 7 got signal: 1") + during +
                                  FitTrace("", "KeyError: 30") + during +
                                  FitTrace("", "torch.x.SignalException: Process 7 got signal: 1"));
  EXPECT_EQ(d.signature, "py-signal-exception");
}

TEST(Tracebacks, OfARankInsideAnExceptionSpeaksForIt) {
  const Diagnosis d =
      DiagnoseLog(FitTrace("", "torch.x.CheckpointException: CheckpointException ranks:dict_keys([0, 1])") +
                  "Traceback (most recent call last): (RANK 0)\n  File \"/home/u/fit.py\", line 9, in plan\n"
                  "    load()\nFileNotFoundError: [Errno 2] No such file or directory: '/ckpt/a'\n");
  EXPECT_EQ(d.signature, "fs-enoent");
}

TEST(Tracebacks, OfARankAreReadThroughTheLoggerThatPassesThemOn) {
  const Diagnosis d = DiagnoseLog(FitTrace("2026-01-01 10:00:00,000 - Tuner - INFO - [rank7]: ", "KeyError: 'x'") +
                                  "2026-01-01 10:00:01,000 - Tuner - INFO - ranks are stopped\n");
  EXPECT_EQ(d.signature, "py-key-error");
  EXPECT_EQ(d.rank, 7);
}

TEST(Tracebacks, OfAThreadGiveWayToTheOneThatEndedTheProgram) {
  const std::string thread = "Exception in thread Thread-1 (prefetch):\n" + FitTrace("", "ConnectionError: refused");
  EXPECT_EQ(DiagnoseLog(thread + FitTrace("", "IndexError: list index out of range")).signature, "py-index-error");
  EXPECT_EQ(DiagnoseLog(thread).signature, "py-connection-error");
  EXPECT_EQ(DiagnoseLog(thread + FitTrace("", "RuntimeError: Pin memory thread exited unexpectedly")).signature,
            "py-connection-error");
}

TEST(Tracebacks, WhatTheSameLineRaisedAgainAndAgainWasSurvived) {
  std::string text;
  for (int i = 0; i < 4; ++i) text += FitTrace("[rank1]: ", "KeyError: " + std::to_string(i)) + "once more\n";
  const std::string last =
      "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/home/u/fit.py\", line 99, in <module>\n"
      "[rank1]:     wait()\n[rank1]: TimeoutError: nobody came\n";
  EXPECT_EQ(DiagnoseLog(text + last).signature, "py-timeout-error");
  EXPECT_EQ(DiagnoseLog(text).signature, "py-key-error");
}

TEST(Tracebacks, WhatFollowsAnInterruptionIsNotItsMessage) {
  const std::string left_out = "size mismatch for head.weight: copying a param with shape [1000] from checkpoint\n";
  EXPECT_EQ(DiagnoseLog(FitTrace("", "KeyboardInterrupt") + left_out).signature, "interrupted");
  EXPECT_EQ(DiagnoseLog(left_out + "loaded all others\n").verdict, Verdict::kUnknown);
  EXPECT_EQ(
      DiagnoseLog(FitTrace("", "RuntimeError: Error(s) in loading state_dict for Net:") + "\t" + left_out).verdict,
      Verdict::kFailure);
}

TEST(Tracebacks, OfAGroupNameTheFirstOfItsExceptions) {
  const Diagnosis d = DiagnoseLog(
      "  + Exception Group Traceback (most recent call last):\n"
      "  |   File \"/home/u/fit.py\", line 8, in <module>\n  |     check()\n"
      "  | ExceptionGroup: several checks failed (2 sub-exceptions)\n"
      "  +-+---------------- 1 ----------------\n    | ValueError: shape (3,4) is not (4,3)\n"
      "    +---------------- 2 ----------------\n    | KeyError: 'lr'\n"
      "    +------------------------------------\n");
  EXPECT_EQ(d.signature, "py-value-error");
  EXPECT_THAT(d.cause, HasSubstr("shape (3,4)"));
}

TEST(Tracebacks, WhatWasRaisedOnPurposeSpeaksForAChain) {
  const Diagnosis d = DiagnoseLog(FitTrace("", "ConnectionRefusedError: [Errno 111] Connection refused") +
                                  "\nThe above exception was the direct cause of the following exception:\n\n" +
                                  FitTrace("", "ValueError: no vocabulary there") +
                                  "\nDuring handling of the above exception, another exception occurred:\n\n" +
                                  FitTrace("", "SystemError: set-up failed"));
  EXPECT_THAT(d.cause, HasSubstr("no vocabulary"));
}

TEST(Tracebacks, WordsInQuotesAreDataNotErrors) {
  EXPECT_EQ(DiagnoseLog(FitTrace("", "ValueError: label 'CUDA out of memory' is not known")).signature,
            "py-value-error");
  EXPECT_EQ(DiagnoseLog(FitTrace("", "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB")).signature,
            "cuda-oom");
}

TEST(Tracebacks, AMessageThatEndsInAColonGoesOn) {
  EXPECT_THAT(DiagnoseLog(FitTrace("", "ValueError: config is wrong:") + "  - lr must be positive\n").cause,
              HasSubstr("lr must be positive"));
}

TEST(Tracebacks, AClassIsReadFromALineOfAnyLength) {
  const Diagnosis d = DiagnoseLog(FitTrace("", "ValueError: " + std::string(300'000, 'x') + " Error: y"));
  EXPECT_EQ(d.signature, "py-value-error");
}

TEST(Syntax, AnErrorOfTheMainScriptHasItsPlace) {
  const Diagnosis d =
      DiagnoseLog("  File \"/home/u/fit.py\", line 2\n    def\n       ^\nSyntaxError: invalid syntax\n");
  EXPECT_EQ(d.signature, "py-syntax");
  ASSERT_GE(d.evidence.size(), 2u);
  EXPECT_THAT(d.evidence[1].text, HasSubstr("/home/u/fit.py:2"));
}

TEST(Ends, OfASilentRankShowItsLastWords) {
  Result<Diagnosis> found =
      DiagnoseText({{.name = "rank-1.log", .rank = 1, .text = "reading\ngiving up: bad shard\n\n"},
                    {.name = "log", .text = "srun: error: n1: task 1: Exited with exit code 3\n"}},
                   {});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->signature, "exit-3");
  bool shown = false;
  for (const EvidenceLine& line : found->evidence)
    shown = shown || (line.text == "giving up: bad shard" && line.line == 2);
  EXPECT_TRUE(shown);
}

TEST(Ends, KilledBehindABarIsAnEnd) {
  EXPECT_EQ(DiagnoseLog("epochs:  20%|##  | 3/15 [1:27:15<5:56:40, 3.41s/it, loss=3.71]Killed\n").signature,
            "exit-sigkill");
}

TEST(Ends, AnExitCodeIsExplainedByAnExceptionThatSeemedToBeDealtWith) {
  const Diagnosis d =
      DiagnoseLog("uploader: no network, entering retry loop\n" + FitTrace("", "IndexError: list index out of range") +
                  "\nERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 4 (pid: 9) "
                  "of binary: /usr/bin/python\n");
  EXPECT_EQ(d.signature, "py-index-error");
  EXPECT_EQ(d.rank, 4);
}

TEST(Ends, AnAbortIsExplainedByWhatTheRankSaidBefore) {
  const Diagnosis d = DiagnoseLog(
      "[rank4]:[E ProcessGroupNCCL.cpp:523] [Rank 4] Watchdog caught collective operation timeout: "
      "WorkNCCL(SeqNum=27, OpType=ALLGATHER, NumelIn=1, NumelOut=5, Timeout(ms)=180000) ran for 180001 milliseconds\n"
      "[2026-01-01 10:00:00,000] [ERROR] [launch.py:321:sigkill_handler] ['python', '-u', 'fit.py', "
      "'--local_rank=4'] exits with return code = -6\n");
  EXPECT_EQ(d.signature, "pt-wd-timeout");
}

TEST(Ends, AClosedTerminalIsNotPreemption) {
  const Diagnosis d =
      DiagnoseLog("torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 1\n");
  EXPECT_EQ(d.signature, "py-signal-exception");
  EXPECT_THAT(d.cause, HasSubstr("SIGHUP"));
  EXPECT_EQ(DiagnoseLog("SignalException: Process 77 got signal: 15\n").signature, "preempted");
}

TEST(Words, ALineThatIntroducesATracebackIsNotTheCause) {
  const Diagnosis d = DiagnoseLog(
      "2026-01-01 10:00:00,000 ERROR runner.py:77 -- something went wrong with trial 4\n" +
      FitTrace("", "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task."));
  EXPECT_EQ(d.signature, "ray-worker-died");
}

TEST(Words, TheReasonOfTheSystemBeatsTheLibraryThatMetIt) {
  EXPECT_EQ(
      DiagnoseLog(FitTrace("",
                           "safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 122, kind: "
                           "FilesystemQuotaExceeded, message: \"Disk quota exceeded\" })"))
          .signature,
      "fs-edquot");
}

TEST(Words, AProgramThatReportsErrorsAllAlongGoesOn) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "[ERROR] clip " + std::to_string(i * 3) + " is not available\n" + Words(2);
  }
  EXPECT_EQ(DiagnoseLog(text).verdict, Verdict::kUnknown);
  EXPECT_EQ(DiagnoseLog("[ERROR] clip 3 is not available\n").signature, "error-line");
}

TEST(Words, AnotherWorkingFolderOnTheNodeIsANote) {
  EXPECT_EQ(DiagnoseLog("slurmstepd: error: couldn't chdir to `/w': No such file or directory: going to /tmp instead\n")
                .verdict,
            Verdict::kUnknown);
}

TEST(Ends, ATaskThatNoLongerAnswersIsNamedByThoseWhoMissIt) {
  const Diagnosis d = DiagnoseLog(
      "2026-01-01 10:00:00.100000: E external/xla/coordination_service.cc:954] /job:jax_worker/replica:0/task:37 has "
      "been set to ERROR in coordination service: UNAVAILABLE: Task heartbeat timeout.\n");
  EXPECT_EQ(d.signature, "jax-task-gone");
  EXPECT_EQ(d.rank, 37);
}

TEST(Ends, TheLauncherThatWasInterruptedSaysSo) {
  const Diagnosis d = DiagnoseLog(
      "[2026-01-01 10:00:00,000] [INFO] [launch.py:328:sigkill_handler] Main process received SIGINT, exiting\n");
  EXPECT_EQ(d.verdict, Verdict::kFailure);
  EXPECT_EQ(d.restart, Restart::kYes);
}

TEST(Tracebacks, OfHorovodrunBearTheRankBehindTheDate) {
  const Diagnosis d =
      DiagnoseLog(FitTrace("Fri Sep 25 16:52:51 2026[1]<stderr>:", "KeyError: 'x'") +
                  "Fri Sep 25 16:52:53 2026[0]<stderr>:Horovod has been shut down. This was caused by an exception\n");
  EXPECT_EQ(d.signature, "py-key-error");
  EXPECT_EQ(d.rank, 1);
}

TEST(Numbers, AnEvaluationThatIsNoNumberIsAFailureUntilTheLossIsOneAgain) {
  const std::string bad = "{'eval_loss': nan, 'eval_runtime': 17.6, 'epoch': 1.0}\n";
  EXPECT_EQ(DiagnoseLog(bad + bad).signature, "num-nan");
  EXPECT_EQ(DiagnoseLog(bad + "{'loss': 0.5, 'epoch': 1.1}\n{'loss': 0.4, 'epoch': 1.2}\n").verdict, Verdict::kHealthy);
}

}  // namespace
}  // namespace lockstep::diagnose
