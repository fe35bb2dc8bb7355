#include "cache/lease.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"

namespace lockstep::cache {
namespace {

using Taken = Leases::Taken;

// Leases with a clock that the test turns, and heartbeats only by hand.
struct Bench {
  Result<TempDir> dir = TempDir::Create();
  std::string path = *dir / "unit";
  TimePoint now = Now();
  LeaseTiming timing{std::chrono::hours(1), std::chrono::seconds(60), [this] { return now; }};
};

void SetTime(const std::string& path, int64_t seconds) {
  const timespec times[2] = {{seconds, 0}, {seconds, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST(CacheLease, OneHolderAtATime) {
  Bench bench;
  Leases a(bench.timing), b(bench.timing);
  EXPECT_EQ(*a.Take(bench.path), Taken::kNew);
  EXPECT_EQ(*b.Take(bench.path), Taken::kHeldByOther);
  EXPECT_TRUE(a.Holds(bench.path));
  a.Release(bench.path);
  EXPECT_EQ(*b.Take(bench.path), Taken::kNew);
  EXPECT_EQ(ListDir(bench.dir->path())->size(), 1u);  // no temporary files
}

TEST(CacheLease, LapsesWithoutHeartbeatsAndTheOldHolderSeesIt) {
  Bench bench;
  Leases a(bench.timing), b(bench.timing);
  ASSERT_EQ(*a.Take(bench.path), Taken::kNew);
  EXPECT_EQ(*b.Take(bench.path), Taken::kHeldByOther);
  bench.now += std::chrono::seconds(59);
  a.Touch();
  EXPECT_EQ(*b.Take(bench.path), Taken::kHeldByOther);  // it changed: the time starts anew
  bench.now += std::chrono::seconds(59);
  EXPECT_EQ(*b.Take(bench.path), Taken::kHeldByOther);
  bench.now += std::chrono::seconds(2);
  EXPECT_EQ(*b.Take(bench.path), Taken::kTakenOver);
  EXPECT_FALSE(a.Holds(bench.path));
  a.Touch();
  a.Release(bench.path);
  EXPECT_TRUE(b.Holds(bench.path));
}

TEST(CacheLease, ClocksThatJumpMakeNothingLapse) {
  Bench bench;
  Leases a(bench.timing), b(bench.timing);
  ASSERT_EQ(*a.Take(bench.path), Taken::kNew);
  for (const int64_t stamp : {int64_t{0}, int64_t{4'000'000'000}, int64_t{1}, int64_t{2'000'000'000}}) {
    SetTime(bench.path, stamp);  // the server's clock, far in the past and in the future
    EXPECT_EQ(*b.Take(bench.path), Taken::kHeldByOther);
    bench.now += std::chrono::seconds(40);
    EXPECT_EQ(*b.Take(bench.path), Taken::kHeldByOther);
  }
  bench.now += std::chrono::seconds(61);  // and no stamp keeps a dead one alive
  EXPECT_EQ(*b.Take(bench.path), Taken::kTakenOver);
}

TEST(CacheLease, OfAProcessThatIsGoneIsTakenAtOnce) {
  Bench bench;
  const pid_t child = ::fork();
  if (child == 0) {
    Leases leases(bench.timing);
    const bool taken = leases.Take(bench.path).ok();
    ::_exit(taken ? 0 : 1);  // as kill -9 would: nothing is given back
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  Leases leases(bench.timing);
  EXPECT_EQ(*leases.Take(bench.path), Taken::kTakenOver);
}

TEST(CacheLease, OfTwoThatTakeOverOneKeepsIt) {
  Bench bench;
  Leases dead(bench.timing), a(bench.timing), b(bench.timing);
  ASSERT_EQ(*dead.Take(bench.path), Taken::kNew);
  ASSERT_EQ(*a.Take(bench.path), Taken::kHeldByOther);
  ASSERT_EQ(*b.Take(bench.path), Taken::kHeldByOther);
  bench.now += std::chrono::seconds(61);
  EXPECT_EQ(*a.Take(bench.path), Taken::kTakenOver);
  EXPECT_EQ(*b.Take(bench.path), Taken::kHeldByOther);  // it changed hands
  EXPECT_TRUE(a.Holds(bench.path));
}

TEST(CacheLease, SaysWhereItCannotBeTaken) {
  Leases leases;
  const auto taken = leases.Take("/proc/none/lease");
  EXPECT_FALSE(taken.ok());
  EXPECT_NE(taken.status().message().find("/proc/none"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::cache
