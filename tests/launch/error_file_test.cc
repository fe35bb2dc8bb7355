#include "launch/error_file.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "base/files.h"

namespace lockstep::launch {
namespace {

TEST(ErrorFile, TheFirstFailureIsWrittenAsPyTorchReadsIt) {
  RankExit raised;
  raised.code = 1;
  raised.error_message = "ValueError: no";
  raised.error_detail = "Traceback (most recent call last): ...";
  raised.error_time = 1700000000;
  EXPECT_EQ(ErrorFileJson("rank 1 failed first", &raised, 1800000000),
            Json::parse(R"({"message": {"message": "ValueError: no", "errorCode": 1, "extraInfo":
              {"py_callstack": "Traceback (most recent call last): ...", "timestamp": "1700000000"}}})"));
  raised.error_hint = "say yes";
  EXPECT_EQ(ErrorFileJson("", &raised, 1800000000)["message"]["extraInfo"]["hint"], "say yes");
  RankExit killed;
  killed.signal = SIGKILL;
  killed.time = 1700000001.5;
  EXPECT_EQ(ErrorFileJson("rank 2 failed first: SIGKILL", &killed, 1800000000),
            Json::parse(R"({"message": {"message": "rank 2 failed first: SIGKILL", "errorCode": -9, "extraInfo":
              {"py_callstack": "", "timestamp": "1700000001"}}})"));
  EXPECT_EQ(ErrorFileJson("lost node 1", nullptr, 1800000000),
            Json::parse(R"({"message": {"message": "lost node 1", "extraInfo":
              {"py_callstack": "", "timestamp": "1800000000"}}})"));
}

TEST(ErrorFile, AnOldFileIsReplacedAndNoPathWritesNothing) {
  auto dir = TempDir::Create("error-file");
  ASSERT_TRUE(dir.ok());
  const std::string path = *dir / "error.json";
  ASSERT_TRUE(WriteFileAtomic(path, "old").ok());
  ASSERT_TRUE(WriteErrorFile(path, {{"message", "new"}}).ok());
  EXPECT_EQ(*ReadFile(path, 1 << 10), R"({"message":"new"})");
  EXPECT_TRUE(WriteErrorFile("", {}).ok());
  EXPECT_FALSE(WriteErrorFile("/no/such/folder/error.json", {}).ok());
}

}  // namespace
}  // namespace lockstep::launch
