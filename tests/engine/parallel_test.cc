#include "engine/parallel.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "base/parallel.h"

namespace lockstep::engine {
namespace {

class ParallelForTest : public testing::Test {
 protected:
  ~ParallelForTest() override { at::set_num_threads(before_); }
  const int before_ = at::get_num_threads();
};

TEST_F(ParallelForTest, CoversEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    at::set_num_threads(threads);
    for (const int64_t count : {0, 1, 7, 64, 65, 1000}) {
      for (const int64_t grain : {1, 16, 100}) {
        std::vector<int> seen(static_cast<size_t>(count) + 5, 0);
        ParallelFor(5, 5 + count, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        for (size_t i = 0; i < seen.size(); ++i) {
          EXPECT_EQ(seen[i], i >= 5 ? 1 : 0) << threads << " " << count << " " << grain << " " << i;
        }
      }
    }
  }
}

// Each part waits for the other: with one thread this would never end.
TEST_F(ParallelForTest, RunsItsPartsAtTheSameTime) {
  at::set_num_threads(2);
  std::mutex mutex;
  std::condition_variable both;
  std::set<std::thread::id> here;
  ParallelFor(0, 2, 1, [&](int64_t, int64_t) {
    std::unique_lock lock(mutex);
    here.insert(std::this_thread::get_id());
    both.notify_all();
    both.wait_for(lock, std::chrono::seconds(60), [&] { return here.size() == 2; });
  });
  EXPECT_EQ(here.size(), 2u);
}

TEST_F(ParallelForTest, APartRunsOnTheSameThreadEveryTime) {
  at::set_num_threads(3);
  std::vector<std::thread::id> first(3), again(3);
  for (auto* threads : {&first, &again}) {
    ParallelFor(0, 3, 1,
                [&](int64_t begin, int64_t) { (*threads)[static_cast<size_t>(begin)] = std::this_thread::get_id(); });
  }
  EXPECT_EQ(first, again);
  EXPECT_EQ(std::set<std::thread::id>(first.begin(), first.end()).size(), 3u);
}

TEST_F(ParallelForTest, ALoopInsideALoopIsNotSharedOut) {
  at::set_num_threads(2);
  std::atomic<int> calls = 0;
  ParallelFor(0, 2, 1, [&](int64_t, int64_t) { ParallelFor(0, 100, 1, [&](int64_t, int64_t) { ++calls; }); });
  EXPECT_EQ(calls, 2);
}

TEST(ParallelThreads, StayOnANodeWhereThereAreSeveral) {
  using Cpus = std::vector<std::vector<int>>;
  EXPECT_EQ(CpusOfThreads({{0, 1, 2, 3}}, 2), (Cpus{{}, {}})) << "one node: anywhere";
  EXPECT_EQ(CpusOfThreads({}, 1), (Cpus{{}})) << "unknown";
  EXPECT_EQ(CpusOfThreads({{0, 1}, {4, 5}}, 4), (Cpus{{0, 1}, {0, 1}, {4, 5}, {4, 5}}));
  EXPECT_EQ(CpusOfThreads({{0}, {2, 3, 4}}, 2), (Cpus{{0}, {2, 3, 4}}));
  EXPECT_EQ(CpusOfThreads({{0}, {1}}, 5), (Cpus{{0}, {0}, {0}, {1}, {1}}));
}

TEST_F(ParallelForTest, OneThreadMeansTheCallersOwn) {
  at::set_num_threads(1);
  int calls = 0;
  const auto me = std::this_thread::get_id();
  ParallelFor(0, 1000, 1, [&](int64_t begin, int64_t end) {
    ++calls;
    EXPECT_EQ(std::this_thread::get_id(), me);
    EXPECT_EQ(end - begin, 1000);
  });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace lockstep::engine
