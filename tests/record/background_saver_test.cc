#include "record/background_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <mutex>

#include "base/files.h"
#include "faulty_storage.h"
#include "small_state.h"

namespace lockstep::record {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

// A disk whose first file waits until it may go on.
class WaitingStorage : public FaultyStorage {
 public:
  explicit WaitingStorage(std::shared_future<void> go) : go_(std::move(go)) {}
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    go_.wait();
    return FaultyStorage::Create(path);
  }

 private:
  std::shared_future<void> go_;
};

class BackgroundSaverTest : public testing::Test {
 protected:
  std::unique_ptr<BackgroundSaver> Make(BackgroundSaver::Options options) {
    options.folder = folder_;
    options.durability = Durability::kProcess;
    auto saver = BackgroundSaver::Create(std::move(options));
    EXPECT_TRUE(saver.ok()) << saver.status().message();
    return std::move(*saver);
  }
  std::string Path(uint64_t step) { return folder_ + "/" + CheckpointName(step); }

  TempDir dir_ = *TempDir::Create();
  std::string folder_ = dir_ / "checkpoints";
};

TEST_F(BackgroundSaverTest, SavesWhatTheStateWasAtBegin) {
  auto saver = Make({.chunk_bytes = 4096});
  SmallState state(10, 100);
  ASSERT_TRUE(saver->Reserve(state.content.tensors).ok());
  ASSERT_TRUE(*saver->Begin(state.content, 10));
  ASSERT_TRUE(saver->WaitCopied().ok());
  for (size_t i = 0; i < state.content.tensors.size(); ++i) {  // the next optimizer step
    std::fill(state.data(i).begin(), state.data(i).end(), '!');
  }
  const std::vector<SaveReport> reports = saver->Drain();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].status.ok()) << reports[0].status.message();
  EXPECT_EQ(reports[0].step, 10u);
  EXPECT_EQ(reports[0].path, Path(10));
  EXPECT_GT(reports[0].bytes, 2'400'000u);
  EXPECT_EQ(reports[0].reserve_seconds, 0);
  EXPECT_GT(reports[0].write_seconds, 0);
  EXPECT_TRUE(SmallState(10, 100).IsIn(Path(10)));
  EXPECT_TRUE(SmallState(10, 100).IsIn(folder_ + "/latest"));
  EXPECT_TRUE(SmallState(10, 100).IsIn(folder_ + "/best"));
  EXPECT_TRUE(saver->Poll().empty());
}

TEST_F(BackgroundSaverTest, WritesTheSameFilesAsTheDirectWriter) {
  SmallState state(10, 50);
  ASSERT_TRUE(WriteCheckpoint(dir_ / "direct", state.content, *PosixStorage(Durability::kProcess)).ok());
  {
    auto saver = Make({});
    ASSERT_TRUE(*saver->Begin(state.content));
    ASSERT_TRUE(saver->WaitCopied().ok());
  }  // the end of the saver waits for the save
  for (const std::string& name : *ListDir(Path(10))) {
    EXPECT_EQ(*ReadFile(Path(10) + "/" + name), *ReadFile(dir_ / "direct/step-10/" + name)) << name;
  }
}

TEST_F(BackgroundSaverTest, OneSaveAtATime) {
  std::promise<void> go;
  auto saver = Make({.storage = std::make_unique<WaitingStorage>(go.get_future().share())});
  SmallState first(1), second(2);
  ASSERT_TRUE(*saver->Begin(first.content));
  ASSERT_TRUE(saver->WaitCopied().ok());
  EXPECT_TRUE(saver->busy());
  EXPECT_FALSE(*saver->Begin(second.content));
  EXPECT_FALSE(saver->Reserve(second.content.tensors).ok());
  EXPECT_TRUE(saver->Poll().empty());
  go.set_value();
  EXPECT_EQ(saver->Drain().size(), 1u);
  EXPECT_FALSE(saver->busy());
  ASSERT_TRUE(*saver->Begin(second.content));
  EXPECT_EQ(saver->Drain().at(0).step, 2u);
  EXPECT_TRUE(first.IsIn(Path(1)));
  EXPECT_TRUE(second.IsIn(Path(2)));
}

TEST_F(BackgroundSaverTest, TheTrainingThreadHelpsWithTheCopy) {
  std::mutex mutex;
  std::set<std::thread::id> copied_by;
  std::promise<void> helped;
  std::shared_future<void> wait = helped.get_future().share();
  const std::thread::id training = std::this_thread::get_id();
  auto saver = Make({.copy =
                         [&](void* dst, const void* src, size_t bytes) {
                           std::memcpy(dst, src, bytes);
                           const bool mine = std::this_thread::get_id() == training;
                           {
                             std::lock_guard lock(mutex);
                             const bool first = copied_by.insert(std::this_thread::get_id()).second;
                             if (mine && first) helped.set_value();
                           }
                           if (!mine) wait.wait();  // the copier is stuck in its first slice until we helped
                           return Status::Ok();
                         },
                     .chunk_bytes = 4096});
  SmallState state(1, 10);
  ASSERT_TRUE(*saver->Begin(state.content));
  ASSERT_TRUE(saver->WaitCopied().ok());
  EXPECT_TRUE(copied_by.contains(training));
  EXPECT_GT(saver->Drain().at(0).blocked_seconds, 0);
  EXPECT_TRUE(state.IsIn(Path(1)));
}

TEST_F(BackgroundSaverTest, AFullDiskIsReportedAndTheNextSaveWorks) {
  auto disk = std::make_unique<FaultyStorage>();
  FaultyStorage* raw = disk.get();
  auto saver = Make({.storage = std::move(disk)});
  SmallState states[] = {SmallState(1), SmallState(2), SmallState(3)};
  ASSERT_TRUE(*saver->Begin(states[0].content));
  EXPECT_TRUE(saver->Drain().at(0).status.ok());
  raw->space = 10'000;
  ASSERT_TRUE(*saver->Begin(states[1].content));
  ASSERT_TRUE(saver->WaitCopied().ok());
  const SaveReport failed = saver->Drain().at(0);
  EXPECT_THAT(failed.status.message(), HasSubstr("ENOSPC"));
  EXPECT_EQ(failed.step, 2u);
  EXPECT_THAT(*ListDir(folder_), ElementsAre("latest", "step-1"));
  EXPECT_TRUE(states[0].IsIn(folder_ + "/latest"));
  raw->space = FaultyStorage::kNever;
  ASSERT_TRUE(*saver->Begin(states[2].content));
  EXPECT_TRUE(saver->Drain().at(0).status.ok());
  EXPECT_TRUE(states[2].IsIn(folder_ + "/latest"));
}

TEST_F(BackgroundSaverTest, AFailedCopyIsReportedAndNothingIsPublished) {
  auto saver = Make({.copy = [](void*, const void*, size_t) { return Status(Code::kInternal, "the GPU is gone"); }});
  SmallState state(1);
  ASSERT_TRUE(*saver->Begin(state.content));
  (void)saver->WaitCopied();
  EXPECT_THAT(saver->Drain().at(0).status.message(), HasSubstr("the GPU is gone"));
  EXPECT_TRUE(ListDir(folder_)->empty());
  EXPECT_TRUE(saver->WaitCopied().ok());  // nothing in flight any more
}

TEST_F(BackgroundSaverTest, StatesThatCannotBeSavedAreRefusedAtBegin) {
  auto saver = Make({});
  SmallState state(1);
  state.content.tensors[0].name = "plain";
  EXPECT_THAT(saver->Begin(state.content).status().message(), HasSubstr("not named"));
  EXPECT_FALSE(saver->busy());
}

TEST_F(BackgroundSaverTest, OldOnesArePrunedAndTheBestStays) {
  auto saver = Make({.keep = {.last = 2, .every = 0, .best = true}});
  for (uint64_t step = 1; step <= 5; ++step) {
    SmallState state(step);
    ASSERT_TRUE(*saver->Begin(state.content, 2)) << step;
    ASSERT_TRUE(saver->WaitCopied().ok());
    const SaveReport report = saver->Drain().at(0);
    EXPECT_TRUE(report.status.ok() && report.prune.ok()) << report.prune.message();
    EXPECT_EQ(ReadPointer(folder_, "best").has_value(), step >= 2);
  }
  EXPECT_THAT(*ListDir(folder_), ElementsAre("best", "latest", "step-2", "step-4", "step-5"));
  EXPECT_TRUE(SmallState(2).IsIn(folder_ + "/best"));
}

TEST_F(BackgroundSaverTest, AStateThatGrowsAndAnEmptyOneAreSavedToo) {
  auto saver = Make({});
  for (size_t scale : {1u, 40u, 3u}) {
    SmallState state(scale, scale);
    ASSERT_TRUE(*saver->Begin(state.content));
    ASSERT_TRUE(saver->WaitCopied().ok());
    EXPECT_TRUE(saver->Drain().at(0).status.ok());
    EXPECT_TRUE(state.IsIn(Path(scale)));
  }
  CheckpointContent empty;
  empty.step = 50;
  ASSERT_TRUE(*saver->Begin(empty));
  ASSERT_TRUE(saver->WaitCopied().ok());
  EXPECT_TRUE(saver->Drain().at(0).status.ok());
  EXPECT_TRUE(CheckpointReader::Open(Path(50))->Verify().ok());
}

TEST_F(BackgroundSaverTest, LeftoversOfADeadWriterAreRemovedAtTheStart) {
  fs::create_directories(folder_ + "/step-7.tmp-1-2-3");
  auto saver = Make({});
  EXPECT_TRUE(ListDir(folder_)->empty());
}

TEST_F(BackgroundSaverTest, AFolderThatCannotBeMadeIsAnErrorAtTheStart) {
  ASSERT_TRUE(WriteFileAtomic(dir_ / "file", "x").ok());
  BackgroundSaver::Options options;
  options.folder = dir_ / "file/checkpoints";
  EXPECT_THAT(BackgroundSaver::Create(std::move(options)).status().message(), HasSubstr("ENOTDIR"));
}

}  // namespace
}  // namespace lockstep::record
