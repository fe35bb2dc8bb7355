#include "track/progress_line.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "record/progress.h"

namespace lockstep::track {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ProgressLineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    read_.reset(ends[0]);
    write_.reset(ends[1]);
  }

  std::string Output() const {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(read_.get(), buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
    return text;
  }

  UniqueFd read_, write_;
  const TimePoint start_ = TimePoint(seconds(1000));
};

TEST(ProgressText, SaysEverythingThatIsKnown) {
  EXPECT_EQ(ProgressText({.step = 120,
                          .loss = 0.01234,
                          .lr = 1e-4,
                          .samples_per_second = 61.52,
                          .data_wait = 0.031,
                          .seconds_per_step = {}},
                         1000, 0.52),
            "step 120/1000 | loss 0.0123 | lr 1.00e-04 | 0.520 s/it | 61.5 samples/s | data wait 3% | ETA 7m38s");
  EXPECT_EQ(ProgressText({.step = 7}, 0, 0), "step 7");
  EXPECT_EQ(ProgressText({.step = 50}, 100, 0.08, 0, "frame"), "frame 50/100 | 12.5 frames/s | ETA 4.0s");
  EXPECT_EQ(ProgressText({.step = 7, .loss = std::nan("")}, 0, 2.5), "step 7 | loss nan | 2.50 s/it");
  EXPECT_EQ(ProgressText({.step = 7, .loss = 1.5e-6}, 0, 0), "step 7 | loss 1.500e-06");
}

TEST(ProgressText, LeavesWholePartsOutWhereThereIsNoRoom) {
  const ProgressValues values{.step = 120, .loss = 0.5, .lr = 1e-4};
  for (size_t columns = 13; columns < 70; ++columns) {
    const std::string text = ProgressText(values, 1000, 0.5, columns);
    EXPECT_LE(text.size(), columns);
    EXPECT_EQ(std::string("step 120/1000 | loss 0.5000 | lr 1.00e-04 | 0.500 s/it | ETA 7m20s").find(text), 0u);
    EXPECT_FALSE(text.ends_with("|") || text.ends_with(" "));
  }
}

TEST(ProgressText, TheLauncherCountsItAsProgress) {
  const ProgressValues values[] = {
      {.step = 1},
      {.step = 12, .loss = 0.5},
      {.step = 120, .loss = 1.5e-7, .lr = 1e-4, .samples_per_second = 9, .data_wait = 0.5, .seconds_per_step = {}},
      {.step = 999, .loss = std::nan("")}};
  for (const ProgressValues& value : values) {
    const std::string text = ProgressText(value, 1000, 0.25);
    std::optional<record::ProgressMark> mark = record::ParseProgress(text);
    ASSERT_TRUE(mark) << text;
    EXPECT_EQ(mark->step, value.step) << text;
    EXPECT_EQ(mark->total, 1000u) << text;
    if (value.loss) {
      EXPECT_EQ(mark->grammar, record::ProgressGrammar::kStepLoss) << text;
      EXPECT_EQ(mark->seconds_per_step, 0.25) << text;
    }
  }
}

TEST_F(ProgressLineTest, WithoutATerminalItIsAPlainLineNowAndThen) {
  {
    ProgressLine line({.total = 100, .fd = write_.get(), .every = seconds(5)});
    for (uint64_t step = 1; step <= 100; ++step)
      line.Update({.step = step, .loss = 0.5}, start_ + step * milliseconds(200));
  }
  const std::string text = Output();
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("\r")));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("\x1b")));
  std::vector<std::string> lines = Split(text, '\n');
  ASSERT_EQ(lines.back(), "");
  lines.pop_back();
  // The first step, one every 25 steps of 0.2 s, and the last.
  ASSERT_EQ(lines.size(), 5u) << text;
  for (size_t i = 0; i < 5; ++i) {
    const uint64_t steps[] = {1, 26, 51, 76, 100};
    EXPECT_TRUE(lines[i].starts_with("step " + std::to_string(steps[i]) + "/100 | loss 0.5000")) << lines[i];
  }
  EXPECT_THAT(lines[1], testing::HasSubstr("| 0.200 s/it | ETA 14.8s"));
}

TEST_F(ProgressLineTest, TheLastStepIsSaidOnceAlsoWhenTrainingEndsEarly) {
  ProgressLine line({.total = 100, .fd = write_.get()});
  line.Update({.step = 1}, start_);
  line.Update({.step = 2}, start_ + milliseconds(1));
  line.Finish();
  line.Finish();
  EXPECT_EQ(Output(), "step 1/100\nstep 2/100 | 0.001 s/it | ETA 98ms\n");
}

TEST_F(ProgressLineTest, WithoutAnyStepNothingIsSaid) {
  ProgressLine({.fd = write_.get()}).Finish();
  EXPECT_EQ(Output(), "");
}

TEST_F(ProgressLineTest, OnATerminalOneLineIsRedrawnAndGoneAtTheEnd) {
  {
    ProgressLine line({.total = 10, .fd = write_.get(), .terminal = true});
    line.Update({.step = 1}, start_);
    line.Update({.step = 2}, start_ + milliseconds(10));  // too soon to redraw
    line.Update({.step = 3}, start_ + milliseconds(200));
    line.Say("validation: 30 dB");
  }
  const std::string text = Output();
  EXPECT_THAT(text, testing::StartsWith("\rstep 1/10\x1b[K\rstep 3/10"));
  EXPECT_THAT(text, testing::HasSubstr("\x1b[K\r\x1b[Kvalidation: 30 dB\n\rstep 3/10"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("step 2/10")));
  EXPECT_THAT(text, testing::EndsWith("\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST_F(ProgressLineTest, ANarrowTerminalNeverWraps) {
  int master = -1, slave = -1;
  winsize size{};
  size.ws_col = 24;
  size.ws_row = 10;
  ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, &size), 0);
  UniqueFd master_fd(master), slave_fd(slave);
  ProgressLine line({.total = 10, .fd = slave});
  line.Update({.step = 1, .loss = 0.5, .lr = 1e-4}, start_);
  char buffer[256];
  const ssize_t n = ::read(master, buffer, sizeof buffer);
  ASSERT_GT(n, 0);
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  if (!dumb) EXPECT_EQ(std::string(buffer, static_cast<size_t>(n)), "\rstep 1/10 | loss 0.5000\x1b[K");
}

TEST_F(ProgressLineTest, TimePerStepFollowsAChangeSmoothly) {
  ProgressLine line({.fd = write_.get()});
  TimePoint now = start_;
  for (uint64_t step = 1; step <= 50; ++step) line.Update({.step = step}, now += milliseconds(100));
  EXPECT_NEAR(line.seconds_per_step(), 0.1, 1e-9);
  line.Update({.step = 51}, now += milliseconds(1100));
  EXPECT_NEAR(line.seconds_per_step(), 0.2, 0.01);
  // A resumed run does not take the steps before it for its own.
  ProgressLine resumed({.total = 2000, .first_step = 1000, .fd = write_.get()});
  resumed.Update({.step = 1001}, now);
  resumed.Update({.step = 1003}, now + milliseconds(400));
  EXPECT_NEAR(resumed.seconds_per_step(), 0.2, 1e-9);
}

TEST_F(ProgressLineTest, AReaderThatHasGoneIsNoDisaster) {
  ::signal(SIGPIPE, SIG_IGN);
  ProgressLine line({.fd = write_.get()});
  read_.reset();
  line.Update({.step = 1}, start_);
  line.Finish();
}

}  // namespace
}  // namespace lockstep::track
