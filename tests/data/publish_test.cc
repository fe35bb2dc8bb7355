// Output that appears whole or not at all: files, folders of frames, tensors by time steps.
#include "data/publish.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "base/files.h"
#include "base/safetensors.h"
#include "data/frame_folder.h"
#include "data/tensor_stream.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PublishTest : public testing::Test {
 protected:
  void Store(const std::string& name, const std::string& bytes) {
    ASSERT_TRUE(WriteFileAtomic(dir_ / name, bytes, 0644, Durability::kProcess).ok());
  }
  std::vector<std::string> Names(const std::string& below = "") { return *ListDir(dir_.path() + below); }
  TempDir dir_ = *TempDir::Create();
};

TEST_F(PublishTest, AFileAppearsAtTheEndUnderItsName) {
  Result<Publication> place = Publication::File(dir_ / "a", false);
  ASSERT_TRUE(place.ok());
  Store(std::filesystem::path(place->temporary()).filename(), "content");
  EXPECT_FALSE(std::filesystem::exists(dir_ / "a"));
  ASSERT_TRUE(place->Publish().ok());
  EXPECT_THAT(Names(), ElementsAre("a"));
  EXPECT_EQ(*ReadFile(dir_ / "a"), "content");
}

TEST_F(PublishTest, WithoutPublishNothingStaysAndTheOldIsUntouched) {
  Store("a", "old");
  {
    ASSERT_TRUE(Publication::File(dir_ / "a", true).ok());
  }
  {
    ASSERT_TRUE(Publication::Folder(dir_ / "b", false).ok());
  }
  EXPECT_THAT(Names(), ElementsAre("a"));
  EXPECT_EQ(*ReadFile(dir_ / "a"), "old");
}

TEST_F(PublishTest, WhatExistsIsReplacedOnlyWhenAsked) {
  Store("a", "old");
  EXPECT_THAT(Publication::File(dir_ / "a", false).status().ToString(), HasSubstr("--overwrite"));
  EXPECT_EQ(Publication::File(dir_ / "a", false).status().code(), Code::kUsage);
  Result<Publication> late = Publication::File(dir_ / "b", false);
  Store("b", "somebody else's");
  EXPECT_THAT(late->Publish().message(), HasSubstr("b' exists"));
  EXPECT_EQ(*ReadFile(dir_ / "b"), "somebody else's");
}

TEST_F(PublishTest, AFolderIsReplacedOnlyIfItHoldsNumberedPictures) {
  ASSERT_TRUE(MakeDirs(dir_ / "frames").ok());
  Store("frames/000001.png", "1");
  Store("frames/000002.png", "2");
  {
    Result<Publication> place = Publication::Folder(dir_ / "frames/", true);
    ASSERT_TRUE(place.ok()) << place.status().message();
    ASSERT_TRUE(WriteFileAtomic(place->temporary() + "/000001.png", "new").ok());
    ASSERT_TRUE(place->Publish().ok());
  }
  EXPECT_THAT(Names("/frames"), ElementsAre("000001.png"));
  EXPECT_THAT(Names(), ElementsAre("frames"));
  Store("frames/thesis.tex", "x");
  EXPECT_THAT(Publication::Folder(dir_ / "frames", true).status().message(), HasSubstr("thesis.tex"));
  EXPECT_THAT(Publication::File(dir_ / "frames", true).status().message(), HasSubstr("EISDIR"));
  Store("file", "x");
  EXPECT_FALSE(Publication::Folder(dir_ / "file", true).ok());
}

TEST_F(PublishTest, FramesGoThroughAFolder) {
  std::vector<uint8_t> rgb(5 * 3 * 3);
  std::iota(rgb.begin(), rgb.end(), uint8_t{1});
  {
    Result<FrameFolderWriter> writer = FrameFolderWriter::Create(dir_ / "f", false);
    ASSERT_TRUE(writer.ok());
    for (int i = 0; i < 11; ++i) {
      rgb[0] = static_cast<uint8_t>(i);
      ASSERT_TRUE(writer->Write(rgb.data(), 5, 3).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
  }
  EXPECT_EQ(Names("/f").front(), "000001.png");
  EXPECT_EQ(Names("/f").back(), "000011.png");
  Result<FrameFolderReader> reader = FrameFolderReader::Open(dir_ / "f");
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->frames(), 11);
  Image image;
  for (int i = 0; i < 11; ++i) {
    ASSERT_TRUE(*reader->Next(&image));
    rgb[0] = static_cast<uint8_t>(i);
    EXPECT_EQ(image.rgb, rgb);
  }
  EXPECT_FALSE(*reader->Next(&image));
}

TEST_F(PublishTest, PicturesOfMixedSizeAndFoldersWithoutAnyAreNamed) {
  ASSERT_TRUE(MakeDirs(dir_ / "m").ok());
  const std::vector<uint8_t> rgb(300, 9);
  Store("m/1.png", *EncodePng({rgb.data(), 12}, 2, 2));
  Store("m/2.png", *EncodePng({rgb.data(), 18}, 3, 2));
  Result<FrameFolderReader> reader = FrameFolderReader::Open(dir_ / "m");
  Image image;
  ASSERT_TRUE(*reader->Next(&image));
  EXPECT_THAT(reader->Next(&image).status().message(), HasSubstr("2.png' is 3x2, expected 2x2"));
  ASSERT_TRUE(MakeDirs(dir_ / "none").ok());
  EXPECT_THAT(FrameFolderReader::Open(dir_ / "none").status().message(), HasSubstr("has no frames: expected *.png"));
}

std::vector<float> Count(size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

TEST_F(PublishTest, ATensorOfUnknownLengthIsPlainSafetensorsAtTheEnd) {
  const std::vector<float> values = Count(7 * 2 * 3 * 4);
  Result<TensorStreamWriter> writer =
      TensorStreamWriter::Create(dir_ / "t.safetensors", "latents", Dtype::kF32, {1, -1, 2, 3, 4}, false);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  for (const int64_t steps : {3, 1, 3}) {
    static int64_t at = 0;
    ASSERT_TRUE(writer->Write(values.data() + at * 24, steps).ok());
    at += steps;
    EXPECT_FALSE(std::filesystem::exists(dir_ / "t.safetensors"));
  }
  ASSERT_TRUE(writer->Finish({{"frames", "25"}}).ok());
  Result<SafetensorsFile> file = SafetensorsFile::Open(dir_ / "t.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_THAT(file->Find("latents")->shape, ElementsAre(1, 7, 2, 3, 4));
  EXPECT_EQ(file->metadata().at("frames"), "25");
  std::vector<float> back(values.size());
  ASSERT_TRUE(file->Read("latents", back.data(), back.size() * 4).ok());
  EXPECT_EQ(back, values);
  EXPECT_THAT(Names(), ElementsAre("t.safetensors"));
}

TEST_F(PublishTest, SeveralClipsAreWrittenAndReadSideBySide) {
  // [3, 5, 1, 1, 2]: element = clip * 10 + time * 2 + column.
  const std::vector<float> values = Count(30);
  {
    Result<TensorStreamWriter> writer =
        TensorStreamWriter::Create(dir_ / "n.safetensors", "frames", Dtype::kF32, {3, 5, 1, 1, 2}, false);
    ASSERT_TRUE(writer.ok());
    const float first[] = {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23};
    const float rest[] = {4, 5, 6, 7, 8, 9, 14, 15, 16, 17, 18, 19, 24, 25, 26, 27, 28, 29};
    ASSERT_TRUE(writer->Write(first, 2).ok());
    EXPECT_THAT(writer->Finish({}).message(), HasSubstr("2 steps where 5 were announced"));
    ASSERT_TRUE(writer->Write(rest, 3).ok());
    EXPECT_THAT(writer->Write(rest, 1).message(), HasSubstr("6 steps where 5 were announced"));
    ASSERT_TRUE(writer->Finish({}).ok());
  }
  std::vector<float> back(30);
  ASSERT_TRUE(SafetensorsFile::Open(dir_ / "n.safetensors")->Read("frames", back.data(), 120).ok());
  EXPECT_EQ(back, values);
  Result<TensorStreamReader> reader = TensorStreamReader::Open(dir_ / "n.safetensors", "frames");
  ASSERT_TRUE(reader.ok());
  std::vector<float> piece(12);
  EXPECT_EQ(*reader->Next(2, piece.data()), 2);
  EXPECT_THAT(piece, ElementsAre(0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23));
  EXPECT_EQ(*reader->Next(2, piece.data()), 2);
  EXPECT_EQ(*reader->Next(2, piece.data()), 1);
  EXPECT_EQ(piece[2], 18);  // clip 1, time 4
  EXPECT_EQ(*reader->Next(2, piece.data()), 0);
}

TEST_F(PublishTest, OtherTensorsAreNamed) {
  {
    Result<SafetensorsWriter> writer =
        SafetensorsWriter::Create(dir_ / "o.safetensors", {{"video", Dtype::kU8, {2}}, {"frames", Dtype::kU8, {3}}});
    ASSERT_TRUE(writer->Write("video", "ab", 2).ok());
    ASSERT_TRUE(writer->Write("frames", "abc", 3).ok());
    ASSERT_TRUE(writer->Finish().ok());
  }
  EXPECT_THAT(TensorStreamReader::Open(dir_ / "o.safetensors", "latents").status().message(),
              HasSubstr("has no tensor 'latents'; it has 'frames', 'video'"));
  EXPECT_THAT(TensorStreamReader::Open(dir_ / "o.safetensors", "frames").status().message(),
              HasSubstr("is U8 [3], expected (clips, time, channels, height, width)"));
  EXPECT_FALSE(TensorStreamWriter::Create(dir_ / "p", "frames", Dtype::kF32, {2, -1, 3, 4, 4}, false).ok());
}

}  // namespace
}  // namespace lockstep::data
