#include "data/listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "base/files.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(NaturalLessTest, OrdersNumbersByValue) {
  std::vector<std::string> names = {
      "f10", "f9", "f2b", "f2a", "f1", "g", "f", "F3", "f02", "f2", "f1000000000000000000000000"};
  std::ranges::sort(names, NaturalLess);
  EXPECT_THAT(names,
              ElementsAre("F3", "f", "f1", "f02", "f2", "f2a", "f2b", "f9", "f10", "f1000000000000000000000000", "g"));
}

TEST(NaturalLessTest, IsAnOrder) {
  const std::vector<std::string> names = {"",    "0",  "00",   "1",   "01", "a", "a0",
                                          "a00", "a1", "a01b", "a1a", "1a", "b", "a10"};
  for (const auto& a : names) {
    EXPECT_FALSE(NaturalLess(a, a));
    for (const auto& b : names) {
      if (a != b) {
        EXPECT_NE(NaturalLess(a, b), NaturalLess(b, a)) << a << " " << b;
      }
      for (const auto& c : names) {
        if (NaturalLess(a, b) && NaturalLess(b, c)) {
          EXPECT_TRUE(NaturalLess(a, c)) << a << " " << b << " " << c;
        }
      }
    }
  }
}

class ListingTest : public testing::Test {
 protected:
  void Touch(const std::string& name) {
    const std::string path = dir_ / name;
    ASSERT_TRUE(MakeDirs(path.substr(0, path.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomic(path, "x", 0644, Durability::kProcess).ok());
  }
  TempDir dir_ = *TempDir::Create();
};

TEST_F(ListingTest, ListsEveryFolderOnceInNaturalOrder) {
  for (const char* name : {"v10/2.png", "v10/10.png", "v2/1.png", "top.txt", ".hidden/x.png", "v2/._1.png"})
    Touch(name);
  ASSERT_EQ(::symlink(dir_.path().c_str(), (dir_ / "v2/loop").c_str()), 0);
  ASSERT_EQ(::symlink((dir_ / "nowhere").c_str(), (dir_ / "dangling.png").c_str()), 0);
  Result<std::vector<Folder>> folders = ListFolders(dir_.path());
  ASSERT_TRUE(folders.ok());
  ASSERT_EQ(folders->size(), 3);
  EXPECT_EQ((*folders)[0].name, "");
  EXPECT_THAT((*folders)[0].files, ElementsAre("dangling.png", "top.txt"));
  EXPECT_EQ((*folders)[1].name, "v2");
  EXPECT_THAT((*folders)[1].files, ElementsAre("1.png"));
  EXPECT_THAT((*folders)[2].files, ElementsAre("2.png", "10.png"));
  EXPECT_EQ(SummarizeFiles(*folders), "5 files: 4 .png, 1 .txt");
}

TEST_F(ListingTest, SaysWhatIsWrongWithTheFolder) {
  EXPECT_THAT(ListFolders(dir_ / "absent").status().message(), HasSubstr("absent"));
  Touch("file");
  EXPECT_THAT(ListFolders(dir_ / "file").status().message(), HasSubstr("ENOTDIR"));
}

TEST(NameTest, KnowsPicturesAndVideosByTheirEnding) {
  for (const char* name : {"a.png", "a.JPG", "b.c.jpeg"}) EXPECT_TRUE(IsImageName(name));
  for (const char* name : {"a", "png", ".png", "a.png.txt", "a.gif", ""}) EXPECT_FALSE(IsImageName(name));
  EXPECT_TRUE(IsVideoName("x.Mp4"));
  EXPECT_FALSE(IsVideoName("x.png"));
}

}  // namespace
}  // namespace lockstep::data
