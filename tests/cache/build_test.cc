#include "cache/build.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "base/json.h"
#include "cache/upkeep.h"
#include "small_cache.h"

namespace lockstep::cache {
namespace {

TEST(CacheBuild, CompletesAPlanAndDoesNothingTwice) {
  SmallCache f;
  const Plan plan{"numbers", 25, 10};
  const auto first = Build(f.folder, plan, Numbers(f.folder), {});
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(first->own, 3u);
  EXPECT_EQ(first->records, 25u);
  EXPECT_EQ(Missing(f.folder, 25), 0);
  const auto again = Build(f.folder, plan, Numbers(f.folder), {});
  EXPECT_EQ(again->own, 0u);
  // A longer plan keeps what another one has encoded.
  const auto longer = Build(f.folder, {"numbers", 40, 10}, Numbers(f.folder), {});
  EXPECT_EQ(longer->records, 15u);
  EXPECT_EQ(Missing(f.folder, 40), 0);
  EXPECT_TRUE(ListDir(f.folder.path() + "/leases")->empty());
}

TEST(CacheBuild, ManyProcessesShareThePlan) {
  SmallCache f;
  const Plan plan{"numbers", 200, 10};
  std::vector<std::thread> builders;
  std::atomic<uint64_t> own{0};
  for (int rank = 0; rank < 4; ++rank) {
    builders.emplace_back([&, rank] {
      const auto built = Build(f.folder, plan, Numbers(f.folder), {.rank = rank, .world = 4});
      ASSERT_TRUE(built.ok()) << built.status().ToString();
      own += built->own;
    });
  }
  for (std::thread& builder : builders) builder.join();
  EXPECT_EQ(own, 20u);
  EXPECT_EQ(Missing(f.folder, 200), 0);
}

// Builders are killed at random; others go on. Nothing half written is ever published, and the plan completes.
TEST(CacheBuild, SurvivesKillsAtAnyMoment) {
  SmallCache f;
  const char* soak = std::getenv("LOCKSTEP_SOAK");  // make soak
  const int kills = soak == nullptr ? 24 : std::atoi(soak);
  const uint64_t units = static_cast<uint64_t>(kills) * 3;
  const Plan plan{"numbers", 5 * units, 5};
  std::mt19937 random(3);
  const auto start = [&](int rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto built = Build(f.folder, plan, Numbers(f.folder), {.rank = rank, .world = 4});
      ::_exit(built.ok() ? 0 : 1);
    }
    return child;
  };
  std::vector<pid_t> children;
  for (int rank = 0; rank < 4; ++rank) children.push_back(start(rank));
  for (int killed = 0; killed < kills; ++killed) {
    ::usleep(random() % 3000);  // a kill at any moment is what is tested: there is no event to wait for
    const size_t which = random() % 4;
    ::kill(children[which], SIGKILL);
    ::waitpid(children[which], nullptr, 0);
    children[which] = start(static_cast<int>(which));
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(Missing(f.folder, 5 * units), 0);
  EXPECT_TRUE(VerifyAll(f.folder, 2)->damaged.empty());
  EXPECT_EQ(f.folder.Units()->size(), units);
}

TEST(CacheBuild, EndsWithTheReason) {
  struct Row {
    const char* expected;
    EncodeUnit encode;
    BuildOptions options;
    Plan plan;
    Storage stored;
  };
  SmallCache f, small(Storage::kF8);
  const auto bad_value = [&](uint64_t, uint64_t, UnitSink& sink) {
    std::vector<float> tokens(7 * 33, std::nanf("")), pooled(5);
    const std::vector<const std::byte*> fields = {Bytes(tokens), Bytes(pooled)};
    return sink.Put({KeyOfNumber(f.folder, 0), {}}, fields);
  };
  const std::vector<Row> rows = {
      {"value 0 is nan", bad_value, {}, {"x", 5, 5}, Storage::kSame},
      {"relative error", Numbers(small.folder), {.error_limit = 1e-4}, {"x", 5, 5}, Storage::kF8},
      {"free", Numbers(f.folder), {}, {"x", uint64_t{1} << 50, 1000}, Storage::kSame},
      {"no samples", Numbers(f.folder), {}, {"x", 0, 5}, Storage::kSame},
      {"broken",
       [](uint64_t, uint64_t, UnitSink&) { return Status(Code::kUsage, "broken"); },
       {},
       {"x", 5, 5},
       Storage::kSame},
      {"stopped", Numbers(f.folder), {.stop = [] { return true; }}, {"x", 5, 5}, Storage::kSame},
  };
  for (const Row& row : rows) {
    const Folder& folder = row.stored == Storage::kF8 ? small.folder : f.folder;
    const auto built = Build(folder, row.plan, row.encode, row.options);
    ASSERT_FALSE(built.ok()) << row.expected;
    EXPECT_NE(built.status().message().find(row.expected), std::string::npos) << built.status().ToString();
    EXPECT_TRUE(folder.Units()->empty());
    EXPECT_TRUE(ListDir(folder.path() + "/leases")->empty());
  }
}

// A file system with room for a few units, and one that is read-only then: what is there stays right.
TEST(CacheBuild, AFullOrReadOnlyFileSystemPublishesNothingBroken) {
  SmallCache f;
  const Plan plan{"numbers", 40, 10};
  const uint64_t unit = 10 * (f.folder.description().RowBytes() + 40) + 16384;
  const pid_t child = ::fork();
  if (child == 0) {
    // In a namespace of its own, over the units: as large as two of them.
    const std::string size = fmt::format("size={}", 2 * unit);
    const std::string at = f.folder.path() + "/units";
    if (!OwnMounts() || ::mount("none", at.c_str(), "tmpfs", 0, size.c_str()) != 0) ::_exit(77);
    const auto built = Build(f.folder, plan, Numbers(f.folder), {});
    if (built.ok() || built.status().message().find("ENOSPC") == std::string::npos) ::_exit(1);
    if (!VerifyAll(f.folder, 1)->damaged.empty() || f.folder.Units()->empty()) ::_exit(2);
    for (const std::string& name : *ListDir(at)) {
      if (name.find(".tmp-") != std::string::npos) ::_exit(3);
    }
    if (::mount("none", at.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) != 0) ::_exit(4);
    const auto again = Build(f.folder, plan, Numbers(f.folder), {});
    if (again.ok() || again.status().message().find("EROFS") == std::string::npos) ::_exit(5);
    ::_exit(Missing(f.folder, 40) < 40 ? 0 : 6);  // and it can still be read
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "namespaces are not allowed here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(CacheBuild, StoresTheMeasuredErrorOfEachUnit) {
  SmallCache f(Storage::kInt8);
  ASSERT_TRUE(Build(f.folder, {"x", 10, 5}, Numbers(f.folder), {}).ok());
  const Result<Summary> summary = Summarise(f.folder);
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->records, 10u);
  EXPECT_GT(summary->error.at("tokens"), 1e-4);
  EXPECT_LT(summary->error.at("tokens"), 0.01);
  EXPECT_FALSE(summary->error.contains("pooled"));
}

TEST(CacheUpkeep, DamagedUnitsAreTakenOutAndMadeAgain) {
  SmallCache f;
  const Plan plan{"numbers", 30, 10};
  ASSERT_TRUE(Build(f.folder, plan, Numbers(f.folder), {}).ok());
  const std::string path = f.folder.UnitPath(plan.UnitName(1));
  FlipBit(path, (ReadFile(path)->size() - 100) * 8);
  const Result<Verified> verified = VerifyAll(f.folder, 2);
  ASSERT_EQ(verified->damaged.size(), 1u);
  EXPECT_EQ(verified->damaged.begin()->first, plan.UnitName(1));
  ASSERT_TRUE(Quarantine(f.folder, {plan.UnitName(1)}).ok());
  EXPECT_EQ(Summarise(f.folder)->plans[0].samples(), 20u);
  EXPECT_EQ(Build(f.folder, plan, Numbers(f.folder), {})->own, 1u);
  EXPECT_EQ(Missing(f.folder, 30), 0);
  EXPECT_EQ(Summarise(f.folder)->quarantined, 1u);
}

TEST(CacheUpkeep, GarbageIsWhatNobodyNeeds) {
  SmallCache f;
  ASSERT_TRUE(Build(f.folder, {"numbers", 10, 10}, Numbers(f.folder), {}).ok());
  Description second = SmallDescription();
  second.encoder["compute"] = "BF16";
  const Folder other = *Folder::Create(f.dir->path(), second);
  ASSERT_TRUE(Build(other, {"numbers", 10, 10}, Numbers(other), {}).ok());
  ASSERT_TRUE(WriteFileAtomic(f.folder.path() + "/units/u.safetensors.tmp-1-2", "half").ok());
  EXPECT_TRUE(CollectGarbage(f.dir->path(), {})->empty());  // too young
  EXPECT_EQ(CollectGarbage(f.dir->path(), {.old_seconds = -1, .dry_run = true})->size(), 1u);
  EXPECT_EQ(CollectGarbage(f.dir->path(), {.old_seconds = -1})->size(), 1u);
  EXPECT_EQ(Missing(f.folder, 10), 0);
  EXPECT_FALSE(CollectGarbage(f.dir->path(), {.remove = {"abc"}}).ok());
  const auto evicted =
      CollectGarbage(f.dir->path(), {.max_bytes = Summarise(f.folder)->bytes + 100, .old_seconds = 1e6});
  ASSERT_EQ(evicted->size(), 1u);
  EXPECT_EQ(Namespaces(f.dir->path())->size(), 1u);
}

TEST(CacheUpkeep, ExportsFieldsInTheirOwnTypes) {
  SmallCache f(Storage::kBf16);
  ASSERT_TRUE(Build(f.folder, {"numbers", 12, 5}, Numbers(f.folder), {}).ok());
  std::vector<std::pair<uint64_t, uint64_t>> shown;
  const auto show = [&](uint64_t done, uint64_t all) { shown.emplace_back(done, all); };
  EXPECT_EQ(*Export(f.folder, "", *f.dir / "out", show), 12u);
  EXPECT_EQ(shown, (std::vector<std::pair<uint64_t, uint64_t>>{{1, 3}, {2, 3}, {3, 3}}));
  EXPECT_EQ(ListDir(*f.dir / "out")->size(), 3u);
}

// An encoder whose features of a frame depend on all frames, as alternating attention has them: features cached per
// frame would be those of another clip; keys over the whole context are not found for another clip.
TEST(CacheContext, PerFrameFeaturesOfAContextEncoderWouldBeWrong) {
  using Clip = std::vector<uint64_t>;
  // Frames attend to all frames of the clip: softmax over dot products of small vectors.
  const auto encode = [](const Clip& clip) {
    constexpr size_t kWidth = 8;
    std::vector<std::vector<float>> x;
    for (const uint64_t frame : clip) x.push_back(Values(frame, 0, kWidth));
    std::vector<float> out;
    for (const auto& query : x) {
      std::vector<float> weights, mixed(kWidth);
      float sum = 0;
      for (const auto& key : x) {
        float dot = 0;
        for (size_t i = 0; i < kWidth; ++i) dot += query[i] * key[i];
        weights.push_back(std::exp(dot));
        sum += weights.back();
      }
      for (size_t j = 0; j < x.size(); ++j) {
        for (size_t i = 0; i < kWidth; ++i) mixed[i] += weights[j] / sum * x[j][i];
      }
      out.insert(out.end(), mixed.begin(), mixed.end());
    }
    return out;
  };
  const Clip seen = {1, 2, 3}, other = {1, 2, 4};
  const std::vector<float> a = encode(seen), b = encode(other);
  EXPECT_NE(std::vector<float>(a.begin(), a.begin() + 8), std::vector<float>(b.begin(), b.begin() + 8))
      << "frame 1 has other features beside frame 4 than beside frame 3";

  const Result<TempDir> dir = TempDir::Create();
  Description description = SmallDescription();
  description.fields = {{"frames", Dtype::kF32, Storage::kSame, {3, 8}, true}};
  const Folder folder = *Folder::Create(dir->path(), description);
  const auto key = [&](const Clip& clip) {
    std::vector<ItemDigest> items;
    for (const uint64_t frame : clip) items.push_back(Item(frame));
    return *KeyOf(folder.id(), description.context, items);
  };
  const EncodeUnit unit = [&](uint64_t, uint64_t, UnitSink& sink) {
    const std::vector<const std::byte*> fields = {Bytes(a)};
    return sink.Put(key(seen), fields);
  };
  ASSERT_TRUE(Build(folder, {"one clip", 1, 1}, unit, {}).ok());
  const auto reader = Reader::Open(folder);
  const auto read = [&](const Clip& clip, std::vector<float>* out) {
    out->resize(24);
    std::vector<Request> one(1);
    one[0].key = key(clip);
    one[0].fields = {reinterpret_cast<std::byte*>(out->data())};
    (*reader)->Read(one);
    return one[0].outcome;
  };
  std::vector<float> got;
  EXPECT_EQ(read(seen, &got), Outcome::kHit);
  EXPECT_EQ(got, encode(seen));
  for (const Clip& clip : {other, Clip{2, 1, 3}, Clip{1, 3, 2}, Clip{1, 2}})
    EXPECT_EQ(read(clip, &got), Outcome::kMiss);
}

}  // namespace
}  // namespace lockstep::cache
