// An index that is made in several attempts: what one process found out, the next one knows.
#include "data/index_journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "data/sources.h"
#include "pictures.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

class JournalTest : public testing::Test {
 protected:
  TempDir dir_ = *TempDir::Create();
  const std::string path_ = dir_ / "x.partial";
};

TEST_F(JournalTest, RecordsOutliveTheProcessAndACutOneIsLeftOut) {
  {
    const auto journal = IndexJournal::Open(path_, "one");
    ASSERT_TRUE(journal.ok()) << journal.status().ToString();
    EXPECT_EQ((*journal)->known(), 0);
    (*journal)->Add("a", "first");
    (*journal)->Add("b", std::string(1000, '\0'));
    (*journal)->Add("c", "");
  }
  const std::string whole = *ReadFile(path_);
  for (size_t bytes = 0; bytes <= whole.size(); bytes += bytes % 7 + 1) {
    ASSERT_TRUE(WriteFileAtomic(path_, whole.substr(0, bytes), 0644, Durability::kProcess).ok());
    {
      const auto journal = IndexJournal::Open(path_, "one");
      ASSERT_TRUE(journal.ok()) << bytes;
      if (const std::string* value = (*journal)->Find("b")) EXPECT_EQ(*value, std::string(1000, '\0'));
      (*journal)->Add("d", "after");
    }
    const auto again = IndexJournal::Open(path_, "one");
    ASSERT_NE((*again)->Find("d"), nullptr) << "what is added after a cut record is found: " << bytes;
  }
  ASSERT_TRUE(WriteFileAtomic(path_, whole).ok());
  EXPECT_EQ((*IndexJournal::Open(path_, "one"))->known(), 3);
  EXPECT_EQ((*IndexJournal::Open(path_, "two"))->known(), 0) << "of other data or options";
}

TEST_F(JournalTest, OneProcessAtATime) {
  const auto first = IndexJournal::Open(path_, "one");
  EXPECT_THAT(IndexJournal::Open(path_, "one").status().message(), HasSubstr("is in use"));
}

// A process that makes an index is killed while it waits for a picture that does not come (a pipe); the next one goes
// on.
TEST_F(JournalTest, AKilledIndexGoesOnWhereItWasWithTheSameBytes) {
  const std::string folder = dir_ / "pictures";
  ASSERT_TRUE(MakeDirs(folder).ok());
  for (int i = 0; i < 40; ++i) WritePng(fmt::format("{}/{}.png", folder, i), Flat(16 + i, 16, 9));
  const SourceConfig config{.kind = "images", .path = folder, .frames = 1};
  const IndexOptions options{.sizes = true};
  const std::string wanted = *IndexSource(config, options);
  const std::string held = folder + "/17.png", aside = dir_ / "17.png";
  ASSERT_EQ(::rename(held.c_str(), aside.c_str()), 0);
  ASSERT_EQ(::mkfifo(held.c_str(), 0600), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto journal = IndexJournal::Open(path_, "one");
    SourceConfig making = config;
    making.journal = journal->get();
    IndexSource(making, options).ok();
    ::_exit(0);
  }
  // All but one are in the journal: 40 bytes a record at least.
  size_t bytes = 0;
  for (size_t records = 0; records < 39;) {
    const Result<std::string> text = ReadFile(path_);
    records = 0;
    for (int i = 0; i < 40; ++i) {
      if (text.ok() && text->find(fmt::format("video {} {}.png", folder, i)) != std::string::npos) ++records;
    }
    bytes = text.ok() ? text->size() : 0;
  }
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_GT(bytes, 39u * 40);

  ASSERT_EQ(::unlink(held.c_str()), 0);
  ASSERT_EQ(::rename(aside.c_str(), held.c_str()), 0);
  // What the killed process had read is not read again: these are no pictures any more.
  for (int i = 0; i < 40; ++i) {
    const std::string picture = fmt::format("{}/{}.png", folder, i);
    if (i != 17)
      ASSERT_TRUE(
          WriteFileAtomic(picture, std::string(ReadFile(picture)->size(), 'x'), 0644, Durability::kProcess).ok());
  }
  const auto journal = IndexJournal::Open(path_, "one");
  ASSERT_EQ((*journal)->known(), 39);
  SourceConfig making = config;
  making.journal = journal->get();
  EXPECT_EQ(*IndexSource(making, options), wanted);
}

TEST_F(JournalTest, AShardThatChangedIsListedAgain) {
  const std::string shard = dir_ / "a.tar";
  const auto tar = [&](const std::string& name) {
    const std::string made =
        fmt::format("cd {} && rm -f *.png && printf x > {} && tar cf a.tar {}", dir_.path(), name, name);
    ASSERT_EQ(std::system(made.c_str()), 0);
  };
  tar("one.png");
  const SourceConfig config{.kind = "tar", .path = shard, .frames = 1};
  const auto index = [&] {
    const auto journal = IndexJournal::Open(path_, "one");
    SourceConfig making = config;
    making.journal = journal->get();
    return std::pair{(*journal)->known(), *IndexSource(making)};
  };
  const auto first = index();
  EXPECT_EQ(first.second, *IndexSource(config));
  EXPECT_EQ(index(), (std::pair{size_t{1}, first.second}));
  tar("two.png");
  const timespec later[2] = {{2000000000, 0}, {2000000000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, shard.c_str(), later, 0), 0);
  EXPECT_THAT(index().second, HasSubstr("two.png"));
}

}  // namespace
}  // namespace lockstep::data
