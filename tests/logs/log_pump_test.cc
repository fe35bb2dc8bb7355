#include "logs/log_pump.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <string>
#include <thread>

#include "log_test_tools.h"
#include "sanitized.h"

namespace lockstep::logs {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using namespace std::string_literals;

// A pump whose console is two files, and children that print into it.
class LogPumpTest : public testing::Test {
 protected:
  LogPumpTest() {
    options_.console_out_fd = out_.get();
    options_.console_err_fd = err_.get();
    // A loaded machine must not turn a pause between two writes of one line into a cut.
    options_.hold_partial = std::chrono::hours(1);
  }

  void Start() {
    auto pump = LogPump::Start(options_);
    ASSERT_TRUE(pump.ok()) << pump.status().ToString();
    pump_ = std::move(*pump);
  }

  void Add(Child& child, int rank, int attempt = 0, bool show = true) {
    pump_->Add({.node = 0,
                .rank = rank,
                .local_rank = rank,
                .attempt = attempt,
                .out = child.TakeOut(),
                .err = child.TakeErr(),
                .path = Path(rank),
                .show_out = show,
                .show_err = show});
  }

  // A rank that prints `out` and `err` and ends; returns when all of it is in files and on the console.
  void RunOne(const std::string& out, const std::string& err = "", bool show = true) {
    Start();
    Child child([&] {
      WriteAll(1, out);
      WriteAll(2, err);
      return 0;
    });
    Add(child, 0, 0, show);
    EXPECT_EQ(child.Wait(), 0);
    EXPECT_TRUE(pump_->Detach(0, Soon()));
    EXPECT_TRUE(pump_->FlushConsole(Soon()));
  }

  static Clock::time_point Soon() { return Clock::now() + seconds(60); }
  std::string Path(int rank) const { return folder_ / ("logs/rank-" + std::to_string(rank) + ".log"); }
  std::string Out() const { return ReadAll(folder_ / "out"); }
  std::string Err() const { return ReadAll(folder_ / "err"); }

  Folder folder_;
  UniqueFd out_ = OpenForWriting(folder_ / "out"), err_ = OpenForWriting(folder_ / "err");
  LogPumpOptions options_;
  std::unique_ptr<LogPump> pump_;
};

std::string Flood(size_t bytes) {
  std::string text;
  text.reserve(bytes + 100);
  for (int i = 0; text.size() < bytes; ++i)
    text += "line " + std::to_string(i) + " of a rank that has much to say today\n";
  return text;
}

TEST_F(LogPumpTest, ARankIsCapturedInItsFileAndShownWithItsPrefix) {
  RunOne("hello\nworld\n", "oops\n");
  EXPECT_EQ(Out(), "0:0| hello\n0:0| world\n");
  EXPECT_EQ(Err(), "0:0| oops\n");
  const std::string file = ReadAll(Path(0));
  EXPECT_EQ(file.size(), 17u);
  EXPECT_THAT(file, HasSubstr("hello\nworld\n"));
  EXPECT_THAT(file, HasSubstr("oops\n"));
  EXPECT_TRUE(pump_->Finished(0));
  EXPECT_TRUE(pump_->Finished(99));
  EXPECT_EQ(pump_->Stats().bytes_captured, 17u);
  EXPECT_EQ(pump_->Stats().bytes_stored, 17u);
}

TEST_F(LogPumpTest, AStreamThatIsNotShownIsOnlyInTheFile) {
  RunOne("hello\n", "oops\n", false);
  EXPECT_EQ(Out() + Err(), "");
  EXPECT_EQ(ReadAll(Path(0)).size(), 11u);
}

TEST_F(LogPumpTest, TheFileHoldsTheRawBytes) {
  const std::string raw = "bar 1\rbar 2\rbar 3\n\xff\xfe\0nul\n\x1b[31mred\x1b[0m\r\nno end"s;
  RunOne(raw);
  EXPECT_EQ(ReadAll(Path(0)), raw);
}

TEST_F(LogPumpTest, AnUnfinishedLineReachesTheFileAfterAWhile) {
  options_.hold_partial = milliseconds(20);
  Start();
  Pipe hold;
  Child child([&] {
    hold.write.reset();
    WriteAll(1, "Loading checkpoint");
    char end;
    return ::read(hold.read.get(), &end, 1) == 0 ? 0 : 1;
  });
  Add(child, 0);
  EXPECT_TRUE(Eventually([&] { return ReadAll(Path(0)) == "Loading checkpoint"; }));
  EXPECT_FALSE(pump_->Finished(0));
  EXPECT_EQ(Out(), "") << "the console shows whole lines";
  hold.write.reset();
  EXPECT_TRUE(pump_->Detach(0, Soon()));
  EXPECT_TRUE(pump_->FlushConsole(Soon()));
  EXPECT_EQ(Out(), "0:0| Loading checkpoint\n");
}

TEST_F(LogPumpTest, EightRanksNeverMixTheirLines) {
  Start();
  constexpr int kRanks = 8, kLines = 2000;
  auto line = [](int rank, bool err, int i) {
    return "rank " + std::to_string(rank) + (err ? " err " : " out ") + std::to_string(i) + " " +
           std::string(static_cast<size_t>(i % 97), static_cast<char>('a' + rank)) + "\n";
  };
  std::vector<std::unique_ptr<Child>> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    children.push_back(std::make_unique<Child>([&, rank] {
      for (int i = 0; i < kLines; ++i) {
        // Both streams are always in the middle of a line while the other one writes.
        const std::string o = line(rank, false, i), e = line(rank, true, i);
        WriteAll(1, std::string_view(o).substr(0, o.size() / 2));
        WriteAll(2, std::string_view(e).substr(0, e.size() / 3));
        WriteAll(1, std::string_view(o).substr(o.size() / 2));
        WriteAll(2, std::string_view(e).substr(e.size() / 3));
      }
      return 0;
    }));
    Add(*children.back(), rank);
  }
  for (auto& child : children) EXPECT_EQ(child->Wait(), 0);
  ASSERT_TRUE(pump_->Detach(0, Soon()));
  ASSERT_TRUE(pump_->FlushConsole(Soon()));
  ASSERT_EQ(pump_->Stats().console_lines_skipped, 0u);

  for (bool err : {false, true}) {
    std::map<int, int> next;
    for (const std::string& shown : Lines(err ? Err() : Out())) {
      int rank = -1;
      ASSERT_EQ(sscanf(shown.c_str(), "0:%d| ", &rank), 1) << shown;
      ASSERT_EQ(shown + "\n", "0:" + std::to_string(rank) + "| " + line(rank, err, next[rank]));
      ++next[rank];
    }
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(next[rank], kLines);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    int next[2] = {0, 0};
    for (const std::string& stored : Lines(ReadAll(Path(rank)))) {
      const bool err = stored.find(" err ") != std::string::npos;
      ASSERT_EQ(stored + "\n", line(rank, err, next[err ? 1 : 0]));
      ++next[err ? 1 : 0];
    }
    EXPECT_EQ(next[0], kLines);
    EXPECT_EQ(next[1], kLines);
  }
}

TEST_F(LogPumpTest, AStuckConsoleDoesNotStopARank) {
  Pipe stuck;
  options_.console_out_fd = options_.console_err_fd = stuck.write.get();
  Start();
  const std::string text = Flood(kSanitized ? 10 << 20 : 50 << 20);
  Child child([&] {
    WriteAll(1, text);
    return 0;
  });
  Add(child, 0);
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_TRUE(pump_->Detach(0, Soon()));
  EXPECT_TRUE(ReadAll(Path(0)) == text);
  EXPECT_GT(pump_->Stats().console_lines_skipped, 0u);
  EXPECT_FALSE(pump_->FlushConsole(Clock::now() + milliseconds(50)));
}

TEST_F(LogPumpTest, AConsoleWhoseReaderIsGoneDoesNotStopARank) {
  Pipe gone;
  options_.console_out_fd = gone.write.get();
  gone.read.reset();
  const std::string text = Flood(1 << 20);
  RunOne(text);
  EXPECT_TRUE(ReadAll(Path(0)) == text);
  EXPECT_TRUE(pump_->Stats().console_closed);
}

TEST_F(LogPumpTest, AFullDiskDoesNotStopARank) {
  fs::create_directories(folder_ / "logs");
  fs::create_symlink("/dev/full", Path(0));
  const std::string text = Flood(3 << 20);
  RunOne(text, "", false);
  const LogStats stats = pump_->Stats();
  EXPECT_EQ(stats.bytes_captured, text.size());
  EXPECT_EQ(stats.bytes_lost, text.size());
  EXPECT_EQ(stats.lost_errno, ENOSPC);
  EXPECT_EQ(stats.lost_path, Path(0));
  EXPECT_TRUE(text.ends_with(pump_->Tail(0, 5)));
}

TEST_F(LogPumpTest, ADiskThatHangsDoesNotStopARank) {
  // Opening a named pipe for writing blocks until somebody reads: a disk that does not answer.
  fs::create_directories(folder_ / "logs");
  ASSERT_EQ(::mkfifo(Path(0).c_str(), 0600), 0);
  options_.disk_stall = milliseconds(20);
  Start();
  const std::string text = Flood(20 << 20);
  Child child([&] {
    WriteAll(1, text);
    return 0;
  });
  Add(child, 0, 0, false);
  EXPECT_EQ(child.Wait(), 0);
  // The disk answers again: what was kept is written, the gap is said, nothing is unaccounted for.
  std::string stored;
  std::thread disk([&] {
    UniqueFd fd(::open(Path(0).c_str(), O_RDONLY | O_CLOEXEC));
    std::string buffer(1 << 16, 0);
    ssize_t n;
    while ((n = ::read(fd.get(), buffer.data(), buffer.size())) > 0) {
      stored.append(buffer, 0, static_cast<size_t>(n));
    }
  });
  EXPECT_TRUE(pump_->Detach(0, Soon()));
  disk.join();
  const LogStats stats = pump_->Stats();
  EXPECT_GT(stats.bytes_lost, 0u);
  EXPECT_EQ(stats.lost_errno, ETIMEDOUT);
  EXPECT_EQ(stats.bytes_stored + stats.bytes_lost, text.size());
  EXPECT_NE(stored.find(" bytes lost: disk did not answer]\n"), std::string::npos);
}

TEST_F(LogPumpTest, RotationKeepsEveryByte) {
  options_.rotation = {.bytes = 1 << 20, .keep = 20};
  const std::string text = Flood(8 << 20);
  RunOne(text, "", false);
  const int rotations = static_cast<int>(pump_->Stats().rotations);
  EXPECT_EQ(rotations, static_cast<int>((text.size() - 1) >> 20));
  std::string all;
  for (int n = rotations; n >= 1; --n) all += ReadAll(Path(0) + "." + std::to_string(n));
  EXPECT_TRUE(all + ReadAll(Path(0)) == text);
}

TEST_F(LogPumpTest, AFloodOnBothStreamsKeepsItsLinesWholeOverRotation) {
  options_.rotation = {.bytes = 1 << 20, .keep = 30};
  Start();
  constexpr int kLines = 100000;
  auto line = [](bool err, int i) { return (err ? "err " : "out ") + std::to_string(i) + " of a rank in a hurry\n"; };
  // Blocks of 8 KiB, as buffered programs write them: nearly every one ends inside a line.
  auto flood = [&](int fd) {
    std::string block;
    for (int i = 0; i < kLines; ++i) {
      block += line(fd == 2, i);
      if (block.size() < 8192) continue;
      WriteAll(fd, std::string_view(block).substr(0, 8192));
      block.erase(0, 8192);
    }
    WriteAll(fd, block);
  };
  Child child([&] {
    const pid_t other = ::fork();
    flood(other == 0 ? 2 : 1);
    if (other == 0) ::_exit(0);
    return ::waitpid(other, nullptr, 0) == other ? 0 : 1;
  });
  Add(child, 0, 0, false);
  EXPECT_EQ(child.Wait(), 0);
  ASSERT_TRUE(pump_->Detach(0, Soon()));
  int next[2] = {0, 0};
  for (int n = static_cast<int>(pump_->Stats().rotations); n >= 0; --n) {
    const std::string file = ReadAll(n > 0 ? Path(0) + "." + std::to_string(n) : Path(0));
    EXPECT_LE(file.size(), 1u << 20);
    EXPECT_TRUE(file.ends_with('\n'));
    for (const std::string& stored : Lines(file)) {
      const bool err = stored.starts_with("err ");
      ASSERT_EQ(stored + "\n", line(err, next[err ? 1 : 0]++));
    }
  }
  EXPECT_EQ(next[0], kLines);
  EXPECT_EQ(next[1], kLines);
  EXPECT_GT(pump_->Stats().rotations, 3u);
}

TEST_F(LogPumpTest, AGrandchildThatKeepsThePipeDoesNotHoldUpTheEnd) {
  Start();
  Pipe control;
  Child child([&] {
    control.write.reset();
    WriteAll(1, "done\nand a last word");
    if (::fork() == 0) {
      char end;
      ::_exit(::read(control.read.get(), &end, 1) == 0 ? 0 : 1);  // until the test lets go
    }
    return 0;
  });
  Add(child, 0);
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_FALSE(pump_->Detach(0, Clock::now() + milliseconds(50)));
  EXPECT_TRUE(pump_->Finished(0));
  EXPECT_TRUE(pump_->FlushConsole(Soon()));
  EXPECT_EQ(ReadAll(Path(0)), "done\nand a last word");
  EXPECT_EQ(Out(), "0:0| done\n0:0| and a last word\n");
}

TEST_F(LogPumpTest, TheTailHoldsTheLastLinesWithBarsCollapsed) {
  RunOne("", "\r 1/3\r 2/3\r 3/3\nTraceback (most recent call last):\nValueError: no\n");
  EXPECT_EQ(pump_->Tail(0), " 3/3\nTraceback (most recent call last):\nValueError: no\n");
  EXPECT_EQ(pump_->Tail(0, 1), "ValueError: no\n");
  EXPECT_EQ(pump_->Tail(5), "");
}

TEST_F(LogPumpTest, TheLineAFailureEndsWithIsInTheTailEvenAfterAFlood) {
  RunOne(Flood(5 << 20) + "RuntimeError: CUDA out of memory\n", "", false);
  EXPECT_THAT(pump_->Tail(0), testing::EndsWith("\nRuntimeError: CUDA out of memory\n"));
  EXPECT_LE(pump_->Tail(0).size(), 16384u);
  EXPECT_LE(Lines(pump_->Tail(0)).size(), 64u);
}

TEST_F(LogPumpTest, TheTailIsCompleteAsSoonAsTheRankHasEnded) {
  Start();
  Pipe control;  // somebody else keeps the pipes open, so there is no end of file to wait for
  for (int rank = 0; rank < 50; ++rank) {
    Child child([&] {
      control.write.reset();
      if (::fork() == 0) {
        char end;
        ::_exit(::read(control.read.get(), &end, 1) == 0 ? 0 : 1);
      }
      WriteAll(1, "working\n");
      WriteAll(2, "RuntimeError: the last word of rank " + std::to_string(rank) + "\n");
      return 1;
    });
    Add(child, rank);
    EXPECT_EQ(child.Wait(), 1);
    EXPECT_EQ(pump_->Tail(rank, 1), "RuntimeError: the last word of rank " + std::to_string(rank) + "\n");
  }
  EXPECT_FALSE(pump_->Detach(0, Clock::now()));
}

TEST_F(LogPumpTest, ProgressIsReadFromBarsAndLines) {
  RunOne("{'loss': 1.2, 'learning_rate': 1e-4, 'epoch': 0.1}\n",
         "\r  1%|          | 1/100 [00:01<01:39,  1.00it/s]\r  2%|2         | 2/100 [00:02<01:38,  2.00it/s]");
  const record::ProgressState state = pump_->Progress(0);
  EXPECT_EQ(state.step, 2u);
  EXPECT_EQ(state.total, 100u);
  EXPECT_EQ(state.marks, 3u);
  EXPECT_DOUBLE_EQ(state.seconds_per_step.value_or(0), 0.5);
  EXPECT_FALSE(pump_->Progress(1).any());
}

TEST_F(LogPumpTest, ANewAttemptStartsWithAnEmptyMemory) {
  RunOne("step 1 loss 3\nfirst attempt\n");
  EXPECT_TRUE(pump_->Progress(0).any());
  Child child([] {
    WriteAll(1, "second attempt\n");
    return 0;
  });
  Add(child, 0, 1);
  EXPECT_TRUE(pump_->Detach(1, Soon()));
  EXPECT_EQ(pump_->Tail(0), "second attempt\n");
  EXPECT_FALSE(pump_->Progress(0).any());
}

TEST_F(LogPumpTest, DetachWaitsForItsAttemptOnly) {
  Start();
  Pipe control;
  Child old([&] {
    control.write.reset();
    char end;
    return ::read(control.read.get(), &end, 1) == 0 ? 0 : 1;
  });
  Add(old, 0, 0);
  Child young([] {
    WriteAll(1, "young\n");
    return 0;
  });
  Add(young, 1, 1);
  EXPECT_TRUE(pump_->Detach(1, Soon()));
  EXPECT_EQ(ReadAll(Path(1)), "young\n");
  EXPECT_FALSE(pump_->Finished(0));
  control.write.reset();
  EXPECT_TRUE(pump_->Detach(0, Soon()));
}

TEST_F(LogPumpTest, TheLaunchersWordsNeverLandInsideALine) {
  Start();
  const std::string text = Flood(1 << 20);
  Child child([&] {
    for (size_t at = 0; at < text.size(); at += 5000) WriteAll(1, std::string_view(text).substr(at, 5000));
    return 0;
  });
  Add(child, 0);
  for (int i = 0; i < 200; ++i) pump_->Say("lockstep: word " + std::to_string(i), false);
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_TRUE(pump_->Detach(0, Soon()));
  EXPECT_TRUE(pump_->FlushConsole(Soon()));
  std::string ranks;
  int words = 0;
  for (const std::string& line : Lines(Out())) {
    if (line.starts_with("0:0| line ")) {
      ranks += line.substr(5) + "\n";
    } else {
      EXPECT_EQ(line, "lockstep: word " + std::to_string(words++));
    }
  }
  EXPECT_EQ(words, 200);
  EXPECT_TRUE(ranks == text);
}

TEST_F(LogPumpTest, StoppingInTheMiddleIsClean) {
  Start();
  Child child([] {
    const std::string text = Flood(100000);
    for (;;) {
      if (::write(1, text.data(), text.size()) < 0) return 0;
    }
  });
  Add(child, 0);
  EXPECT_TRUE(Eventually([&] { return pump_->Stats().bytes_captured > 0; }));
  pump_.reset();
  EXPECT_EQ(child.Wait(), -SIGPIPE);
}

}  // namespace
}  // namespace lockstep::logs
