// What the launcher knows of how ranks ended, against what their logs say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "diagnose/diagnosis.h"

namespace lockstep::diagnose {
namespace {

using ::testing::HasSubstr;

Diagnosis DiagnoseEnds(const std::vector<LogText>& logs, std::vector<KnownExit> exits) {
  DiagnoseOptions options;
  options.exits = std::move(exits);
  Result<Diagnosis> found = DiagnoseText(logs, options);
  EXPECT_TRUE(found.ok()) << found.status().ToString();
  return found.ok() ? *found : Diagnosis();
}

std::string Trace(const std::string& exception) {
  return "Traceback (most recent call last):\n  File \"/home/u/train.py\", line 31, in <module>\n    main()\n" +
         exception + "\n";
}

const char kClosed[] =
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:1";

TEST(Ends, ARankThatSomebodyEndedIsNamedNotThoseThatNoticed) {
  const std::vector<LogText> logs = {{.name = "a", .rank = 0, .text = Trace(kClosed)},
                                     {.name = "b", .rank = 1, .text = "hello\n"}};
  const Diagnosis d = DiagnoseEnds(logs, {{.rank = 1, .signal = 15, .time = 10}, {.rank = 0, .code = 1, .time = 11}});
  EXPECT_EQ(d.signature, "exit-sigterm");
  EXPECT_EQ(d.rank, 1);
  // One that the launcher ended itself is no cause.
  const Diagnosis told = DiagnoseEnds(
      logs, {{.rank = 0, .code = 1, .time = 10}, {.rank = 1, .signal = 15, .after_stop = true, .time = 11}});
  EXPECT_NE(told.signature, "exit-sigterm");
}

TEST(Ends, AFailedCommandIsNamedWhenNothingElseIs) {
  const Diagnosis d = DiagnoseEnds(
      {{.name = "b",
        .rank = 1,
        .text = Trace("subprocess.CalledProcessError: Command '['ffmpeg']' returned non-zero exit status 4.")}},
      {{.rank = 1, .code = 1, .time = 10}});
  EXPECT_EQ(d.signature, "py-called-process-error");
  EXPECT_EQ(d.rank, 1);
  EXPECT_THAT(d.cause, HasSubstr("ffmpeg"));
}

TEST(Ends, ARankThatHadFinishedExplainsAClosedConnection) {
  const std::vector<LogText> logs = {{.name = "a", .rank = 0, .text = "done with my part\n"},
                                     {.name = "b", .rank = 1, .text = Trace(kClosed)}};
  const Diagnosis d = DiagnoseEnds(logs, {{.rank = 0, .code = 0, .time = 9}, {.rank = 1, .code = 1, .time = 10}});
  EXPECT_EQ(d.rank, 0);
  EXPECT_THAT(d.cause, HasSubstr("rank 0 had come to its end (exit code 0) while rank 1 still needed it"));
  EXPECT_THAT(d.remedy, HasSubstr("same number of steps"));
  const Diagnosis alone = DiagnoseEnds(logs, {{.rank = 1, .code = 1, .time = 10}});
  EXPECT_EQ(alone.rank, 1);
}

}  // namespace
}  // namespace lockstep::diagnose
