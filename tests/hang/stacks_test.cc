#include "hang/stacks.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "base/process.h"
#include "hang/stacks_python.h"
#include "paths.h"

namespace lockstep::hang {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Functions(const std::vector<StackFrame>& frames) {
  std::vector<std::string> names;
  for (const StackFrame& frame : frames) names.push_back(frame.function);
  return names;
}

TEST(Stacks, ReadsTheJsonOfPySpyWithTheMainThreadFirst) {
  const auto threads = ParsePySpy(R"([
    {"pid": 1, "thread_id": 5, "thread_name": "Thread-1", "os_thread_id": 12, "active": false, "owns_gil": false,
     "frames": [{"name": "wait", "filename": "/usr/lib/python3.11/threading.py", "module": null, "line": 331}]},
    {"pid": 1, "thread_id": 4, "thread_name": "MainThread", "os_thread_id": 11, "active": false, "owns_gil": false,
     "frames": [{"name": "barrier", "filename": "/v/site-packages/torch/distributed/distributed_c10d.py", "line": 5356},
                {"name": "<module>", "filename": "/home/u/train.py", "module": null, "line": 8}]}])");
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_TRUE(threads[0].main);
  EXPECT_EQ(threads[0].tid, 11);
  EXPECT_THAT(Functions(threads[0].python), ElementsAre("barrier", "<module>"));
  EXPECT_EQ(threads[0].python[1].line, 8);
}

TEST(Stacks, ReadsTheTextOfPySpy) {
  const auto threads = ParsePySpyText(
      "Process 17052: python b.py 1\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
      "Thread 17052 (idle): \"MainThread\"\n"
      "    barrier (torch/distributed/distributed_c10d.py:5356)\n"
      "    _exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)\n"
      "    <module> (b.py:8)\n"
      "Thread 17060 (active+gil): \"loader\"\n"
      "    read (data.py:41)\n");
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_EQ(threads[0].tid, 17052);
  EXPECT_THAT(Functions(threads[0].python), ElementsAre("barrier", "_exception_logger.<locals>.wrapper", "<module>"));
  EXPECT_EQ(threads[0].python[2].file, "b.py");
  EXPECT_EQ(threads[1].python[0].line, 41);
}

TEST(Stacks, ReadsGdbWithAndWithoutSources) {
  const auto threads = ParseGdb(
      "[New LWP 102]\n"
      "Thread 2 (Thread 0x7f02a9fff6c0 (LWP 102) \"gloo_tcp_loop\"):\n"
      "#0  0x00007f02b111ee06 in epoll_wait () from /lib/x86_64-linux-gnu/libc.so.6\n"
      "#1  0x00007f02a2b2c1c1 in gloo::transport::tcp::Loop::run() () from /v/torch/lib/libtorch_cpu.so\n"
      "\n"
      "Thread 1 (Thread 0x7f02b18c8b80 (LWP 101) \"python\"):\n"
      "#0  0x00007f02b10ed545 in __GI___clock_nanosleep (clock_id=...) at "
      "../sysdeps/unix/sysv/linux/clock_nanosleep.c:48\n"
      "#1  pysleep (timeout=...) at ./Modules/timemodule.c:2159\n"
      "[Inferior 1 (process 101) detached]\n");
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_TRUE(threads[0].main);
  EXPECT_EQ(threads[0].tid, 101);
  EXPECT_THAT(Functions(threads[0].native), ElementsAre("__GI___clock_nanosleep", "pysleep"));
  EXPECT_EQ(threads[0].native[1].line, 2159);
  EXPECT_EQ(threads[1].native[1].function, "gloo::transport::tcp::Loop::run()");
  EXPECT_THAT(threads[1].native[1].file, HasSubstr("libtorch_cpu"));
}

TEST(Stacks, ReadsEuStack) {
  const auto threads = ParseEuStack(
      "PID 101 - process\nTID 101:\n#0  0x00007f2b0f0c6545 clock_nanosleep\n#1  0x0000563d2f1a5ada time_sleep - "
      "/usr/bin/python3.11\n"
      "TID 102:\n#0  0x00007f2b0f0f7e06 epoll_wait\n");
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_TRUE(threads[0].main);
  EXPECT_THAT(Functions(threads[0].native), ElementsAre("clock_nanosleep", "time_sleep"));
  EXPECT_EQ(threads[0].native[1].file, "/usr/bin/python3.11");
}

TEST(Stacks, TakesTheLastDumpOfPythonsFaultHandlerOutOfALog) {
  const auto threads = ParseFaulthandler(
      "Timeout (0:00:10)!\nThread 0x00007f0000000001 (most recent call first):\n  File \"old.py\", line 1 in f\n"
      "step 3 loss 1.0\n"
      "Fatal Python error: Aborted\n\n"
      "Thread 0x00007f6f3d7fa700 (most recent call first):\n"
      "  File \"/usr/lib/python3.11/threading.py\", line 324 in wait\n"
      "  File \"/usr/lib/python3.11/threading.py\", line 622 in wait\n\n"
      "Current thread 0x00007fa83ae58b80 (most recent call first):\n"
      "  File \"/v/site-packages/torch/distributed/distributed_c10d.py\", line 5356 in barrier\n"
      "  File \"/home/u/train.py\", line 8 in <module>\n\n"
      "Extension modules: numpy._core._multiarray_umath (total: 1)\n");
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_TRUE(threads[0].main);
  EXPECT_THAT(Functions(threads[0].python), ElementsAre("barrier", "<module>"));
  EXPECT_EQ(threads[0].python[0].line, 5356);
}

TEST(Stacks, TextOfAnythingElseGivesNothing) {
  for (const char* text : {"", "{}", "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n",
                           "[1,2]", "Thread", "#0  0x", "\xff\xfe\n\n"}) {
    EXPECT_TRUE(ParsePySpy(text).empty());
    EXPECT_TRUE(ParsePySpyText(text).empty() || ParsePySpyText(text)[0].python.empty());
    EXPECT_TRUE(ParseGdb(text).empty());
    EXPECT_TRUE(ParseEuStack(text).empty());
    EXPECT_TRUE(ParseFaulthandler(text).empty());
  }
}

TEST(Stacks, SurviveTheirJson) {
  ProcessStacks process;
  process.rank = 3;
  process.pid = 77;
  process.notes = {"a note"};
  ThreadStack thread;
  thread.tid = 77;
  thread.main = true;
  thread.state = 'S';
  thread.wchan = "futex_wait";
  thread.python = {{"f", "a.py", 4, "x = 1"}};
  thread.kernel = {"futex_wait+0x1"};
  process.threads = {thread};
  process.children = {process};
  const ProcessStacks back = StacksFromJson(ToJson(process));
  EXPECT_EQ(ToJson(back), ToJson(process));
  EXPECT_EQ(StacksFromJson(nlohmann::json::parse("[1]")).rank, -1);
}

// A real process of a real interpreter; what it says about itself is the reference.
class RealPython : public ::testing::Test {
 protected:
  void Start(const std::string& python, const std::string& script) {
    auto dir = TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_ = std::make_unique<TempDir>(std::move(*dir));
    script_ = *dir_ / name_;
    std::ofstream(script_) << script;
    int fds[2];
    ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
    pid_ = fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      dup2(fds[1], 1);
      execl(python.c_str(), python.c_str(), script_.c_str(), nullptr);
      _exit(127);
    }
    close(fds[1]);
    char ready = 0;
    ASSERT_EQ(read(fds[0], &ready, 1), 1) << python << " did not start";
    close(fds[0]);
    // It said it is about to wait; on a busy machine it gets there later.
    while (!Asleep()) usleep(1000);
  }
  bool Asleep() const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/task")) {
      std::ifstream stat(entry.path() / "stat");
      const std::string line{std::istreambuf_iterator<char>(stat), {}};
      if (line.find(") S ") == std::string::npos) return false;
    }
    return true;
  }
  void TearDown() override {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }

  static std::string Interpreter() {
    if (const char* set = std::getenv("LOCKSTEP_PYTHON")) return set;
    for (const auto& folder : {SourceDir() + "/.venv/bin/python", std::string("/usr/bin/python3")}) {
      if (access(folder.c_str(), X_OK) == 0) return folder;
    }
    return "";
  }

  std::unique_ptr<TempDir> dir_;
  std::string name_ = "stuck.py", script_;
  pid_t pid_ = -1;
};

constexpr char kScript[] = R"(import os, threading

class Thing:
    def method(self, n):
        if n == 0:
            os.write(1, b"x"); gate.acquire()  # line 6
        return self.method(n - 1)

def side():
    done.acquire()  # line 10

gate = threading.Lock(); gate.acquire()
done = threading.Lock(); done.acquire()
threading.Thread(target=side, daemon=True).start()
Thing().method(2)  # line 15
)";

TEST_F(RealPython, FramesAndLinesAreReadFromItsMemory) {
  const std::string python = Interpreter();
  ASSERT_FALSE(python.empty());
  Start(python, kScript);
  auto threads = ReadPythonStacks(pid_);
  ASSERT_TRUE(threads.ok()) << threads.status().ToString();
  const auto main = std::find_if(threads->begin(), threads->end(), [](const auto& thread) { return thread.main; });
  ASSERT_NE(main, threads->end());
  ASSERT_EQ(main->python.size(), 4u);
  EXPECT_THAT(main->python[0].function, HasSubstr("method"));
  EXPECT_EQ(main->python[0].line, 6);
  EXPECT_EQ(main->python[1].line, 7);
  EXPECT_EQ(main->python[3].line, 15);
  EXPECT_EQ(main->python[3].file, script_);
}

TEST_F(RealPython, NamesInAnyAlphabetAreRead) {
  for (const char* name : {"größe.py", "数据.py", "\xf0\x9f\x9a\x80.py"}) {
    name_ = name;
    Start(Interpreter(), kScript);
    auto threads = ReadPythonStacks(pid_);
    ASSERT_TRUE(threads.ok()) << threads.status().ToString();
    const auto main = std::find_if(threads->begin(), threads->end(), [](const auto& thread) { return thread.main; });
    ASSERT_NE(main, threads->end());
    EXPECT_EQ(main->python.back().file, script_);
    TearDown();
    pid_ = -1;
  }
}

TEST_F(RealPython, CollectingTakesFramesOfTheMainThreadAndStopsNothing) {
  Start(Interpreter(), kScript);
  const auto found = CollectStacks({{.rank = 4, .node = 1, .pid = pid_}}, {.pause = false});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 4);
  ASSERT_NE(found[0].main(), nullptr);
  EXPECT_EQ(found[0].main()->python.size(), 4u);
  EXPECT_EQ(found[0].main()->state, 'S');
  EXPECT_THAT(StacksText(found[0]), HasSubstr("stuck.py:6"));
  EXPECT_EQ(ProcessState(pid_), 'S');
}

TEST(Stacks, AProcessThatIsNoPythonIsSaidToBeNone) {
  EXPECT_FALSE(IsPython(getpid()));
  EXPECT_FALSE(ReadPythonStacks(getpid()).ok());
}

TEST(Stacks, AProcessThatIsGoneIsGone) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  const auto found = CollectStacks({{.rank = 0, .pid = child}}, {});
  EXPECT_TRUE(found[0].gone);
}

}  // namespace
}  // namespace lockstep::hang
