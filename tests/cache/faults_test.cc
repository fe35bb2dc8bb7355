// Reads, leases and builds on a file system that shows files late and gives EIO and ESTALE (flaky_mount.h).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "cache/build.h"
#include "cache/lease.h"
#include "cache/upkeep.h"
#include "flaky_mount.h"
#include "small_cache.h"

namespace lockstep::cache {
namespace {

constexpr uint32_t kReading = kAtLookup | kAtStat | kAtOpen | kAtRead;
constexpr uint32_t kAll = kReading | kAtWrite | kAtName;

struct Arena {
  std::string root;  // as it is
  std::string a, b;  // as two clients see it
  Faults* faults;
};

// Runs `scenario` with both mounts in a process of its own; it says what went wrong.
void OnFlakyMounts(const std::function<std::string(const Arena&)>& scenario) {
  const Result<TempDir> dir = TempDir::Create();
  Arena arena{*dir / "root", *dir / "a", *dir / "b", Faults::Create()};
  for (const std::string& path : {arena.root, arena.a, arena.b}) ASSERT_TRUE(MakeDirs(path).ok());
  int said[2];
  ASSERT_EQ(::pipe(said), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(said[0]);
    if (!OwnMounts() || !MountFlaky(arena.root, arena.a, arena.faults) ||
        !MountFlaky(arena.root, arena.b, arena.faults)) {
      ::_exit(77);
    }
    const std::string wrong = scenario(arena);
    static_cast<void>(!::write(said[1], wrong.data(), wrong.size()));
    arena.faults->Set(0, 0);
    ::umount2(arena.a.c_str(), MNT_DETACH);
    ::umount2(arena.b.c_str(), MNT_DETACH);
    ::_exit(wrong.empty() ? 0 : 1);
  }
  ::close(said[1]);
  std::string wrong;
  char block[4096];
  for (ssize_t n = 0; (n = ::read(said[0], block, sizeof block)) > 0;) wrong.append(block, static_cast<size_t>(n));
  ::close(said[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "FUSE mounts are not allowed here";
  EXPECT_EQ(status, 0) << wrong;
}

std::vector<uint64_t> UpTo(uint64_t count) {
  std::vector<uint64_t> numbers;
  for (uint64_t i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

TEST(CacheFaults, ReadsGiveRightRecordsOrNone) {
  OnFlakyMounts([](const Arena& arena) -> std::string {
    const Folder made = *Folder::Create(arena.root, SmallDescription());
    for (uint64_t i = 0; i < 8; ++i) WriteUnit(made, i, i * 5, 5);
    const Result<Folder> folder = Folder::Open(arena.a + "/" + made.id());
    if (!folder.ok()) return folder.status().ToString();
    for (const bool uring : {true, false}) {
      // Few units stay open, so that opening them is tried as well.
      const auto reader = Reader::Open(*folder, {.uring = uring, .open_units = 2});
      if (!reader.ok()) return reader.status().ToString();
      uint64_t hits = 0, failed = 0;
      for (int round = 0; round < 12; ++round) {
        arena.faults->Set(kReading, static_cast<uint32_t>(7 + 6 * (round / 2)), round % 2 == 1);
        const std::vector<Got> got = ReadNumbers(**reader, UpTo(40));
        for (uint64_t i = 0; i < got.size(); ++i) {
          if (got[i].outcome == Outcome::kHit && !IsRecord(got[i], i)) return fmt::format("wrong tensor {}", i);
          ++(got[i].outcome == Outcome::kHit ? hits : failed);
        }
      }
      arena.faults->Set(0, 0);
      if (hits < failed) return fmt::format("{} hits, {} failed", hits, failed);
      for (uint64_t i = 0; const Got& got : ReadNumbers(**reader, UpTo(40))) {
        if (!IsRecord(got, i++)) return "the errors are over, and a record is still missing: " + got.why;
      }
    }
    return arena.faults->given < 20 ? "too few errors were given" : "";
  });
}

// One error, wherever it comes: the second try has the record.
TEST(CacheFaults, APassingErrorCostsNoRecord) {
  OnFlakyMounts([](const Arena& arena) -> std::string {
    const Folder made = *Folder::Create(arena.root, SmallDescription());
    WriteUnit(made, 0, 0, 5);
    const Result<Folder> folder = Folder::Open(arena.a + "/" + made.id());
    if (!folder.ok()) return folder.status().ToString();
    for (const FaultAt at : {kAtOpen, kAtRead}) {
      for (const bool opened : {false, true}) {
        const auto reader = Reader::Open(*folder);
        if (opened) ReadNumbers(**reader, {1});
        arena.faults->asked = 999'999;  // the next one
        arena.faults->Set(at, 1'000'000, /*with_stale=*/true);
        const uint64_t before = arena.faults->given;
        const Got got = ReadNumbers(**reader, {2})[0];
        const bool given = arena.faults->given > before;
        arena.faults->Set(0, 0);
        if (!given && !(opened && at == kAtOpen)) return fmt::format("no error was given at {}", static_cast<int>(at));
        if (!IsRecord(got, 2)) return fmt::format("at {}: {}", static_cast<int>(at), got.why);
      }
    }
    // Units that could not be opened at the start are found by the next look.
    bool missed = false;
    for (const uint32_t every : {2, 3, 4, 5}) {
      for (uint32_t before = 0; before < every; ++before) {
        arena.faults->asked = before;
        arena.faults->Set(kAtRead | kAtOpen, every);
        const Result<std::unique_ptr<Reader>> reader = Reader::Open(*folder);
        arena.faults->Set(0, 0);
        if (!reader.ok()) continue;  // the folder could not be listed
        missed = missed || (*reader)->records() < 5;
        if (const Status again = (*reader)->Refresh(); !again.ok()) return again.ToString();
        if ((*reader)->records() != 5) return fmt::format("{} records", (*reader)->records());
      }
    }
    return missed ? "" : "every unit was opened in spite of errors";
  });
}

TEST(CacheFaults, AHolderKeepsItsLeaseThroughErrors) {
  OnFlakyMounts([](const Arena& arena) -> std::string {
    const LeaseTiming timing{std::chrono::hours(1), std::chrono::seconds(60), [] { return Now(); }};
    const std::string unit = "/unit";
    Leases a(timing), b(timing);
    if (*a.Take(arena.a + unit) != Leases::Taken::kNew) return "it was not taken";
    for (const bool stale : {false, true}) {
      for (const FaultAt at : {kAtLookup, kAtStat, kAtOpen, kAtRead}) {
        arena.faults->Set(at, 1, stale);  // every request
        a.Touch();
        const bool held = a.Holds(arena.a + unit);
        arena.faults->Set(0, 0);
        if (!held || !a.Holds(arena.a + unit)) return fmt::format("lost by errors at {}", static_cast<int>(at));
        if (*b.Take(arena.b + unit) != Leases::Taken::kHeldByOther) return "taken over while it is held";
      }
    }
    // Another client sees it late: it cannot take it all the same.
    a.Release(arena.a + unit);
    arena.faults->late_ms = 100'000;
    if (*a.Take(arena.a + unit) != Leases::Taken::kNew) return "it was not taken again";
    if (::access((arena.b + unit).c_str(), F_OK) == 0) return "it is seen at once";
    if (*b.Take(arena.b + unit) != Leases::Taken::kHeldByOther) return "two holders";
    return a.Holds(arena.a + unit) ? "" : "lost to one who does not see it";
  });
}

// Builders on two clients that see each other's files late, with errors everywhere; one that ends is started again.
TEST(CacheFaults, BuildersPublishNothingDamagedAndComplete) {
  OnFlakyMounts([](const Arena& arena) -> std::string {
    const Folder made = *Folder::Create(arena.root, SmallDescription());
    const Plan plan{"numbers", 60, 5};
    arena.faults->late_ms = 30;
    arena.faults->Set(kAll, 61);
    const auto start = [&](int rank) {
      const pid_t child = ::fork();
      if (child != 0) return child;
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const Result<Folder> folder = Folder::Open((rank == 0 ? arena.a : arena.b) + "/" + made.id());
      if (!folder.ok()) ::_exit(1);
      // A lease whose release failed lapses soon, not after a minute.
      const LeaseTiming timing{.heartbeat = std::chrono::milliseconds(200), .expiry = std::chrono::seconds(2)};
      const auto built = Build(*folder, plan, Numbers(*folder), {.rank = rank, .world = 2, .timing = timing});
      ::_exit(built.ok() ? 0 : 1);
    };
    std::map<pid_t, int> running = {{start(0), 0}, {start(1), 1}};
    int starts = 2;
    while (!running.empty()) {
      int status = 0;
      const pid_t ended = ::waitpid(-1, &status, 0);
      const auto found = running.find(ended);
      if (found == running.end()) continue;  // a server
      const int rank = found->second;
      running.erase(found);
      if (WIFSIGNALED(status)) return fmt::format("rank {} ended by signal {}", rank, WTERMSIG(status));
      if (status == 0) continue;
      if (++starts == 100) arena.faults->Set(0, 0);  // enough of it
      arena.faults->stale = starts % 2 == 1;
      running[start(rank)] = rank;
    }
    const uint64_t given = arena.faults->given;
    arena.faults->Set(0, 0);
    const Result<Verified> verified = VerifyAll(made, 1);
    for (const auto& [unit, why] : verified->damaged) return unit + " is damaged: " + why;
    if (const int missing = Missing(made, 60); missing > 0) return fmt::format("{} records are missing", missing);
    return given < 10 ? fmt::format("only {} errors were given", given) : "";
  });
}

}  // namespace
}  // namespace lockstep::cache
