#include "logs/log_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "log_test_tools.h"

namespace lockstep::logs {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string NumberedLines(int from, int to) {
  std::string text;
  for (int i = from; i < to; ++i) text += "line " + std::to_string(i) + " with a little more to say\n";
  return text;
}

// Oldest first: name.N ... name.1, name.
std::string Concatenated(const std::string& path, int files) {
  std::string text;
  for (int n = files; n >= 1; --n) text += ReadAll(path + "." + std::to_string(n));
  return text + ReadAll(path);
}

TEST(LogFile, MakesItsFoldersAndAppends) {
  Folder folder;
  const std::string path = folder / "attempt-0/node-1/rank-3.log";
  LogFile file(path, {});
  file.Write("one\n", Clock::now());
  file.Write("two\n", Clock::now());
  file.Close(Clock::now());
  EXPECT_EQ(ReadAll(path), "one\ntwo\n");
  EXPECT_EQ(file.counts().stored, 8u);
  EXPECT_EQ(file.counts().lost, 0u);
}

TEST(LogFile, RotatesAtLineEndsWithoutLosingAByte) {
  Folder folder;
  const std::string path = folder / "rank-0.log";
  const std::string text = NumberedLines(0, 1000);
  LogFile file(path, {.bytes = 4096, .keep = 100});
  // Pieces that are cut anywhere, also inside lines.
  for (size_t at = 0; at < text.size(); at += 701) file.Write(std::string_view(text).substr(at, 701), Clock::now());
  file.Close(Clock::now());
  const int rotated = static_cast<int>(file.counts().rotations);
  ASSERT_GT(rotated, 5);
  EXPECT_EQ(Concatenated(path, rotated), text);
  for (int n = 1; n <= rotated; ++n) {
    const std::string part = ReadAll(path + "." + std::to_string(n));
    EXPECT_EQ(part.back(), '\n');
    EXPECT_THAT(part, testing::StartsWith("line "));
    EXPECT_LE(part.size(), 4096u + 64u);
  }
}

TEST(LogFile, OneHugeWriteIsSpreadOverFiles) {
  Folder folder;
  const std::string path = folder / "rank-0.log";
  const std::string text = NumberedLines(0, 2000);
  LogFile file(path, {.bytes = 10000, .keep = 50});
  file.Write(text, Clock::now());
  EXPECT_EQ(Concatenated(path, static_cast<int>(file.counts().rotations)), text);
  EXPECT_EQ(file.counts().rotations, (text.size() - 1) / 10000);
}

TEST(LogFile, KeepsOnlyTheNewestRotatedFiles) {
  Folder folder;
  const std::string path = folder / "rank-0.log";
  const std::string text = NumberedLines(0, 1000);
  LogFile file(path, {.bytes = 2000, .keep = 2});
  file.Write(text, Clock::now());
  file.Close(Clock::now());
  EXPECT_TRUE(fs::exists(path + ".1"));
  EXPECT_TRUE(fs::exists(path + ".2"));
  EXPECT_FALSE(fs::exists(path + ".3"));
  const std::string kept = Concatenated(path, 2);
  EXPECT_EQ(kept, text.substr(text.size() - kept.size()));
}

TEST(LogFile, KeepNoneStartsOver) {
  Folder folder;
  const std::string path = folder / "rank-0.log";
  LogFile file(path, {.bytes = 100, .keep = 0});
  file.Write(NumberedLines(0, 50), Clock::now());
  file.Close(Clock::now());
  EXPECT_FALSE(fs::exists(path + ".1"));
  EXPECT_THAT(ReadAll(path), HasSubstr("line 49 "));
  EXPECT_LE(ReadAll(path).size(), 100u);
}

TEST(LogFile, ALineLongerThanAFileIsCutButComplete) {
  Folder folder;
  const std::string path = folder / "rank-0.log";
  const std::string text = std::string(1000, 'x') + "\nshort\n";
  LogFile file(path, {.bytes = 300, .keep = 10});
  file.Write(text, Clock::now());
  file.Close(Clock::now());
  EXPECT_EQ(Concatenated(path, static_cast<int>(file.counts().rotations)), text);
}

TEST(LogFile, LeftOversOfALongerKeepAreRemoved) {
  Folder folder;
  const std::string path = folder / "rank-0.log";
  for (int n : {1, 2, 3, 17}) WriteAll(OpenForWriting(path + "." + std::to_string(n)).get(), "old\n");
  WriteAll(OpenForWriting(path + ".txt").get(), "not ours\n");
  LogFile file(path, {.bytes = 1000, .keep = 2});
  file.Write("x\n", Clock::now());
  EXPECT_TRUE(fs::exists(path + ".2"));
  EXPECT_FALSE(fs::exists(path + ".3"));
  EXPECT_FALSE(fs::exists(path + ".17"));
  EXPECT_TRUE(fs::exists(path + ".txt"));
}

TEST(LogFile, AFullDiskLosesBytesCountsThemAndSaysSoWhenItRecovers) {
  Folder folder;
  const std::string path = folder / "rank-0.log";
  fs::create_symlink("/dev/full", path);
  LogFile file(path, {});
  const auto t0 = Clock::now();
  file.Write("0123456789\n", t0);
  EXPECT_EQ(file.counts().lost, 11u);
  EXPECT_EQ(file.counts().first_errno, ENOSPC);

  fs::remove(path);
  file.Write("too early\n", t0 + LogFile::kRetry / 2);
  EXPECT_EQ(file.counts().lost, 21u) << "a failing disk is not tried for every line";
  EXPECT_FALSE(fs::exists(path));

  file.Write("back again\n", t0 + LogFile::kRetry * 2);
  EXPECT_EQ(ReadAll(path), "[lockstep: 21 bytes lost: disk full]\nback again\n");
  EXPECT_EQ(file.counts().lost, 21u);
  EXPECT_EQ(file.counts().stored, 11u);
}

TEST(LogFile, ALossAtTheEndIsSaidOnClosing) {
  Folder folder;
  const std::string path = folder / "rank-0.log";
  LogFile file(path, {});
  file.Write("half a line", Clock::now());
  file.Lose(7, ETIMEDOUT);
  file.Close(Clock::now());
  EXPECT_EQ(ReadAll(path), "half a line\n[lockstep: 7 bytes lost: disk did not answer]\n");
}

TEST(LogFile, AVanishedFolderIsMadeAgain) {
  Folder folder;
  const std::string path = folder / "deep/rank-0.log";
  LogFile file(path, {});
  const auto t0 = Clock::now();
  file.Write("before\n", t0);
  fs::remove_all(folder / "deep");
  file.Write("after\n", t0 + seconds(2));
  file.Close(t0 + seconds(2));
  EXPECT_EQ(ReadAll(path), "after\n");
}

TEST(LogFile, AFolderThatCannotBeMadeIsALossNotAFailure) {
  Folder folder;
  WriteAll(OpenForWriting(folder / "plain").get(), "a file where a folder should be\n");
  LogFile file(folder / "plain/rank-0.log", {});
  file.Write("lost\n", Clock::now());
  EXPECT_EQ(file.counts().lost, 5u);
  EXPECT_EQ(file.counts().first_errno, ENOTDIR);
}

// A real filesystem of 64 KiB, in a mount namespace of this process.
TEST(LogFile, ARealFullFilesystemKeepsWhatFitsAndGoesOnAfterwards) {
  if (::unshare(CLONE_NEWNS) != 0) {
    const char* allowed = std::getenv("LOCKSTEP_ALLOW_SKIP");
    if (allowed != nullptr && std::strstr(allowed, "mount") != nullptr)
      GTEST_SKIP() << "needs the right to mount (root)";
    FAIL() << "needs the right to mount (root); LOCKSTEP_ALLOW_SKIP=mount lets this test be skipped";
  }
  Folder folder;
  ASSERT_EQ(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0) << strerror(errno);
  ASSERT_EQ(::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=64k"), 0) << strerror(errno);
  const std::string path = folder / "rank-0.log";
  {
    LogFile file(path, {});
    WriteAll(OpenForWriting(folder / "ballast").get(), std::string(40000, 'b'));
    const std::string text = NumberedLines(0, 4000);
    const auto t0 = Clock::now();
    file.Write(text, t0);
    EXPECT_EQ(file.counts().first_errno, ENOSPC);
    EXPECT_EQ(file.counts().stored + file.counts().lost, text.size());
    EXPECT_EQ(ReadAll(path), text.substr(0, file.counts().stored));
    file.Write("still full\n", t0 + seconds(2));
    fs::remove(folder / "ballast");
    file.Write("room again\n", t0 + seconds(4));
    file.Close(t0 + seconds(4));
    EXPECT_THAT(ReadAll(path), testing::EndsWith(" bytes lost: disk full]\nroom again\n"));
    EXPECT_EQ(file.counts().stored + file.counts().lost, text.size() + 11 + 11);
  }
  ::umount(folder.path().c_str());
}

}  // namespace
}  // namespace lockstep::logs
