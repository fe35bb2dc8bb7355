// Power cuts at every operation, full disks, and a long series of damages: no damaged checkpoint is ever loaded, and
// the newest undamaged one always is. LOCKSTEP_SOAK=1000 asks for that many damages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "base/files.h"
#include "faulty_storage.h"
#include "record/checkpoint.h"
#include "record/checkpoint_folder.h"
#include "small_state.h"

namespace lockstep::record {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

class CheckpointFaultsTest : public testing::Test {
 protected:
  void SetUp() override { Fresh(); }
  void Fresh() {
    fs::remove_all(folder_);
    ASSERT_TRUE(WriteCheckpoint(folder_, old_.content, *disk_).ok());
  }

  TempDir dir_ = *TempDir::Create();
  std::string folder_ = dir_ / "checkpoints";
  std::unique_ptr<Storage> disk_ = PosixStorage(Durability::kProcess);
  SmallState old_{100}, new_{200};
};

TEST_F(CheckpointFaultsTest, APowerCutAtAnyOperationOfASaveLeavesTheOldOrTheNewState) {
  FaultyStorage whole;
  ASSERT_TRUE(WriteCheckpoint(folder_, new_.content, whole).ok());
  const uint64_t operations = whole.operations;
  ASSERT_GT(operations, 20u);
  int old_found = 0, new_found = 0;
  for (uint64_t k = 0; k <= operations; ++k) {
    Fresh();
    FaultyStorage disk;
    disk.crash_at = k;
    const Status status = WriteCheckpoint(folder_, new_.content, disk);
    EXPECT_EQ(status.ok(), k == operations) << k;
    std::vector<Candidate> rejected;
    auto found = NewestGood(folder_, &rejected);
    ASSERT_TRUE(found.ok() && found->has_value()) << k;
    const bool is_new = (*found)->ends_with("step-200");
    EXPECT_TRUE((is_new ? new_ : old_).IsIn(**found)) << k;
    ++(is_new ? new_found : old_found);
    for (const Candidate& candidate : rejected) EXPECT_TRUE(candidate.temporary) << k << " " << candidate.path;
    // The next run cleans up and saves again.
    ASSERT_TRUE(RemoveLeftovers(folder_, *disk_).ok());
    ASSERT_TRUE(WriteCheckpoint(folder_, new_.content, *disk_).ok()) << k;
    EXPECT_TRUE(new_.IsIn(folder_ + "/step-200"));
    EXPECT_THAT(*ListDir(folder_), ElementsAre("step-100", "step-200")) << k;
  }
  EXPECT_GT(old_found, 20);
  EXPECT_GE(new_found, 2);
}

// The control for the test above: a disk that only claims to have synced does publish damage, and it is recognised.
TEST_F(CheckpointFaultsTest, ADiskThatLiesAboutSyncsIsFoundOut) {
  FaultyStorage whole;
  ASSERT_TRUE(WriteCheckpoint(folder_, new_.content, whole).ok());
  Fresh();
  FaultyStorage disk;
  disk.forget_syncs = true;
  disk.crash_at = whole.operations - 1;  // after publishing
  EXPECT_FALSE(WriteCheckpoint(folder_, new_.content, disk).ok());
  ASSERT_TRUE(fs::exists(folder_ + "/step-200"));
  std::vector<Candidate> rejected;
  EXPECT_EQ(**NewestGood(folder_, &rejected), folder_ + "/step-100");
  ASSERT_EQ(rejected.size(), 1u);
  EXPECT_FALSE(rejected[0].temporary);
}

TEST_F(CheckpointFaultsTest, APowerCutWhileReplacingAStepLeavesTheOldOrTheNewState) {
  SmallState again(300);
  again.content.step = 100;
  FaultyStorage whole;
  ASSERT_TRUE(WriteCheckpoint(folder_, again.content, whole).ok());
  for (uint64_t k = 0; k < whole.operations; ++k) {
    Fresh();
    FaultyStorage disk;
    disk.crash_at = k;
    EXPECT_FALSE(WriteCheckpoint(folder_, again.content, disk).ok());
    auto found = NewestGood(folder_, nullptr);
    ASSERT_TRUE(found.ok() && found->has_value()) << k;
    EXPECT_TRUE(old_.IsIn(**found) || again.IsIn(**found)) << k;
    ASSERT_TRUE(RemoveLeftovers(folder_, *disk_).ok());
    EXPECT_THAT(*ListDir(folder_), ElementsAre("step-100")) << k;
    EXPECT_TRUE(old_.IsIn(folder_ + "/step-100") || again.IsIn(folder_ + "/step-100")) << k;
  }
}

TEST_F(CheckpointFaultsTest, APowerCutWhilePruningLosesNothingThatStays) {
  for (uint64_t k = 0;; ++k) {
    Fresh();
    ASSERT_TRUE(WriteCheckpoint(folder_, new_.content, *disk_).ok());
    FaultyStorage disk;
    disk.crash_at = k;
    auto removed = Prune(folder_, {.last = 1}, std::nullopt, disk);
    EXPECT_TRUE(new_.IsIn(**NewestGood(folder_, nullptr))) << k;
    for (const Candidate& candidate : *ScanCheckpoints(folder_)) {
      EXPECT_TRUE(candidate.status.ok() || candidate.temporary) << k;
    }
    ASSERT_TRUE(RemoveLeftovers(folder_, *disk_).ok());
    if (removed.ok()) {
      EXPECT_GT(k, 4u);
      EXPECT_THAT(*ListDir(folder_), ElementsAre("step-200"));
      return;
    }
  }
}

TEST_F(CheckpointFaultsTest, AFullDiskAtAnyPointLeavesTheOldStateAndNothingElse) {
  uint64_t total = 0;
  ASSERT_TRUE(WriteCheckpoint(folder_, new_.content, *disk_).ok());
  for (const auto& file : fs::recursive_directory_iterator(folder_ + "/step-200")) total += file.file_size();
  for (uint64_t space = 0; space < total; space += 1 + total / 60) {
    Fresh();
    FaultyStorage disk;
    disk.space = space;
    const Status status = WriteCheckpoint(folder_, new_.content, disk);
    EXPECT_THAT(status.message(), HasSubstr("ENOSPC")) << space;
    EXPECT_THAT(status.hint(), HasSubstr("disk is full"));
    EXPECT_THAT(*ListDir(folder_), ElementsAre("step-100")) << space;
    EXPECT_TRUE(old_.IsIn(folder_ + "/step-100"));
  }
  FaultyStorage disk;
  disk.space = total;
  EXPECT_TRUE(WriteCheckpoint(folder_, new_.content, disk).ok());
}

// A real filesystem of 512 KiB, in a mount namespace of this process.
TEST_F(CheckpointFaultsTest, ARealFullFilesystemKeepsTheOldStateAndTakesTheNextSaveWhenThereIsRoom) {
  if (::unshare(CLONE_NEWNS) != 0) {
    const char* allowed = std::getenv("LOCKSTEP_ALLOW_SKIP");
    if (allowed != nullptr && std::strstr(allowed, "mount") != nullptr)
      GTEST_SKIP() << "needs the right to mount (root)";
    FAIL() << "needs the right to mount (root); LOCKSTEP_ALLOW_SKIP=mount lets this test be skipped";
  }
  const std::string disk = dir_ / "disk";
  fs::create_directories(disk);
  ASSERT_EQ(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0) << strerror(errno);
  ASSERT_EQ(::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=512k"), 0) << strerror(errno);
  const auto storage = PosixStorage(Durability::kPower);
  SmallState first(1, 10), second(2, 10);  // 250 KB each
  ASSERT_TRUE(WriteCheckpoint(disk, first.content, *storage).ok());
  ASSERT_TRUE(WriteFileAtomic(disk + "/ballast", std::string(100'000, 'b')).ok());
  const Status full = WriteCheckpoint(disk, second.content, *storage);
  EXPECT_THAT(full.message(), HasSubstr("ENOSPC"));
  EXPECT_THAT(*ListDir(disk), ElementsAre("ballast", "step-1"));
  EXPECT_TRUE(first.IsIn(disk + "/step-1"));
  fs::remove(disk + "/ballast");
  ASSERT_EQ(::mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, "size=2m"), 0) << strerror(errno);
  ASSERT_TRUE(WriteCheckpoint(disk, second.content, *storage).ok());
  EXPECT_TRUE(second.IsIn(disk + "/step-2"));
  ::umount(disk.c_str());
}

// --- damages ---------------------------------------------------------------------------------------------------------

class Damager {
 public:
  explicit Damager(uint64_t seed, std::string folder) : random_(seed), folder_(std::move(folder)) {}

  uint64_t Below(uint64_t n) { return std::uniform_int_distribution<uint64_t>(0, n - 1)(random_); }

  // Changes a checkpoint so that it is not what was written; says how.
  std::string Damage(const std::string& name, const std::string& other) {
    const std::string path = folder_ + "/" + name;
    const std::vector<std::string> files = *ListDir(path);
    const std::string& file = files[Below(files.size())];
    const std::string full = path + "/" + file;
    std::string data = *ReadFile(full);
    const std::string before = data;
    switch (Below(9)) {
      case 0:
        fs::remove(full);
        return "removed " + file;
      case 1:
        data.resize(Below(data.size()));
        break;
      case 2: {
        const size_t page = Below(2) != 0 ? 4096 : 512, at = Below(data.size()) / page * page;
        std::fill(data.begin() + static_cast<ptrdiff_t>(at),
                  data.begin() + static_cast<ptrdiff_t>(std::min(at + page, data.size())), '\0');
        break;
      }
      case 3:
        data = *ReadFile(folder_ + "/" + other + "/" + file);
        break;
      case 4:
        data += std::string(1 + Below(100), '\0');
        break;
      case 5: {
        const std::string neighbour = path + "/" + files[Below(files.size())];
        const std::string theirs = *ReadFile(neighbour);
        EXPECT_TRUE(WriteFileAtomic(neighbour, data, 0644, Durability::kProcess).ok());
        data = theirs;
        break;
      }
      case 6:
        for (size_t i = 0; i < 16; ++i) data[Below(data.size())] = static_cast<char>(Below(256));
        break;
      default:
        break;
    }
    if (data == before) data[Below(data.size())] ^= static_cast<char>(1 << Below(8));
    EXPECT_TRUE(WriteFileAtomic(full, data, 0644, Durability::kProcess).ok());
    return "changed " + file;
  }

  // Things that lie around and are no checkpoints.
  static constexpr fs::copy_options kLinks = fs::copy_options::create_hard_links;
  void Clutter(const std::string& newest) {
    if (Below(3) == 0) fs::copy(folder_ + "/" + newest, folder_ + "/step-900.tmp-1-2-3", kLinks);
    if (Below(3) == 0) fs::copy(folder_ + "/" + newest, folder_ + "/step-800", kLinks);  // a copy under a wrong number
    if (Below(3) == 0) fs::create_directories(folder_ + "/step-700");
    if (Below(3) == 0) fs::create_directory_symlink("step-900", folder_ + "/latest");
  }

 private:
  std::mt19937_64 random_;
  std::string folder_;
};

TEST(CheckpointDamage, NoDamagedCheckpointIsEverLoadedAndTheNewestGoodOneAlwaysIs) {
  const char* soak = std::getenv("LOCKSTEP_SOAK");
  const uint64_t rounds = soak != nullptr && std::atoi(soak) > 0 ? static_cast<uint64_t>(std::atoi(soak)) : 200;
  TempDir dir = *TempDir::Create();
  const auto disk = PosixStorage(Durability::kProcess);
  const SmallState states[] = {SmallState(100), SmallState(200), SmallState(300)};
  const std::string names[] = {"step-100", "step-200", "step-300"};
  for (const SmallState& state : states) ASSERT_TRUE(WriteCheckpoint(dir / "clean", state.content, *disk).ok());
  uint64_t damaged_newest = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    const std::string folder = dir / "work";
    fs::remove_all(folder);
    // Damages replace files, so links to the clean ones do.
    fs::copy(dir / "clean", folder, fs::copy_options::recursive | fs::copy_options::create_hard_links);
    Damager damager(round, folder);
    damager.Clutter(names[2]);
    // 1..6: at least one of the three is damaged, at least one is not.
    const uint64_t mask = 1 + damager.Below(6);
    std::string what;
    for (size_t i = 0; i < 3; ++i) {
      if ((mask >> i & 1) != 0) what += damager.Damage(names[i], names[(i + 1) % 3]) + "; ";
    }
    const size_t expected = (mask & 4) == 0 ? 2 : (mask & 2) == 0 ? 1 : 0;
    std::vector<Candidate> rejected;
    auto found = NewestGood(folder, &rejected);
    ASSERT_TRUE(found.ok() && found->has_value()) << round << " " << what;
    ASSERT_EQ(**found, folder + "/" + names[expected]) << round << " " << what;
    ASSERT_TRUE(states[expected].IsIn(**found)) << round << " " << what;
    for (size_t i = 0; i < 3; ++i) {
      // Whoever loads a damaged one by its path is told as well.
      if ((mask >> i & 1) != 0) ASSERT_FALSE(states[i].IsIn(folder + "/" + names[i])) << round << " " << what;
    }
    for (const Candidate& candidate : rejected) {
      EXPECT_FALSE(candidate.status.message().empty());
      EXPECT_TRUE(fs::exists(candidate.path)) << "removed " << candidate.path;
    }
    damaged_newest += (mask & 4) != 0 ? 1 : 0;
  }
  EXPECT_GT(damaged_newest, rounds / 4);
}

}  // namespace
}  // namespace lockstep::record
