#include "logs/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "log_test_tools.h"
#include "logs/log_view.h"

namespace lockstep::logs {
namespace {

using testing::HasSubstr;
using namespace std::string_literals;

Clock::time_point Soon() { return Clock::now() + seconds(60); }

// A console whose two descriptors are two files.
struct Screen {
  Folder folder;
  UniqueFd out = OpenForWriting(folder / "out"), err = OpenForWriting(folder / "err");
  ConsoleOptions options{.fd = {out.get(), err.get()}};
  std::string Out() const { return ReadAll(folder / "out"); }
  std::string Err() const { return ReadAll(folder / "err"); }
};

struct View {
  explicit View(Console& console, LogView::Look look, std::string file = "") {
    view = std::make_unique<LogView>(&console, &scratch, console.AddSource(look.rank, std::move(file)), look);
  }
  std::string scratch;
  std::unique_ptr<LogView> view;
  LogView* operator->() const { return view.get(); }
};

TEST(Console, SendsStdoutAndStderrWhereTheyBelong) {
  Screen screen;
  Console console(screen.options);
  const int rank = console.AddSource(0, "file");
  console.Write(rank, false, "out\n", 1);
  console.Write(rank, true, "err\n", 1);
  console.Say("a word of the launcher", true);
  ASSERT_TRUE(console.Flush(Soon()));
  EXPECT_EQ(screen.Out(), "out\n");
  EXPECT_EQ(screen.Err(), "err\na word of the launcher\n");
}

TEST(Console, KeepsOneOrderWhenBothLeadToTheSamePlace) {
  Screen screen;
  UniqueFd again = OpenForWriting(screen.folder / "out");
  screen.options.fd[1] = again.get();
  Console console(screen.options);
  const int rank = console.AddSource(0, "file");
  std::string want;
  for (int i = 0; i < 2000; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    console.Write(rank, i % 2 == 1, line, 1);
    want += line;
  }
  ASSERT_TRUE(console.Flush(Soon()));
  EXPECT_EQ(screen.Out(), want);
}

TEST(Console, AStuckReaderCostsLinesNotTimeAndIsToldWhenItReturns) {
  Pipe pipe;
  UniqueFd null = OpenForWriting("/dev/null");
  Console console({.fd = {pipe.write.get(), null.get()}, .queue = 64 << 10});
  const int rank = console.AddSource(7, "logs/rank-7.log");
  constexpr int kLines = 50000;
  for (int i = 0; i < kLines; ++i) console.Write(rank, false, "0:7| a line of thirty-two bytes!\n", 1);
  const uint64_t skipped = console.skipped();
  EXPECT_GT(skipped, 0u);
  EXPECT_FALSE(console.closed());

  std::string text;
  std::thread reader([&] {
    char buffer[65536];
    ssize_t n;
    while ((n = ::read(pipe.read.get(), buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<size_t>(n));
  });
  EXPECT_TRUE(console.Flush(Soon()));
  pipe.write.reset();
  reader.join();
  uint64_t shown = 0;
  std::vector<std::string> other;
  for (const std::string& line : Lines(text)) {
    if (line == "0:7| a line of thirty-two bytes!") {
      ++shown;
    } else {
      other.push_back(line);
    }
  }
  EXPECT_EQ(shown + skipped, static_cast<uint64_t>(kLines));
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0], "lockstep: console was slow: " + std::to_string(skipped) +
                          " lines of rank 7 not shown; they are in logs/rank-7.log");
}

TEST(Console, AQuietRankIsHeardBesideAFloodingOne) {
  Pipe pipe;
  UniqueFd null = OpenForWriting("/dev/null");
  Console console({.fd = {pipe.write.get(), null.get()}, .queue = 64 << 10});
  const int loud = console.AddSource(0, "loud.log"), quiet = console.AddSource(1, "quiet.log");
  std::string batch;
  for (int i = 0; i < 500; ++i) batch += "0:0| noise noise noise\n";
  for (int i = 0; i < 50; ++i) console.Write(loud, false, batch, 500);
  console.Write(quiet, false, "0:1| the one thing that matters\n", 1);
  console.Say("lockstep: rank 0 is loud", false);
  std::string text;
  std::thread reader([&] {
    char buffer[65536];
    ssize_t n;
    while ((n = ::read(pipe.read.get(), buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<size_t>(n));
  });
  EXPECT_TRUE(console.Flush(Soon()));
  pipe.write.reset();
  reader.join();
  EXPECT_THAT(text, HasSubstr("\n0:1| the one thing that matters\n"));
  EXPECT_THAT(text, HasSubstr("\nlockstep: rank 0 is loud\n"));
  EXPECT_THAT(text, HasSubstr(" of rank 0 not shown"));
  EXPECT_THAT(text, testing::Not(HasSubstr(" of rank 1 not shown")));
}

TEST(Console, FlushGivesUpOnAStuckConsole) {
  Pipe pipe;
  UniqueFd null = OpenForWriting("/dev/null");
  Console console({.fd = {pipe.write.get(), null.get()}});
  const int rank = console.AddSource(0, "");
  console.Write(rank, false, std::string(1 << 20, 'x') + "\n", 1);
  EXPECT_FALSE(console.Flush(Clock::now() + milliseconds(50)));
}

TEST(Console, AGoneReaderIsNoticedAndKillsNobody) {
  Pipe pipe;
  Screen screen;
  screen.options.fd[0] = pipe.write.get();
  Console console(screen.options);
  pipe.read.reset();
  const int rank = console.AddSource(0, "");
  console.Write(rank, false, "nobody reads this\n", 1);
  console.Write(rank, true, "somebody reads this\n", 1);
  EXPECT_TRUE(Eventually([&] { return console.closed(); }));
  EXPECT_TRUE(console.Flush(Soon()));
  EXPECT_EQ(screen.Err(), "somebody reads this\n");
}

TEST(Console, AStatusIsATransientLineOnATerminal) {
  Screen screen;
  screen.options.terminal[1] = true;
  Console console(screen.options);
  console.SetStatus("waiting for 2 of 8 nodes");
  ASSERT_TRUE(Eventually([&] { return screen.Err().find("waiting") != std::string::npos; }));
  console.Say("node 3 joined", true);
  ASSERT_TRUE(console.Flush(Soon()));
  EXPECT_THAT(screen.Err(), testing::StartsWith("\r\x1b[Kwaiting for 2 of 8 nodes\r\x1b[Knode 3 joined\n"));
}

TEST(Console, AStatusIsAThinnedLineElsewhere) {
  Screen screen;
  Console console(screen.options);
  console.SetStatus("1 of 8");
  ASSERT_TRUE(Eventually([&] { return screen.Err() == "1 of 8\n"; }));
  for (int i = 2; i < 8; ++i) console.SetStatus(std::to_string(i) + " of 8");
  console.Say("go", true);
  ASSERT_TRUE(console.Flush(Soon()));
  EXPECT_EQ(screen.Err(), "1 of 8\ngo\n");
}

TEST(Console, ATransientLineNeverWraps) {
  Screen screen;
  screen.options.terminal[1] = true;
  Console console(screen.options);
  console.SetStatus("ä" + std::string(500, 'x'));
  ASSERT_TRUE(Eventually([&] { return !screen.Err().empty(); }));
  EXPECT_EQ(screen.Err(), "\r\x1b[Kä" + std::string(78, 'x'));
}

TEST(LogView, PutsThePrefixBeforeEveryLine) {
  Screen screen;
  Console console(screen.options);
  View view(console, {.node = 1, .rank = 9});
  view->Feed("one\ntw", Clock::now());
  view->Feed("o\n\nrest", Clock::now());
  view->End(Clock::now());
  ASSERT_TRUE(console.Flush(Soon()));
  EXPECT_EQ(screen.Out(), "1:9| one\n1:9| two\n1:9| \n1:9| rest\n");
}

TEST(LogView, ColoursThePrefixOnly) {
  Screen screen;
  Console console(screen.options);
  View a(console, {.rank = 0, .colour = true}), b(console, {.rank = 1, .colour = true});
  a->Feed("x\n", Clock::now());
  b->Feed("x\n", Clock::now());
  ASSERT_TRUE(console.Flush(Soon()));
  EXPECT_EQ(screen.Out(), "\x1b[36m0:0|\x1b[0m x\n\x1b[33m0:1|\x1b[0m x\n");
}

TEST(LogView, ABarIsThinnedToLinesWhereThereIsNoTerminal) {
  Screen screen;
  Console console(screen.options);
  View view(console, {.bar_interval = seconds(5)});
  const auto t0 = Clock::now();
  for (int i = 0; i <= 100; ++i) view->Feed("\r" + std::to_string(i) + "%", t0 + milliseconds(200) * i);
  view->Feed("\nend\n", t0 + seconds(21));
  ASSERT_TRUE(console.Flush(Soon()));
  // A state is known to be complete when the next one begins.
  EXPECT_EQ(screen.Out(), "0:0| 0%\n0:0| 25%\n0:0| 50%\n0:0| 75%\n0:0| 100%\n0:0| end\n");
}

TEST(LogView, ABarIsRewrittenInPlaceOnATerminal) {
  Screen screen;
  screen.options.terminal[1] = true;
  screen.options.redraw = milliseconds(0);
  Console console(screen.options);
  View view(console, {.rank = 2, .err = true, .terminal = true});
  view->Feed("\r 50%|##", Clock::now());
  ASSERT_TRUE(Eventually([&] { return screen.Err() == "\r\x1b[K0:2|  50%|##"; })) << screen.Err();
  view->Feed("\r100%|####\n", Clock::now());
  ASSERT_TRUE(console.Flush(Soon()));
  EXPECT_THAT(screen.Err(), HasSubstr("\r\x1b[K0:2| 100%|####\n"));
  EXPECT_EQ(Lines(screen.Err()).size(), 1u) << "only the final state is a line of its own";
}

TEST(LogView, WindowsLineEndsAreNotBars) {
  Screen screen;
  Console console(screen.options);
  View view(console, {});
  view->Feed("a\r\nb\r", Clock::now());
  view->Feed("\nc\n", Clock::now());
  ASSERT_TRUE(console.Flush(Soon()));
  EXPECT_EQ(screen.Out(), "0:0| a\n0:0| b\n0:0| c\n");
}

TEST(LogView, AVeryLongLineIsShownInMarkedPiecesHoweverItArrives) {
  const std::string line = std::string(LogView::kLongest, 'a') + std::string(LogView::kLongest, 'b') + "tail";
  const std::string want = "0:0| " + std::string(LogView::kLongest, 'a') + "\n0:0+ " +
                           std::string(LogView::kLongest, 'b') + "\n0:0+ tail\n0:0| next\n";
  for (size_t piece : {size_t{1} << 20, size_t{1000}, size_t{LogView::kLongest}, size_t{77777}}) {
    Screen screen;
    Console console(screen.options);
    View view(console, {});
    const std::string text = line + "\nnext\n";
    for (size_t at = 0; at < text.size(); at += piece)
      view->Feed(std::string_view(text).substr(at, piece), Clock::now());
    ASSERT_TRUE(console.Flush(Soon()));
    EXPECT_TRUE(screen.Out() == want) << "pieces of " << piece << ": " << screen.Out().size() << " bytes";
  }
}

TEST(LogView, BinaryGarbagePassesThrough) {
  Screen screen;
  Console console(screen.options);
  View view(console, {});
  view->Feed("\xff\x00\xfe\n"s, Clock::now());
  ASSERT_TRUE(console.Flush(Soon()));
  EXPECT_EQ(screen.Out(), "0:0| \xff\x00\xfe\n"s);
}

}  // namespace
}  // namespace lockstep::logs
