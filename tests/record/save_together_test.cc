// Checkpoints written by several ranks, each its part: whatever the ranks have, whoever sees the folder and however
// small the staging memory, one reader gets the whole state; a failure on one rank is everybody's.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>

#include "base/files.h"
#include "faulty_storage.h"
#include "record/checkpoint_plan.h"
#include "record/shared_folder.h"
#include "small_state.h"
#include "thread_peers.h"

namespace lockstep::record {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

enum class Owners { kAll, kShares, kMain };

// What one of several ranks has of a SmallState. Other bytes than its own it does not even know.
class RankState {
 public:
  RankState(const SmallState& whole, Owners owners, int rank, int world) : content(whole.content) {
    data_.reserve(content.tensors.size());
    for (CheckpointTensor& tensor : content.tensors) {
      const auto element = DtypeBits(tensor.dtype) / 8;
      const int64_t numel = static_cast<int64_t>(tensor.bytes) / element;
      if (owners == Owners::kAll) continue;
      tensor.ranges.resize(static_cast<size_t>(world));
      if (owners == Owners::kMain) tensor.ranges[0] = {{0, numel}};
      for (int r = 0; r < world && owners == Owners::kShares; ++r) {
        tensor.ranges[static_cast<size_t>(r)] = {{numel * r / world, numel * (r + 1) / world}};
      }
      std::string& mine = data_.emplace_back();
      for (const ElementRange& range : tensor.ranges[static_cast<size_t>(rank)]) {
        mine.append(static_cast<const char*>(tensor.data) + range.begin * element,
                    static_cast<size_t>(range.size() * element));
      }
      tensor.data = mine.data();
    }
  }
  CheckpointContent content;

 private:
  std::vector<std::string> data_;
};

class SaveTogether : public testing::Test {
 protected:
  struct How {
    int world = 1;
    int seeing = 1;  // ranks that see the folder
    Owners owners = Owners::kAll;
    uint64_t split_bytes = kSplitBytes;
    size_t staging = 2u << 20;
    std::function<std::unique_ptr<Storage>(int rank)> storage;
  };

  BackgroundSaver::Options Options(const How& how, int rank, Team* team) {
    BackgroundSaver::Options options;
    options.folder = rank < how.seeing ? folder_ : dir_ / fmt::format("not-there-{}", rank);
    options.durability = Durability::kProcess;
    options.chunk_bytes = 4096;
    options.staging_bytes = how.staging;
    options.split_bytes = how.split_bytes;
    if (how.storage) options.storage = how.storage(rank);
    std::vector<int> writers;
    for (int r = 0; r < how.seeing; ++r) writers.push_back(r);
    if (how.world > 1) options.peers = team->Peers(rank, writers);
    return options;
  }

  // Saves on all ranks; the report of each. `states`: several in a row.
  std::vector<std::vector<SaveReport>> Save(const How& how, const std::vector<const SmallState*>& states) {
    Team team(how.world);
    std::vector<std::vector<SaveReport>> reports(static_cast<size_t>(how.world));
    team.Run([&](int rank) {
      auto saver = BackgroundSaver::Create(Options(how, rank, &team));
      ASSERT_TRUE(saver.ok()) << saver.status().message();
      for (const SmallState* whole : states) {
        RankState state(*whole, how.owners, rank, how.world);
        EXPECT_TRUE((*saver)->Reserve(state.content.tensors).ok());
        const Result<bool> begun = (*saver)->Begin(state.content, 1);
        ASSERT_TRUE(begun.ok() && *begun) << begun.status().message();
        EXPECT_TRUE((*saver)->WaitCopied().ok());
        for (const SaveReport& report : (*saver)->Drain()) reports[static_cast<size_t>(rank)].push_back(report);
      }
    });
    sent_ = team.bytes_sent;
    return reports;
  }
  std::string Path(uint64_t step) { return folder_ + "/" + CheckpointName(step); }

  TempDir dir_ = *TempDir::Create();
  std::string folder_ = dir_ / "checkpoints";
  uint64_t sent_ = 0;
};

TEST_F(SaveTogether, OneReaderGetsTheWholeStateWhoeverHadAndWroteIt) {
  const SmallState state(3, 4);  // 100 KB
  for (const int world : {1, 2, 3, 4}) {
    for (int seeing = 1; seeing <= world; ++seeing) {
      for (const Owners owners : {Owners::kAll, Owners::kShares, Owners::kMain}) {
        for (const uint64_t split : {uint64_t{1}, kSplitBytes}) {
          for (const size_t staging : {size_t{2} << 20, size_t{8192}}) {
            SCOPED_TRACE(fmt::format("{} of {} ranks see it, owners {}, split at {}, staging {}", seeing, world,
                                     static_cast<int>(owners), split, staging));
            fs::remove_all(folder_);
            const auto reports = Save({world, seeing, owners, split, staging, {}}, {&state});
            for (const auto& rank : reports) {
              ASSERT_EQ(rank.size(), 1u);
              ASSERT_TRUE(rank[0].status.ok()) << rank[0].status.message();
              EXPECT_GT(rank[0].bytes, 100'000u);
            }
            ASSERT_TRUE(state.IsIn(Path(3)));
            EXPECT_THAT(*ListDir(folder_), ElementsAre("latest", "step-3"));
            if (split == kSplitBytes || seeing == 1) EXPECT_TRUE(fs::exists(Path(3) + "/model.safetensors"));
            if (split == 1 && seeing > 1 && owners == Owners::kShares) {
              EXPECT_TRUE(fs::exists(fmt::format("{}/model-00002-of-{:05}.safetensors", Path(3), seeing)));
            }
            if (owners == Owners::kAll || (split == 1 && seeing == world && owners == Owners::kShares)) {
              EXPECT_EQ(sent_, 0u) << "nothing needs to travel";
            }
          }
        }
      }
    }
  }
  EXPECT_FALSE(fs::exists(dir_ / "not-there-1"));
}

TEST_F(SaveTogether, ASmallStateHasTheFilesOfASingleWriter) {
  const SmallState state(3);
  ASSERT_TRUE(WriteCheckpoint(dir_ / "direct", state.content, *PosixStorage(Durability::kProcess)).ok());
  for (const Owners owners : {Owners::kAll, Owners::kShares}) {
    fs::remove_all(folder_);
    Save({.world = 3, .seeing = 3, .owners = owners}, {&state});
    for (const std::string& name : *ListDir(Path(3))) {
      EXPECT_EQ(*ReadFile(Path(3) + "/" + name), *ReadFile(dir_ / "direct/step-3/" + name)) << name;
    }
  }
}

TEST_F(SaveTogether, AFullDiskOfOneRankIsReportedByAllAndTheNextSaveWorks) {
  const SmallState first(1), second(2), third(3);
  for (const uint64_t split : {uint64_t{1}, kSplitBytes}) {
    for (int full = 0; full < 3; ++full) {
      SCOPED_TRACE(fmt::format("rank {}, split at {}", full, split));
      fs::remove_all(folder_);
      Team team(3);
      team.Run([&](int rank) {
        auto disk = std::make_unique<FaultyStorage>();
        FaultyStorage* raw = disk.get();
        How how{.world = 3, .seeing = 3, .owners = Owners::kShares, .split_bytes = split, .staging = 8192};
        BackgroundSaver::Options options = Options(how, rank, &team);
        options.storage = std::move(disk);
        auto saver = BackgroundSaver::Create(std::move(options));
        for (const SmallState* whole : {&first, &second, &third}) {
          if (rank == full) raw->space = whole == &second ? 100 : FaultyStorage::kNever;
          RankState state(*whole, how.owners, rank, how.world);
          ASSERT_TRUE(*(*saver)->Begin(state.content));
          EXPECT_TRUE((*saver)->WaitCopied().ok());
          const SaveReport report = (*saver)->Drain().at(0);
          if (whole == &second) {
            EXPECT_THAT(report.status.message(), HasSubstr(fmt::format("rank {}: cannot write", full)));
            EXPECT_THAT(report.status.message(), HasSubstr("ENOSPC"));
            EXPECT_THAT(report.status.hint(), HasSubstr("disk is full"));
          } else {
            EXPECT_TRUE(report.status.ok()) << report.status.message();
          }
        }
      });
      EXPECT_THAT(*ListDir(folder_), ElementsAre("latest", "step-1", "step-3"));
      EXPECT_TRUE(first.IsIn(Path(1)));
      EXPECT_TRUE(third.IsIn(Path(3)));
    }
  }
}

TEST_F(SaveTogether, ARankThatVanishesLetsNobodyWaitAndNothingIsPublished) {
  const SmallState whole(1);
  Team team(3);
  std::promise<void> others;
  std::atomic<int> begun{0};
  team.Run([&](int rank) {
    if (rank == 2) {  // never comes
      others.get_future().wait();
      team.Break();
      return;
    }
    How how{.world = 3, .seeing = 3, .owners = Owners::kShares, .split_bytes = kSplitBytes, .staging = 8192};
    auto saver = BackgroundSaver::Create(Options(how, rank, &team));
    RankState state(whole, how.owners, rank, how.world);
    ASSERT_TRUE(*(*saver)->Begin(state.content));
    EXPECT_FALSE((*saver)->WaitIdle(std::chrono::milliseconds(0)));
    if (++begun == 2) others.set_value();
    EXPECT_TRUE((*saver)->WaitCopied().ok());
    EXPECT_THAT((*saver)->Drain().at(0).status.message(), HasSubstr("rank 2 died"));
    EXPECT_TRUE((*saver)->WaitIdle(std::chrono::milliseconds(0)));
  });
  EXPECT_TRUE(ListDir(folder_)->empty());
}

TEST_F(SaveTogether, WhatIsPublishedIsReportedByRank0ThoughTheOthersCanNoLongerBeTold) {
  const SmallState whole(1);
  Team team(2);
  team.Run([&](int rank) {
    BackgroundSaver::Options options = Options({.world = 2, .seeing = 2}, rank, &team);
    options.peers.gather = [&team, rank, calls = 0](std::string_view text) mutable {
      return ++calls < 3 ? team.Gather(rank, text) : Status(Code::kRankFailed, "the other rank died");
    };
    auto saver = BackgroundSaver::Create(std::move(options));
    ASSERT_TRUE(*(*saver)->Begin(whole.content));
    EXPECT_TRUE((*saver)->WaitCopied().ok());
    EXPECT_EQ((*saver)->Drain().at(0).status.message(), rank == 0 ? "" : "the other rank died");
  });
  EXPECT_TRUE(whole.IsIn(folder_ + "/latest"));
}

TEST_F(SaveTogether, AFailedCopyOnOneRankIsReportedByAll) {
  const SmallState whole(1);
  Team team(2);
  team.Run([&](int rank) {
    How how{.world = 2, .seeing = 2, .owners = Owners::kShares, .split_bytes = 1, .staging = 8192};
    BackgroundSaver::Options options = Options(how, rank, &team);
    if (rank == 1) {
      options.copy = [](void*, const void*, size_t) { return Status(Code::kInternal, "the GPU is gone"); };
    }
    auto saver = BackgroundSaver::Create(std::move(options));
    RankState state(whole, how.owners, rank, how.world);
    ASSERT_TRUE(*(*saver)->Begin(state.content));
    (void)(*saver)->WaitCopied();
    EXPECT_THAT((*saver)->Drain().at(0).status.message(), HasSubstr("rank 1: the GPU is gone"));
  });
  EXPECT_TRUE(ListDir(folder_)->empty());
}

// A disk that says when its first file is to be made, and waits until it may go on.
class HeldStorage : public FaultyStorage {
 public:
  HeldStorage(std::promise<void>* asked, std::shared_future<void> go) : asked_(asked), go_(std::move(go)) {}
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    if (asked_ != nullptr) std::exchange(asked_, nullptr)->set_value();
    go_.wait();
    return FaultyStorage::Create(path);
  }

 private:
  std::promise<void>* asked_;
  std::shared_future<void> go_;
};

TEST_F(SaveTogether, WhereThePartIsLargerThanStagingTheCopyGoesOnAsTheDiskTakesIt) {
  const SmallState whole(1, 4);
  std::promise<void> asked, go;
  Team team(1);
  How how{.staging = 8192};
  BackgroundSaver::Options options = Options(how, 0, &team);
  options.storage = std::make_unique<HeldStorage>(&asked, go.get_future().share());
  std::atomic<size_t> copied{0};
  options.copy = [&](void* dst, const void* src, size_t bytes) {
    std::memcpy(dst, src, bytes);
    copied += bytes;
    return Status::Ok();
  };
  auto saver = BackgroundSaver::Create(std::move(options));
  ASSERT_TRUE(*(*saver)->Begin(whole.content));
  asked.get_future().wait();  // before the copy is over: staging is full
  EXPECT_LE(copied, 8192u);
  EXPECT_TRUE((*saver)->busy());
  go.set_value();
  EXPECT_TRUE((*saver)->WaitCopied().ok());
  const SaveReport report = (*saver)->Drain().at(0);
  EXPECT_TRUE(report.status.ok()) << report.status.message();
  EXPECT_GT(copied, 50'000u);
  EXPECT_TRUE(whole.IsIn(Path(1)));
}

TEST_F(SaveTogether, TheProbeTellsRanksThatSeeTheFolderFromOthers) {
  for (const std::vector<bool>& sees :
       {std::vector<bool>{true, true, true}, {true, false, true}, {true, false, false}}) {
    Team team(3);
    std::vector<int> expected;
    for (int rank = 0; rank < 3; ++rank) {
      if (sees[static_cast<size_t>(rank)]) expected.push_back(rank);
    }
    fs::create_directories(dir_ / "elsewhere/checkpoints");
    team.Run([&](int rank) {
      const std::string folder = sees[static_cast<size_t>(rank)] ? folder_ : dir_ / "elsewhere/checkpoints";
      const auto found = RanksThatSee(folder, rank, [&](std::string_view text) { return team.Gather(rank, text); });
      ASSERT_TRUE(found.ok()) << found.status().message();
      EXPECT_EQ(*found, expected);
    });
    EXPECT_TRUE(ListDir(folder_)->empty());
  }
}

TEST_F(SaveTogether, AFolderThatRank0CannotWriteIsAnErrorOnAllRanks) {
  ASSERT_TRUE(WriteFileAtomic(dir_ / "file", "x").ok());
  Team team(2);
  team.Run([&](int rank) {
    const auto found =
        RanksThatSee(dir_ / "file/checkpoints", rank, [&](std::string_view text) { return team.Gather(rank, text); });
    EXPECT_THAT(found.status().message(), HasSubstr("ENOTDIR"));
  });
}

}  // namespace
}  // namespace lockstep::record
