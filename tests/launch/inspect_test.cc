#include "launch/inspect.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "base/process.h"

namespace lockstep::launch {
namespace {

TEST(Inspect, AQuestionReachesTheLauncherAndItsAnswerComesBack) {
  Loop loop;
  InspectServer server(loop, [](const Json& question, const InspectServer::Reply& reply) {
    reply({{"type", "hang"}, {"echo", question["n"]}});
  });
  Result<Json> answer = Json();
  std::thread asker([&] {
    answer = AskLauncher(getpid(), ProcessStartTime(getpid()), {{"type", "stacks"}, {"n", 42}}, Millis(10000));
    loop.Post([&] { loop.Quit(); });
  });
  loop.Run();
  asker.join();
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ((*answer)["echo"], 42);
}

TEST(Inspect, NobodyThereIsSaid) {
  const auto answer = AskLauncher(getpid(), 1, {{"type", "stacks"}}, Millis(1000));
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.status().message().find(std::to_string(getpid())), std::string::npos);
}

}  // namespace
}  // namespace lockstep::launch
