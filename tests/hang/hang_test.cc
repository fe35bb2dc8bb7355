// Where ranks stand, on stacks as py-spy, the reader of Python's memory and gdb give them.
#include "hang/hang.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::hang {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kTorch = "/opt/v/lib/python3.11/site-packages/torch/";

ProcessStacks Rank(int rank, std::vector<StackFrame> python, char state = 'S', const std::string& syscall = "futex") {
  ProcessStacks process;
  process.rank = rank;
  process.node = rank / 2;
  process.pid = 100 + rank;
  ThreadStack thread;
  thread.tid = process.pid;
  thread.main = true;
  thread.state = state;
  thread.syscall = syscall;
  thread.python = std::move(python);
  process.threads = {thread};
  return process;
}

ProcessStacks InAllReduce(int rank, int line = 52) {
  return Rank(rank, {{"all_reduce", kTorch + "distributed/distributed_c10d.py", 3151},
                     {"_exception_logger.<locals>.wrapper", kTorch + "distributed/c10d_logger.py", 83},
                     {"train", "/home/u/train.py", line},
                     {"<module>", "/home/u/train.py", 90}});
}

ProcessStacks InDataset(int rank) {
  return Rank(rank,
              {{"Clips.__getitem__", "/home/u/dataset.py", 41},
               {"_MapDatasetFetcher.fetch", kTorch + "utils/data/_utils/fetch.py", 52},
               {"_SingleProcessDataLoaderIter._next_data", kTorch + "utils/data/dataloader.py", 790},
               {"_BaseDataLoaderIter.__next__", kTorch + "utils/data/dataloader.py", 734},
               {"train", "/home/u/train.py", 40}},
              'R', "");
}

TEST(Hang, NamesTheRankInTheDataLoaderWhileTheOthersWait) {
  const auto verdict = JudgeHang({InAllReduce(0), InAllReduce(1), InDataset(2), InAllReduce(3)}, {});
  EXPECT_THAT(verdict.odd, ElementsAre(2));
  EXPECT_THAT(verdict.summary, HasSubstr("rank 2 is in the data loader at dataset.py:41"));
  EXPECT_THAT(verdict.summary, HasSubstr("3 ranks wait in all_reduce"));
  EXPECT_GE(verdict.confidence, 0.8);
}

TEST(Hang, AProcessWithoutAPidIsShownWithoutOne) {
  ProcessStacks gone = InAllReduce(1);
  gone.pid = 0;
  const std::string text = JudgeHang({InDataset(0), gone}, {}).Text();
  EXPECT_THAT(text, HasSubstr("[pid 100]"));
  EXPECT_EQ(text.find("pid 0"), std::string::npos) << text;
}

TEST(Hang, OfTwoRanksTheOneThatDoesNotWaitIsNamed) {
  const auto verdict =
      JudgeHang({Rank(0, {{"barrier", kTorch + "distributed/distributed_c10d.py", 5356}, {"<module>", "/h/b.py", 8}}),
                 Rank(1, {{"<module>", "/h/b.py", 7}}, 'S', "clock_nanosleep")},
                {});
  EXPECT_THAT(verdict.odd, ElementsAre(1));
  EXPECT_THAT(verdict.summary, HasSubstr("rank 1 sleeps at b.py:7"));
  EXPECT_THAT(verdict.summary, HasSubstr("rank 0 waits in barrier"));
}

TEST(Hang, ThoseWhoWaitAreNotToBlameEvenWhenTheyAreFew) {
  const auto verdict = JudgeHang({InAllReduce(0), InDataset(1), InDataset(2), InDataset(3)}, {});
  EXPECT_THAT(verdict.odd, ElementsAre(1, 2, 3));
}

TEST(Hang, AStoppedRankIsNamedWhereverItStands) {
  ProcessStacks stopped = InAllReduce(1);
  stopped.threads[0].state = 'T';
  const auto verdict = JudgeHang({InAllReduce(0), stopped}, {});
  EXPECT_THAT(verdict.odd, ElementsAre(1));
  EXPECT_THAT(verdict.summary, HasSubstr("rank 1 is stopped (SIGSTOP"));
  EXPECT_THAT(verdict.advice, HasSubstr("CONT"));
}

TEST(Hang, UninterruptibleSleepIsTheKernelsFault) {
  const auto verdict = JudgeHang(
      {InAllReduce(0), Rank(1, {{"_save", kTorch + "serialization.py", 900}, {"save", "/h/t.py", 3}}, 'D', "write")},
      {});
  EXPECT_THAT(verdict.odd, ElementsAre(1));
  EXPECT_THAT(verdict.summary, HasSubstr("state D"));
}

TEST(Hang, ARankThatLeftIsWhatTheOthersWaitFor) {
  HangFacts facts;
  facts.ended[3] = "exit code 0";
  const auto verdict = JudgeHang({InAllReduce(0), InAllReduce(1), InAllReduce(2)}, facts);
  EXPECT_THAT(verdict.odd, ElementsAre(3));
  EXPECT_THAT(verdict.summary, HasSubstr("rank 3 has ended (exit code 0)"));
  EXPECT_THAT(verdict.advice, HasSubstr("same number of steps"));
}

TEST(Hang, WhenTheOthersHaveFinishedTheOneThatIsLeftIsNamed) {
  HangFacts facts;
  facts.ended[1] = "exit code 0";
  const auto verdict = JudgeHang({Rank(0, {{"upload", "/h/b.py", 7}}, 'S', "clock_nanosleep")}, facts);
  EXPECT_THAT(verdict.odd, ElementsAre(0));
  EXPECT_THAT(verdict.summary, HasSubstr("rank 0 sleeps at b.py:7 (upload); rank 1 has ended"));
}

TEST(Hang, TheSameCollectiveFromAnotherLineIsADisagreement) {
  const auto verdict = JudgeHang({InAllReduce(0), InAllReduce(1, 77), InAllReduce(2), InAllReduce(3)}, {});
  EXPECT_THAT(verdict.odd, ElementsAre(1));
  EXPECT_THAT(verdict.summary, HasSubstr("train.py:77"));
  EXPECT_THAT(verdict.advice, HasSubstr("different collectives"));
}

TEST(Hang, TwoRanksInDifferentCollectivesAreBothSaidAndNoneBlamed) {
  const auto verdict = JudgeHang(
      {InAllReduce(0), Rank(1, {{"broadcast", kTorch + "distributed/distributed_c10d.py", 2}, {"f", "/h/t.py", 9}})},
      {});
  EXPECT_THAT(verdict.odd, IsEmpty());
  EXPECT_THAT(verdict.summary, HasSubstr("all_reduce"));
  EXPECT_THAT(verdict.summary, HasSubstr("broadcast"));
}

TEST(Hang, AllInTheSameCallBlamesNobodyUnlessStepsOrARecorderTell) {
  const std::vector<ProcessStacks> all = {InAllReduce(0), InAllReduce(1), InAllReduce(2)};
  EXPECT_THAT(JudgeHang(all, {}).odd, IsEmpty());
  EXPECT_THAT(JudgeHang(all, {}).advice, HasSubstr("network"));
  HangFacts steps;
  steps.steps = {{0, 9}, {1, 8}, {2, 9}};
  EXPECT_THAT(JudgeHang(all, steps).odd, ElementsAre(1));
  HangFacts recorder;
  recorder.collective = {
      {0, "all_reduce #12 (started)"}, {1, "all_reduce #12 (started)"}, {2, "all_reduce #11 (completed)"}};
  EXPECT_THAT(JudgeHang(all, recorder).odd, ElementsAre(2));
}

TEST(Hang, NativeFramesTellTheSame) {
  ProcessStacks waits = Rank(0, {});
  waits.threads[0].native = {{"epoll_wait", "/lib/libc.so.6", 0},
                             {"gloo::transport::tcp::UnboundBuffer::waitRecv", "/v/torch/lib/libtorch_cpu.so", 0},
                             {"gloo::barrier", "/v/torch/lib/libtorch_cpu.so", 0}};
  ProcessStacks sleeps = Rank(1, {});
  sleeps.threads[0].native = {{"__GI___clock_nanosleep", "clock_nanosleep.c", 48}, {"pysleep", "timemodule.c", 2159}};
  const auto verdict = JudgeHang({waits, sleeps}, {});
  EXPECT_THAT(verdict.odd, ElementsAre(1));
  EXPECT_EQ(verdict.places[0].where, Where::kCollective);
  EXPECT_EQ(verdict.places[1].where, Where::kSleep);
}

TEST(Hang, ANativeLockIsOneOnlyOutsideOfACollectiveAndHasTheLineOfTheProgram) {
  ProcessStacks locked = Rank(0, {});
  locked.threads[0].native = {{"futex_wait", "../sysdeps/nptl/futex-internal.h", 146},
                              {"___pthread_mutex_lock", "./nptl/pthread_mutex_lock.c", 93},
                              {"load_batch", "/home/u/loader.c", 4},
                              {"main", "/home/u/loader.c", 20}};
  EXPECT_EQ(Locate(locked).words, "waits for a lock");
  EXPECT_EQ(Locate(locked).at, "loader.c:4 (load_batch)");
  ProcessStacks collective = Rank(1, {});
  collective.threads[0].native = {{"__pthread_cond_wait", "./nptl/pthread_cond_wait.c", 618},
                                  {"gloo::transport::tcp::UnboundBuffer::waitRecv", "/v/torch/lib/libtorch_cpu.so", 0}};
  EXPECT_EQ(Locate(collective).where, Where::kCollective);
}

TEST(Hang, ALoaderWhoseWorkerIsStuckShowsTheWorkersLine) {
  ProcessStacks rank =
      Rank(1, {{"_poll", "/usr/lib/python3.11/multiprocessing/connection.py", 429},
               {"_MultiProcessingDataLoaderIter._try_get_data", kTorch + "utils/data/dataloader.py", 1284},
               {"train", "/home/u/train.py", 40}});
  ProcessStacks worker = InDataset(-1);
  worker.pid = 555;
  rank.children = {worker};
  const auto verdict = JudgeHang({InAllReduce(0), rank}, {});
  EXPECT_THAT(verdict.odd, ElementsAre(1));
  EXPECT_THAT(verdict.summary, HasSubstr("data loader at dataset.py:41"));
  EXPECT_THAT(verdict.summary, HasSubstr("worker pid 555"));
}

TEST(Hang, ABackwardThatSleepsWaitsForTheGradientsOfTheOthers) {
  const std::vector<StackFrame> backward = {{"_engine_run_backward", kTorch + "autograd/graph.py", 979},
                                            {"backward", kTorch + "autograd/__init__.py", 395},
                                            {"Tensor.backward", kTorch + "_tensor.py", 623},
                                            {"step", "/h/ddp.py", 9}};
  const auto verdict = JudgeHang(
      {Rank(0, backward), Rank(1, {{"data", "/h/ddp.py", 14}}, 'S', "clock_nanosleep"), Rank(2, backward)}, {});
  EXPECT_THAT(verdict.odd, ElementsAre(1));
  EXPECT_THAT(verdict.summary, HasSubstr("wait in backward"));
  EXPECT_EQ(Locate(Rank(0, backward, 'R', "")).where, Where::kCode) << "one that computes does not wait";
}

TEST(Hang, ACallIntoCIsKnownByTheTextOfItsLine) {
  const std::pair<const char*, Where> rows[] = {{"work.wait()", Where::kCollective},
                                                {"store.wait(['k'])", Where::kRendezvous},
                                                {"total += loss.item()", Where::kDevice},
                                                {"with self.lock:", Where::kLock},
                                                {"x = f(y)", Where::kCode}};
  for (const auto& [text, where] : rows) {
    EXPECT_EQ(Locate(Rank(0, {{"step", "/h/t.py", 9, text}})).where, where) << text;
  }
  EXPECT_EQ(Locate(Rank(0, {{"step", "/h/t.py", 9, "work.wait()"}}, 'R', "")).where, Where::kCode);
}

const std::string kLib = "/opt/v/lib/python3.11/";

TEST(Hang, WhatTheUserCallsAFunctionOrAFolderSaysNothing) {
  // Functions and folders named like a collective or a library, on a rank that runs code of its own.
  for (const StackFrame& frame : std::vector<StackFrame>{{"all_reduce_metrics", "/home/u/train.py", 9},
                                                         {"barrier_penalty", "/home/u/distributed/loss.py", 9},
                                                         {"parse", "/data/requests/train.py", 9},
                                                         {"parse", "/home/u/webdataset-test/train.py", 9},
                                                         {"parse", "/jobs/torch/train.py", 9}}) {
    const RankPosition place = Locate(Rank(0, {frame, {"<module>", frame.file, 30}}, 'R', ""));
    EXPECT_EQ(place.where, Where::kCode) << frame.file;
    EXPECT_THAT(place.at, HasSubstr(":9 (" + frame.function)) << frame.file;
  }
}

TEST(Hang, WhatCalledTheUsersCodeIsNotWhereItStands) {
  // A process of multiprocessing and an event loop that runs the user's code.
  for (const StackFrame& caller : std::vector<StackFrame>{{"BaseProcess.run", kLib + "multiprocessing/process.py", 108},
                                                          {"run", kLib + "asyncio/runners.py", 118},
                                                          {"all_reduce", kTorch + "distributed/x.py", 1}}) {
    const std::vector<StackFrame> frames = {{"work", "/h/t.py", 4}, caller, {"<module>", "/h/t.py", 9}};
    EXPECT_EQ(Locate(Rank(0, frames, 'R', "")).where, Where::kCode) << caller.file;
    EXPECT_EQ(Locate(Rank(0, frames, 'S', "clock_nanosleep")).where, Where::kSleep) << caller.file;
  }
}

TEST(Hang, AWaitIsCalledByWhatIsWaitedFor) {
  const StackFrame wait = {"Condition.wait", kLib + "threading.py", 320};
  const std::pair<StackFrame, const char*> rows[] = {
      {{"Queue.get", kLib + "queue.py", 171}, "waits for a queue"},
      {{"Future.result", kLib + "concurrent/futures/_base.py", 451}, "waits for a future"},
      {{"ApplyResult.get", kLib + "multiprocessing/pool.py", 768}, "waits for a process"},
      {{"Event.wait", kLib + "threading.py", 622}, "waits for a lock"}};
  for (const auto& [frame, words] : rows) {
    EXPECT_EQ(Locate(Rank(0, {wait, frame, {"f", "/h/t.py", 9}})).words, words);
  }
  const RankPosition loop = Locate(Rank(0,
                                        {{"EpollSelector.select", kLib + "selectors.py", 468},
                                         {"BaseEventLoop.run_forever", kLib + "asyncio/base_events.py", 604},
                                         {"<module>", "/h/t.py", 9}},
                                        'S', "epoll_wait"));
  EXPECT_EQ(loop.words, "waits for an event of asyncio");
}

TEST(Hang, ACallThatSleepsIsCalledByItsSystemCallNotRunning) {
  const std::tuple<const char*, const char*, Where, const char*> rows[] = {
      {"wait4", "do_wait", Where::kLock, "waits for a child process"},
      {"flock", "", Where::kLock, "waits for a file lock"},
      {"pause", "", Where::kLock, "waits for a signal"},
      {"openat", "wait_for_partner", Where::kLock, "waits for a pipe"},
      {"read", "n_tty_read", Where::kLock, "waits for a terminal"},
      {"poll", "", Where::kLock, "waits for an event"},
      {"accept4", "", Where::kNetwork, "waits for the network"},
      {"futex", "", Where::kCode, "waits in native code"}};
  for (const auto& [call, wchan, where, words] : rows) {
    ProcessStacks rank = Rank(0, {{"f", "/h/t.py", 9, "with open(path) as f:"}}, 'S', call);
    if (std::string(call) == "futex") rank.threads[0].python[0].source = "f(x)";
    rank.threads[0].wchan = wchan;
    const RankPosition place = Locate(rank);
    EXPECT_EQ(place.where, where) << call;
    EXPECT_EQ(place.words, words) << call;
  }
}

TEST(Hang, ASleepOfAnOldPythonIsASleep) {
  EXPECT_EQ(Locate(Rank(0, {{"f", "/h/t.py", 9, "time.sleep(1000)"}}, 'S', "select")).where, Where::kSleep);
  EXPECT_EQ(Locate(Rank(0, {{"f", "/h/t.py", 9, "select.select([r], [], [])"}}, 'S', "select")).where, Where::kLock);
}

TEST(Hang, AProgramThatWasInstalledHasItsLinesToo) {
  const RankPosition place = Locate(Rank(0,
                                         {{"load", kLib + "json/__init__.py", 3},
                                          {"read", "/opt/v/lib/python3.11/site-packages/mytrainer/data.py", 17},
                                          {"<module>", "<frozen runpy>", 88}},
                                         'R', ""));
  EXPECT_EQ(place.at, "data.py:17 (read)");
}

TEST(Hang, WhoWaitsForAProcessOrAThreadSaysWhereThatOneIs) {
  const std::vector<StackFrame> pool = {{"Condition.wait", kLib + "threading.py", 320},
                                        {"ApplyResult.get", kLib + "multiprocessing/pool.py", 768},
                                        {"<module>", "/h/t.py", 13}};
  ProcessStacks rank = Rank(1, pool);
  // One idle worker, which shows only what it inherited from its parent, and one at work.
  ProcessStacks idle = Rank(-1, {{"worker", kLib + "multiprocessing/pool.py", 114}, {"<module>", "/h/t.py", 12}});
  ProcessStacks busy = Rank(-1, {{"decode", "/h/t.py", 5}, {"<module>", "/h/t.py", 12}}, 'S', "clock_nanosleep");
  idle.pid = 71;
  busy.pid = 72;
  rank.children = {idle, busy};
  EXPECT_EQ(Locate(rank).at, "t.py:13, its child pid 72 sleeps at t.py:5 (decode)");

  ProcessStacks shell = Rank(1, {{"<module>", "/h/t.py", 13}}, 'S', "wait4");
  ProcessStacks program = Rank(-1, {}, 'S', "poll");
  program.pid = 73;
  program.command = "ffmpeg -i a.mp4";
  shell.children = {program};
  EXPECT_EQ(Locate(shell).at, "t.py:13, its child pid 73 is ffmpeg -i a.mp4");

  ProcessStacks threads = Rank(1, {{"Thread.join", kLib + "threading.py", 1119}, {"<module>", "/h/t.py", 13}});
  ThreadStack other;
  other.python = {{"fetch", "/h/t.py", 4}};
  threads.threads.push_back(other);
  EXPECT_EQ(Locate(threads).at, "t.py:13, its other thread is at t.py:4 (fetch)");
}

TEST(Hang, AMainThreadThatWaitsForACollectiveOfAnotherThreadWaitsForTheOthers) {
  const auto joins = [](int rank, std::vector<StackFrame> frames) {
    ProcessStacks process = Rank(rank, {{"Thread.join", kLib + "threading.py", 1119}, {"<module>", "/h/t.py", 13}});
    ThreadStack other;
    other.python = std::move(frames);
    process.threads.push_back(other);
    return process;
  };
  const auto verdict =
      JudgeHang({joins(0, {{"bg", "/h/t.py", 4}}),
                 joins(1, {{"all_reduce", kTorch + "distributed/distributed_c10d.py", 3151}, {"bg", "/h/t.py", 5}})},
                {});
  EXPECT_THAT(verdict.odd, ElementsAre(0));
  EXPECT_THAT(verdict.summary, HasSubstr("rank 1 waits in all_reduce at t.py:5 (bg), in another thread"));
}

TEST(Hang, OfAnotherLauncherInsideOursTheProcessBelowIsNamed) {
  ProcessStacks rank = Rank(0,
                            {{"_invoke_run", kTorch + "distributed/elastic/agent/server/api.py", 910},
                             {"main", kTorch + "distributed/run.py", 900},
                             {"<module>", "/opt/v/bin/torchrun", 8}},
                            'S', "clock_nanosleep");
  ProcessStacks waits = InAllReduce(-1), busy = Rank(-1, {{"preprocess", "/h/t.py", 5}}, 'R', "");
  busy.pid = 72;
  rank.children = {waits, busy};
  const RankPosition place = Locate(rank);
  EXPECT_EQ(place.words, "waits for a process");
  EXPECT_THAT(place.at, HasSubstr("its child pid 72 is in its own code at t.py:5 (preprocess)"));
}

TEST(Hang, WhenAllReceiveNobodySends) {
  const auto receives = [](int rank, int line) {
    return Rank(rank, {{"recv", kTorch + "distributed/distributed_c10d.py", 2}, {"f", "/h/t.py", line}});
  };
  EXPECT_THAT(JudgeHang({receives(0, 9), receives(1, 10)}, {}).advice, HasSubstr("nobody sends"));
}

TEST(Hang, AnMpiThatAsksAgainAndAgainWaitsAllTheSame) {
  EXPECT_EQ(Locate(Rank(0, {{"f", "/h/t.py", 9, "comm.Barrier()"}}, 'R', "")).where, Where::kCollective);
  EXPECT_EQ(Locate(Rank(0, {{"f", "/h/t.py", 9, "barrier(x)"}}, 'R', "")).where, Where::kCode);
}

TEST(Hang, AShellAroundTheProgramStandsWhereTheProgramStands) {
  ProcessStacks shell = Rank(0, {}, 'S', "wait4");
  shell.children = {InAllReduce(-1)};
  EXPECT_EQ(Locate(shell).where, Where::kCollective);
}

TEST(Hang, WithoutAnyFrameTheKernelsWordIsGivenAndNothingIsClaimed) {
  const auto verdict = JudgeHang({Rank(0, {}, 'S', "futex"), Rank(1, {}, 'S', "futex")}, {});
  EXPECT_THAT(verdict.odd, IsEmpty());
  EXPECT_THAT(verdict.summary, HasSubstr("sleep"));
  EXPECT_LE(verdict.confidence, 0.5);
}

TEST(Hang, RanksThatAreAllAtOneLineAreNotToldThatTheyDiffer) {
  const auto sleeps = [](int rank) { return Rank(rank, {{"f", "/h/t.py", 9}}, 'S', "clock_nanosleep"); };
  EXPECT_THAT(JudgeHang({sleeps(0), sleeps(1)}, {}).advice, HasSubstr("look at that line"));
  EXPECT_THAT(JudgeHang({sleeps(0)}, {}).advice, HasSubstr("look at that line"));
  EXPECT_THAT(JudgeHang({sleeps(0), InAllReduce(1)}, {}).advice, HasSubstr("the others do not"));
}

// As PyTorch 2.13 on Gloo leaves it: an asynchronous all_reduce is not waited for, the other rank has left.
TEST(Hang, ARankInTheTeardownOfItsProcessGroupIsToldHowToEnd) {
  ProcessStacks leaving = Rank(0, {});
  ThreadStack gloo;
  gloo.name = "pt_gloo_runloop";
  leaving.threads.push_back(gloo);
  EXPECT_NE(Locate(leaving).where, Where::kTeardown) << "nobody could look into it";
  leaving.notes = {"no Python frames: no Python frames found in pid 100 (/usr/lib/libpython3.11.so.1.0)"};
  HangFacts facts;
  facts.ended = {{1, "exit code 0"}};
  const auto verdict = JudgeHang({leaving}, facts);
  EXPECT_THAT(verdict.odd, ElementsAre(0));
  EXPECT_THAT(verdict.summary, HasSubstr("rank 0 is at its exit, in the teardown of its process group"));
  EXPECT_THAT(verdict.summary, HasSubstr("rank 1 has ended (exit code 0)"));
  EXPECT_THAT(verdict.advice, HasSubstr("dist.destroy_process_group()"));
  leaving.notes.clear();
  leaving.threads[0].native = {{"futex_wait", "/lib/libc.so.6"}, {"Py_FinalizeEx", "/usr/lib/libpython3.11.so"}};
  EXPECT_EQ(Locate(leaving).where, Where::kTeardown);
}

TEST(Hang, NoRanksAreAnAnswerToo) { EXPECT_THAT(JudgeHang({}, {}).summary, HasSubstr("no rank")); }

TEST(Hang, ManyRanksAreWrittenAsRanges) {
  std::vector<ProcessStacks> all;
  for (int i = 0; i < 64; ++i) all.push_back(i == 13 ? InDataset(i) : InAllReduce(i));
  const auto verdict = JudgeHang(all, {});
  EXPECT_THAT(verdict.odd, ElementsAre(13));
  EXPECT_THAT(verdict.summary, HasSubstr("63 ranks wait in all_reduce"));
  EXPECT_THAT(verdict.Text(), HasSubstr("ranks 0-12, 14-63"));
}

}  // namespace
}  // namespace lockstep::hang
