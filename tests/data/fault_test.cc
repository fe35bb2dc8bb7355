// Every kind of damage, made in real files and read by the sources that meet it.
#include "data/fault.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "base/files.h"
#include "data/sources.h"
#include "pictures.h"

namespace lockstep::data {
namespace {

class FaultTest : public testing::Test {
 protected:
  void Put(const std::string& name, const std::string& content) {
    ASSERT_TRUE(WriteFileAtomic(dir_ / name, content, 0644, Durability::kProcess).ok());
  }
  // Of reading the first sample after `damage` was done to a good one.
  std::string FaultAfter(const SourceConfig& config, const std::function<void()>& damage) {
    Result<std::unique_ptr<Source>> source = OpenSource(config);
    EXPECT_TRUE(source.ok()) << source.status().ToString();
    if (!source.ok()) return "";
    damage();
    std::vector<uint8_t> out((*source)->fields()[0].bytes());
    std::byte* data = reinterpret_cast<std::byte*>(out.data());
    status_ = (*source)->Read({}, {&data, 1});
    EXPECT_FALSE(status_.ok());
    return FaultOf(status_);
  }
  SourceConfig Config(const std::string& kind, int frames) {
    return {.kind = kind, .path = dir_.path(), .frames = frames, .height = 8, .width = 8};
  }

  TempDir dir_ = *TempDir::Create();
  Status status_;
};

TEST_F(FaultTest, OfPictures) {
  const std::string png = *EncodePng(Pattern(40, 30).rgb, 40, 30);
  const std::string name = "truncated ENOENT.png";  // names decide nothing
  const std::string path = dir_ / name;
  std::string flipped = png;
  for (size_t i = 60; i < 80; ++i) flipped[i] = static_cast<char>(flipped[i] ^ 0x55);
  const std::vector<std::pair<const char*, std::function<void()>>> rows = {
      {"truncated", [&] { Put(name, png.substr(0, png.size() / 2)); }},
      {"decode", [&] { Put(name, flipped); }},
      {"decode", [&] { Put(name, "no picture at all"); }},
      {"vanished", [&] { ASSERT_EQ(::unlink(path.c_str()), 0); }},
      {"io", [&] { ASSERT_TRUE(::unlink(path.c_str()) == 0 && MakeDirs(path).ok()); }},
  };
  for (const auto& [fault, damage] : rows) {
    ASSERT_TRUE(RemoveAll(path).ok());
    Put(name, png);
    EXPECT_EQ(FaultAfter(Config("images", 1), damage), fault) << status_.message();
  }
}

TEST_F(FaultTest, OfAJpegThatWasCut) {
  const std::string jpeg = JpegOf(40, 30, JCS_RGB, Pattern(40, 30).rgb);
  Put("a.jpg", jpeg);
  EXPECT_EQ(FaultAfter(Config("images", 1), [&] { Put("a.jpg", jpeg.substr(0, jpeg.size() * 2 / 3)); }),
            std::string("truncated"))
      << status_.message();
}

TEST_F(FaultTest, OfClips) {
  ASSERT_TRUE(MakeDirs(dir_ / "v").ok());
  for (int i = 0; i < 3; ++i) WritePng(dir_ / fmt::format("v/{}.png", i), Flat(20, 16, 9));
  EXPECT_EQ(FaultAfter(Config("frames", 3), [&] { WritePng(dir_ / "v/1.png", Flat(21, 16, 9)); }), "shape");
  ASSERT_TRUE(MakeDirs(dir_ / "a-short").ok());
  WritePng(dir_ / "a-short/0.png", Flat(20, 16, 9));
  EXPECT_EQ(FaultAfter(Config("frames", 3), [] {}), "shape") << status_.message();
}

TEST_F(FaultTest, OfVideos) {
  if (!HasVideo()) GTEST_SKIP() << "this build reads no video files";
  Put("a.mp4", "no video at all");
  EXPECT_EQ(FaultAfter(Config("videos", 3), [] {}), "decode") << status_.message();
  EXPECT_EQ(FaultAfter(Config("videos", 3), [&] { ASSERT_EQ(::unlink((dir_ / "a.mp4").c_str()), 0); }), "vanished")
      << status_.message();
}

TEST_F(FaultTest, OfTheFileSystem) {
  const std::pair<Status, std::string> rows[] = {
      {FileError("read", "x", EIO), "io"},
      {FileError("open", "x", EACCES), "io"},
      {FileError("read", "x", ESTALE), "vanished"},
      {Status(Code::kTimeout, "reading takes long"), "timeout"},
      {Status(Code::kEnvironment, "'a.png' cannot be decoded: PNG: Extra compressed data"), "decode"},
      {Status(Code::kInternal, "reading failed: thrown"), "other"},
  };
  for (const auto& [status, fault] : rows) EXPECT_EQ(FaultOf(status), fault) << status.message();
}

}  // namespace
}  // namespace lockstep::data
