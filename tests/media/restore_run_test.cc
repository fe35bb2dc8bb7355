// The loop of `restore` over a function that stands for the model: ranks as threads, an end in the middle, settings
// that changed.
#include "media/restore_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "base/files.h"
#include "data/image.h"

namespace lockstep::media {
namespace {

using testing::HasSubstr;

constexpr int64_t kSide = 24;

class RestoreRun : public testing::Test {
 protected:
  RestoreRun() : folder_(*TempDir::Create()) {
    tiles_ = {.frames = 4, .frame_overlap = 2, .tile = 16, .tile_overlap = 4, .batch = 2};
    MakeClip("clips/one", 9);
    MakeClip("clips/two", 5);
  }

  void MakeClip(const std::string& name, int frames) {
    ASSERT_TRUE(MakeDirs(folder_ / name).ok());
    for (int i = 0; i < frames; ++i) {
      std::vector<uint8_t> rgb(kSide * kSide * 3);
      for (size_t p = 0; p < rgb.size(); ++p)
        rgb[p] = static_cast<uint8_t>((p * 7 + static_cast<size_t>(i) * 31) % 251);
      ASSERT_TRUE(
          WriteFileAtomic(folder_ / (name + "/" + std::to_string(i) + ".png"), *data::EncodePng(rgb, kSide, kSide))
              .ok());
    }
  }

  MediaOptions Asked(const std::string& output) const {
    MediaOptions options;
    options.command = "restore";
    options.input = folder_ / "clips";
    options.output = folder_ / output;
    return options;
  }

  // What rank 0 does before, all ranks do, and rank 0 after.
  Status Restore(const MediaOptions& options, int ranks, const nlohmann::json& settings, uint64_t* kept = nullptr,
                 int64_t most_tiles = 1 << 20) {
    const auto clips = FindRestoreClips(options, 0);
    if (!clips.ok()) return clips.status();
    auto work = WorkFolder::Open(options, settings, *clips, tiles_);
    if (!work.ok()) return work.status();
    if (kept != nullptr) *kept = work->kept();
    if (work->all_complete()) return Status::Ok();
    const WorkFiles files(options.output);
    std::atomic<int64_t> computed{0};
    std::atomic<bool> stop{false};
    std::vector<Status> outcomes(static_cast<size_t>(ranks));
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        RestoreLoop loop;
        size_t number = 0;
        for (size_t i = 0; i < clips->size(); ++i) {
          const WorkState& state = work->states()[i];
          if (state.complete) continue;
          RestoreTask task{&(*clips)[i], i, FrameWindows(static_cast<int64_t>(state.count), tiles_), (*clips)[i].shape};
          task.bytes = task.clip->written != Written::kTensor;
          loop.tasks.push_back(task);
          for (size_t w = 0; w < task.windows.size(); ++w) {
            if (state.done[w] == 0 && static_cast<int>(number++) % ranks == rank) {
              loop.units.push_back({loop.tasks.size() - 1, w});
            }
          }
          if (static_cast<int>(i) % ranks == rank) loop.assembled.push_back(loop.tasks.size() - 1);
        }
        loop.tiles = tiles_;
        // What a window gives depends on where it begins.
        loop.forward = [&](const at::Tensor& x) {
          if (++computed > most_tiles) stop = true;
          return (x * 0.7 + x.narrow(1, 0, 1) * 0.29).clone();
        };
        loop.assembling = {options.out, settings, nullptr};
        outcomes[static_cast<size_t>(rank)] = RunRestoreLoop(files, options, loop, &stop).status();
      });
    }
    threads.clear();
    for (const Status& outcome : outcomes) LOCKSTEP_RETURN_IF_ERROR(outcome);
    return work->Remove();
  }

  // Files below a folder and what is in them.
  std::map<std::string, std::string> Files(const std::string& name) const {
    std::map<std::string, std::string> files;
    for (const char* clip : {"one", "two"}) {
      const auto names = ListDir(folder_ / (name + "/" + clip));
      for (const std::string& file : names.ok() ? *names : std::vector<std::string>()) {
        files[clip + ("/" + file)] = *ReadFile(folder_ / (name + "/" + clip + "/" + file));
      }
    }
    return files;
  }

  TempDir folder_;
  RestoreTiles tiles_;
};

TEST_F(RestoreRun, RanksGiveTheBitsOfOneAndWhatIsInMemory) {
  const nlohmann::json settings = {{"--tile", "16"}};
  ASSERT_TRUE(Restore(Asked("alone"), 1, settings).ok());
  const auto alone = Files("alone");
  ASSERT_EQ(alone.size(), 14);
  for (const int ranks : {2, 3, 8}) {
    const std::string name = "ranks" + std::to_string(ranks);
    const Status status = Restore(Asked(name), ranks, settings);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(Files(name), alone) << ranks;
    EXPECT_FALSE(FileExists(WorkFiles(folder_ / name).path()));
  }
  // As validation restores a clip.
  std::vector<at::Tensor> frames;
  for (int i = 0; i < 9; ++i) {
    const auto image = data::DecodeImage(folder_ / ("clips/one/" + std::to_string(i) + ".png"));
    at::Tensor rgb = at::empty({kSide, kSide, 3}, at::kByte);
    std::copy(image->rgb.begin(), image->rgb.end(), rgb.data_ptr<uint8_t>());
    frames.push_back(rgb.permute({2, 0, 1}).to(at::kFloat).div(255));
  }
  const at::Tensor expected = ToPictures(
      RestoreClip([](const at::Tensor& x) { return x * 0.7 + x.narrow(1, 0, 1) * 0.29; }, tiles_, at::stack(frames)));
  for (int i = 0; i < 9; ++i) {
    const auto image = data::DecodeImage(folder_ / ("alone/one/" + std::to_string(i) + ".png"));
    const auto* want = expected[i].data_ptr<uint8_t>();
    EXPECT_TRUE(std::equal(image->rgb.begin(), image->rgb.end(), want)) << i;
  }
}

TEST_F(RestoreRun, WhatWasStoppedGoesOnWithoutRedoingWindows) {
  const nlohmann::json settings = {{"--tile", "16"}};
  ASSERT_TRUE(Restore(Asked("alone"), 1, settings).ok());
  for (const int64_t most : {2, 5, 9}) {
    const std::string name = "stopped" + std::to_string(most);
    EXPECT_EQ(Restore(Asked(name), 1, settings, nullptr, most).code(), Code::kInterrupted);
    for (const char* clip : {"one", "two"}) {
      const auto names = ListDir(folder_ / (name + "/" + clip));
      if (names.ok()) EXPECT_EQ(names->size(), clip == std::string("one") ? 9 : 5);  // whole or not at all
    }
    // Other settings are noticed, and nothing is lost by it.
    const Status other = Restore(Asked(name), 1, {{"--tile", "32"}});
    EXPECT_EQ(other.code(), Code::kUsage);
    EXPECT_THAT(other.message(), HasSubstr("--tile (32, was 16)"));
    uint64_t kept = 0;
    const Status status = Restore(Asked(name), 2, settings, &kept);
    ASSERT_TRUE(status.ok()) << status.ToString();
    if (most > 2) EXPECT_GT(kept, 0U) << most;
    EXPECT_EQ(Files(name), Files("alone")) << most;
  }
}

TEST_F(RestoreRun, ACompleteOutputIsKnownByItsRecord) {
  const nlohmann::json settings = {{"--tile", "16"}, {"the weights", "xxh3-128:1"}};
  ASSERT_TRUE(Restore(Asked("sharp"), 1, settings).ok());
  const auto before = Files("sharp");
  EXPECT_TRUE(Restore(Asked("sharp"), 1, settings, nullptr, /*most_tiles=*/0).ok());  // nothing is computed
  nlohmann::json other = settings;
  other["the weights"] = "xxh3-128:2";
  EXPECT_THAT(Restore(Asked("sharp"), 1, other).message(), HasSubstr("the weights"));
  // One clip is gone, one changed.
  ASSERT_TRUE(RemoveAll(folder_ / "sharp/two").ok());
  uint64_t kept = 0;
  EXPECT_TRUE(Restore(Asked("sharp"), 1, settings, &kept, /*most_tiles=*/9 * 2).ok());  // of "two" alone
  EXPECT_EQ(Files("sharp"), before);
  ASSERT_TRUE(RemoveAll(folder_ / "sharp/one/3.png").ok());
  EXPECT_THAT(Restore(Asked("sharp"), 1, settings).message(), HasSubstr("1 of its 9 frames"));
  MediaOptions overwrite = Asked("sharp");
  overwrite.out.overwrite = true;
  EXPECT_TRUE(Restore(overwrite, 1, other).ok());
  EXPECT_EQ(Files("sharp"), before);
  // What is not ours is left alone.
  ASSERT_TRUE(MakeDirs(folder_ / "mine/one").ok());
  ASSERT_TRUE(WriteFileAtomic(folder_ / "mine/one/letter.txt", "x").ok());
  MediaOptions mine = Asked("mine");
  EXPECT_THAT(Restore(mine, 1, settings).message(), HasSubstr("exists"));
  mine.out.overwrite = true;
  EXPECT_THAT(Restore(mine, 1, settings).message(), HasSubstr("not replaced"));
  EXPECT_TRUE(FileExists(folder_ / "mine/one/letter.txt"));
}

TEST_F(RestoreRun, WhatHasNoWindowYetMayBeginWithOtherSettings) {
  const MediaOptions options = Asked("sharp");
  const auto clips = FindRestoreClips(options, 0);
  ASSERT_TRUE(WorkFolder::Open(options, {{"--tile-batch", "4"}}, *clips, tiles_).ok());  // and was killed
  EXPECT_TRUE(Restore(options, 1, {{"--tile-batch", "1"}}).ok());
}

TEST_F(RestoreRun, OneProcessAtATime) {
  const nlohmann::json settings = {{"--tile", "16"}};
  const MediaOptions options = Asked("sharp");
  const auto clips = FindRestoreClips(options, 0);
  const auto first = WorkFolder::Open(options, settings, *clips, tiles_);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_THAT(WorkFolder::Open(options, settings, *clips, tiles_).status().message(), HasSubstr("another process"));
}

TEST_F(RestoreRun, ValuesThatAreNotFiniteAreAnErrorAndNothingIsPublished) {
  const MediaOptions options = Asked("sharp");
  const auto clips = FindRestoreClips(options, 0);
  const nlohmann::json settings = nlohmann::json::object();
  auto work = WorkFolder::Open(options, settings, *clips, tiles_);
  ASSERT_TRUE(work.ok());
  RestoreLoop loop;
  loop.tasks.push_back({&(*clips)[0], 0, FrameWindows(9, tiles_), (*clips)[0].shape});
  loop.units = {{0, 0}, {0, 1}};
  loop.assembled = {0};
  loop.tiles = tiles_;
  loop.forward = [](const at::Tensor& x) { return x / 0.0; };
  loop.assembling.settings = settings;
  const auto outcome = RunRestoreLoop(WorkFiles(options.output), options, loop, nullptr);
  EXPECT_THAT(outcome.status().message(), HasSubstr("not finite"));
  EXPECT_FALSE(FileExists(options.output));
}

}  // namespace
}  // namespace lockstep::media
