#include "base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/fd.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FilesTest : public testing::Test {
 protected:
  TempDir dir_ = *TempDir::Create();
};

// A disk with room for `bytes` more in any one file: the system then cuts writes short and refuses the rest.
class TightDisk {
 public:
  explicit TightDisk(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit tight = before_;
    tight.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &tight);
  }
  ~TightDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(FilesTest, WhatIsPublishedIsReadBack) {
  std::string data("a\0b\n", 4);
  ASSERT_TRUE(WriteFileAtomic(dir_ / "f", data).ok());
  EXPECT_EQ(*ReadFile(dir_ / "f"), data);
  ASSERT_TRUE(WriteFileAtomic(dir_ / "f", "", 0600, Durability::kProcess).ok());
  EXPECT_EQ(*ReadFile(dir_ / "f"), "");
  EXPECT_THAT(*ListDir(dir_.path()), ElementsAre("f"));
}

TEST_F(FilesTest, APipeOrADeviceIsWrittenIntoAndNotReplaced) {
  const std::string pipe = dir_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const UniqueFd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);
  ASSERT_TRUE(WriteFileAtomic(pipe, "report").ok());
  char read[16] = {};
  EXPECT_EQ(::read(reader.get(), read, sizeof read), 6);
  EXPECT_STREQ(read, "report");
  struct stat info{};
  ASSERT_EQ(::stat(pipe.c_str(), &info), 0);
  EXPECT_TRUE(S_ISFIFO(info.st_mode));
}

TEST_F(FilesTest, ThePublishedFileHasTheModeAsked) {
  mode_t before = ::umask(022);
  ASSERT_TRUE(WriteFileAtomic(dir_ / "secret", "x", 0600).ok());
  ::umask(before);
  struct stat info{};
  ASSERT_EQ(::stat((dir_ / "secret").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(FilesTest, AFullDiskKeepsTheOldContentAndLeavesNoTemporaryFile) {
  ASSERT_TRUE(WriteFileAtomic(dir_ / "f", "old").ok());
  {
    TightDisk tight(1000);
    Status status = WriteFileAtomic(dir_ / "f", std::string(5000, 'x'));
    EXPECT_EQ(status.code(), Code::kEnvironment);
    EXPECT_THAT(status.message(), HasSubstr("cannot write '" + (dir_ / "f") + "': EFBIG"));
  }
  EXPECT_EQ(*ReadFile(dir_ / "f"), "old");
  EXPECT_THAT(*ListDir(dir_.path()), ElementsAre("f"));
}

TEST_F(FilesTest, AppendingToAFullDiskSaysSoAndWhatToDo) {
  Status status = AppendLine("/dev/full", "x");
  EXPECT_EQ(status.code(), Code::kEnvironment);
  EXPECT_THAT(status.message(), HasSubstr("ENOSPC"));
  EXPECT_THAT(status.hint(), HasSubstr("the disk is full"));
}

TEST_F(FilesTest, AFolderThatTakesNoFilesIsNamed) {
  Status status = WriteFileAtomic("/proc/new-file", "x");
  EXPECT_EQ(status.code(), Code::kEnvironment);
  EXPECT_THAT(status.message(), HasSubstr("cannot create '/proc/new-file'"));
  EXPECT_FALSE(WriteFileAtomic(dir_ / "none/f", "x").ok());
  EXPECT_THAT(FileError("open", "/x", EACCES).hint(), HasSubstr("owner and mode"));
}

TEST_F(FilesTest, PublishingOverAFolderFailsAndLeavesNoTemporaryFile) {
  ASSERT_TRUE(MakeDirs(dir_ / "d/inner").ok());
  EXPECT_FALSE(WriteFileAtomic(dir_ / "d", "x").ok());
  EXPECT_THAT(*ListDir(dir_.path()), ElementsAre("d"));
}

TEST_F(FilesTest, AReaderBesideAWriterNeverSeesAPart) {
  std::string a(100000, 'a'), b(200000, 'b');
  std::string path = dir_ / "f";
  ASSERT_TRUE(WriteFileAtomic(path, a).ok());
  std::thread writer([&] {
    for (int i = 0; i < 200; ++i) (void)WriteFileAtomic(path, i % 2 == 0 ? b : a, 0644, Durability::kProcess);
  });
  for (int i = 0; i < 200; ++i) {
    std::string seen = *ReadFile(path);
    ASSERT_TRUE(seen == a || seen == b) << seen.size();
  }
  writer.join();
}

TEST_F(FilesTest, ReadingIsBounded) {
  ASSERT_TRUE(WriteFileAtomic(dir_ / "f", std::string(100, 'x')).ok());
  EXPECT_TRUE(ReadFile(dir_ / "f", 100).ok());
  EXPECT_THAT(ReadFile(dir_ / "f", 99).status().message(), HasSubstr("larger than the 99 bytes"));
  EXPECT_FALSE(ReadFile("/dev/zero", 1000).ok());
}

TEST_F(FilesTest, FilesWhoseSizeIsUnknownAreReadWhole) {
  Result<std::string> text = ReadFile("/proc/self/status");
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("Pid:"));
}

TEST_F(FilesTest, ReadingNamesTheReason) {
  EXPECT_THAT(ReadFile(dir_ / "none").status().message(), HasSubstr("ENOENT"));
  EXPECT_THAT(ReadFile(dir_.path()).status().message(), HasSubstr("EISDIR"));
}

TEST_F(FilesTest, ConcurrentAppendersDoNotMixTheirLines) {
  std::string path = dir_ / "lines";
  std::vector<std::thread> threads;
  for (char c : {'a', 'b', 'c', 'd'}) {
    threads.emplace_back([&, c] {
      for (int i = 0; i < 200; ++i) (void)AppendLine(path, std::string(300, c));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string text = *ReadFile(path);
  ASSERT_EQ(text.size(), 4u * 200u * 301u);
  for (size_t i = 0; i < text.size(); i += 301) {
    EXPECT_EQ(text.substr(i, 301), std::string(300, text[i]) + "\n");
  }
}

TEST_F(FilesTest, FoldersAreMadeDownToTheLast) {
  ASSERT_TRUE(MakeDirs(dir_ / "a/b//c/").ok());
  ASSERT_TRUE(MakeDirs(dir_ / "a/b/c").ok());
  ASSERT_TRUE(MakeDirs("/").ok());
  EXPECT_THAT(*ListDir(dir_ / "a/b"), ElementsAre("c"));
  ASSERT_TRUE(WriteFileAtomic(dir_ / "file", "x").ok());
  Status status = MakeDirs(dir_ / "file/x");
  EXPECT_THAT(status.message(), HasSubstr("'" + (dir_ / "file") + "': ENOTDIR"));
  EXPECT_FALSE(MakeDirs("").ok());
}

TEST_F(FilesTest, ATemporaryFolderGoesWithItsContent) {
  std::string path;
  {
    TempDir temp = *TempDir::Create();
    path = temp.path();
    ASSERT_TRUE(MakeDirs(temp / "a/b").ok());
    TempDir moved = std::move(temp);
    EXPECT_EQ(::access(path.c_str(), F_OK), 0);
  }
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST_F(FilesTest, RemoveAllTakesFoldersAndFilesAndLeavesWhatLinksPointTo) {
  ASSERT_TRUE(MakeDirs(dir_ / "kept").ok());
  ASSERT_TRUE(WriteFileAtomic(dir_ / "kept/file", "x").ok());
  ASSERT_TRUE(MakeDirs(dir_ / "gone/deep").ok());
  ASSERT_TRUE(WriteFileAtomic(dir_ / "gone/deep/file", "x").ok());
  ASSERT_EQ(::symlink((dir_ / "kept").c_str(), (dir_ / "gone/link").c_str()), 0);
  EXPECT_TRUE(RemoveAll(dir_ / "gone").ok());
  EXPECT_NE(::access((dir_ / "gone").c_str(), F_OK), 0);
  EXPECT_EQ(*ReadFile(dir_ / "kept/file"), "x");
  EXPECT_TRUE(RemoveAll(dir_ / "kept/file").ok());
  EXPECT_TRUE(RemoveAll(dir_ / "never-there").ok());
  EXPECT_NE(RemoveAll("/proc/self").message().find("/proc/self"), std::string::npos);
}

TEST_F(FilesTest, NoDescriptorIsLeakedBySuccessOrFailure) {
  auto count = [] { return ListDir("/proc/self/fd")->size(); };
  size_t before = count();
  for (int i = 0; i < 20; ++i) {
    (void)WriteFileAtomic(dir_ / "f", "x", 0644, Durability::kProcess);
    (void)WriteFileAtomic("/proc/nope", "x");
    (void)ReadFile(dir_ / "f");
    (void)ReadFile(dir_.path());
    (void)AppendLine("/dev/full", "x");
    (void)ListDir(dir_.path());
  }
  EXPECT_EQ(count(), before);
}

}  // namespace
}  // namespace lockstep
