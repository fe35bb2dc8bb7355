// Samples come from a thread of their own; whoever owns a Telemetry may be gone at any moment.
#include "launch/telemetry.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/files.h"

namespace lockstep::launch {
namespace {

std::unique_ptr<logs::LogPump> Pump() { return *logs::LogPump::Start(logs::LogPumpOptions{}); }

TEST(TelemetryTest, SamplesReachTheLoopUntilItIsStopped) {
  Loop loop;
  const auto pump = Pump();
  std::vector<record::NodeSample> got;
  Telemetry telemetry(loop, *pump, [&](const record::NodeSample& sample) {
    got.push_back(sample);
    return got.size() % 2 == 0;  // every second one could be sent
  });
  NodeSamplerOptions options;
  options.attempt = 3;
  telemetry.Start(options, {{5, 0, getpid(), ""}}, Millis(10));
  while (got.size() < 4) ASSERT_TRUE(loop.RunOnce(Millis(1000)));
  ASSERT_EQ(got[3].ranks.size(), 1u);
  EXPECT_EQ(got[3].ranks[0].rank, 5);
  EXPECT_EQ(got[3].attempt, 3);
  EXPECT_EQ(got[3].dropped, 2u);
  telemetry.Ended(5);
  while (!got.back().ranks.empty()) ASSERT_TRUE(loop.RunOnce(Millis(1000)));
  telemetry.Stop();
  loop.RunOnce(Millis(0));  // what was on its way
  const size_t stopped = got.size();
  for (int i = 0; i < 3; ++i) loop.RunOnce(Millis(20));
  EXPECT_EQ(got.size(), stopped);
}

TEST(TelemetryTest, MayEndWhileASampleIsTaken) {
  for (int round = 0; round < 50; ++round) {
    auto loop = std::make_unique<Loop>();
    auto pump = Pump();
    int got = 0;
    {
      Telemetry telemetry(*loop, *pump, [&](const record::NodeSample&) { return ++got > 0; });
      telemetry.Start({}, {{0, 0, getpid(), ""}}, Millis(1));
      while (got < 1 + round % 3) ASSERT_TRUE(loop->RunOnce(Millis(1000)));
    }
    pump.reset();
    loop.reset();
  }
}

TEST(TelemetryTest, TheStoreWritesWhatItTookBeforeItGoes) {
  const TempDir folder = *TempDir::Create();
  {
    SampleStore store(folder.path(), 2);
    for (int i = 0; i < 20; ++i) {
      record::NodeSample sample;
      sample.node = i % 2;
      sample.n = static_cast<uint64_t>(i);
      store.Take(std::move(sample));
    }
    EXPECT_EQ(store.lost(), 0u);
  }
  record::SampleReader reader(folder.path());
  int read = 0;
  reader.Read([&](const record::NodeSample&) { ++read; });
  EXPECT_EQ(read, 20);
}

}  // namespace
}  // namespace lockstep::launch
