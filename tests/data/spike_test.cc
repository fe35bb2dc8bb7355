// The bits of a file, and every form of them against its formula, computed here pixel by pixel.
#include "data/spike.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "data/fault.h"
#include "spike_files.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SpikeTest : public testing::Test {
 protected:
  SpikeFile Open(const Spikes& spikes, bool flip = true) {
    WriteSpikes(dir_ / "s.dat", spikes, flip);
    Result<SpikeFile> file = SpikeFile::Open(dir_ / "s.dat", {spikes.height, spikes.width, flip});
    EXPECT_TRUE(file.ok()) << file.status().message();
    return std::move(*file);
  }
  TempDir dir_ = *TempDir::Create();
};

TEST_F(SpikeTest, TheLeastSignificantBitIsTheFirstPixel) {
  Spikes spikes{1, 2, 8, std::vector<uint8_t>(16, 0)};
  spikes.bits[0] = 1;  // row 0: first and third pixel
  spikes.bits[2] = 1;
  spikes.bits[15] = 1;  // row 1: last pixel
  EXPECT_EQ(PackSpikes(spikes, /*flip=*/false), std::string("\x05\x80", 2));
  EXPECT_EQ(PackSpikes(spikes, /*flip=*/true), std::string("\x80\x05", 2));
}

TEST_F(SpikeTest, AnyBoxAndAnySteps) {
  // 12 x 22: rows begin within bytes, steps at whole bytes.
  for (const auto& [height, width] : {std::pair{16, 24}, {12, 22}, {10, 136}}) {
    const Spikes spikes = RandomSpikes(9, height, width);
    for (const bool flip : {false, true}) {
      const SpikeFile file = Open(spikes, flip);
      ASSERT_EQ(file.steps(), 9);
      for (const SpikeBox box : {SpikeBox{0, 0, height, width}, {3, 5, 4, 9}, {height - 2, width - 7, 2, 7}}) {
        Result<SpikeBits> bits = file.Read(2, 8, box);
        ASSERT_TRUE(bits.ok()) << bits.status().message();
        std::vector<uint16_t> counts(static_cast<size_t>(box.height) * box.width);
        CountSpikes(*bits, 3, 8, counts.data());
        for (int y = 0; y < box.height; ++y) {
          for (int x = 0; x < box.width; ++x) {
            int count = 0;
            for (int64_t t = 2; t < 8; ++t) {
              const int expected = spikes.At(t, box.top + y, box.left + x);
              ASSERT_EQ(bits->At(t, y, x), expected != 0) << t << " " << y << " " << x << " flip " << flip;
              if (t >= 3) count += expected;
            }
            ASSERT_EQ(counts[static_cast<size_t>(y) * box.width + x], count);
          }
        }
      }
    }
  }
}

TEST_F(SpikeTest, CountsBeyondTheRangeOfAByte) {
  const Spikes spikes = RandomSpikes(600, 2, 8);
  const SpikeFile file = Open(spikes);
  Result<SpikeBits> bits = file.Read(0, 600, {0, 0, 2, 8});
  std::vector<uint16_t> counts(16);
  CountSpikes(*bits, 0, 600, counts.data());
  for (int x = 0; x < 8; ++x) {
    int count = 0;
    for (int t = 0; t < 600; ++t) count += spikes.At(t, 1, x);
    EXPECT_EQ(counts[8 + x], count);
  }
}

TEST_F(SpikeTest, TheSizeOfAFileDecidesWhichSensorsItMayHave) {
  // 88 steps of 360 x 640, the usual file of GoPro with spikes.
  EXPECT_EQ(*SpikeSteps(2'534'400, {360, 640}, "a.dat"), 88);
  const Status wrong = SpikeSteps(2'534'400, {250, 400}, "a.dat").status();
  EXPECT_THAT(wrong.message(), HasSubstr("'a.dat' has 2534400 bytes, no whole number of steps of 250 x 400 pixels"));
  EXPECT_THAT(wrong.hint(), HasSubstr("88 x 360 x 640"));
  EXPECT_THAT(wrong.hint(), testing::Not(HasSubstr("250 x 400")));
  EXPECT_STREQ(FaultOf(wrong), "shape");
  // The shorter last file of a clip.
  EXPECT_THAT(SpikeSteps(2'332'800, {250, 400}, "b.dat").status().hint(), HasSubstr("81 x 360 x 640"));
  EXPECT_THAT(SpikeSteps(1000, {360, 640}, "b.dat").status().hint(), HasSubstr("may be truncated"));
  EXPECT_THAT(SpikeSteps(1000, {3, 5}, "b.dat").status().message(), HasSubstr("a whole number of bytes"));
  EXPECT_STREQ(FaultOf(SpikeFile::Open(dir_ / "none.dat", {}).status()), "vanished");
  // A data set that says its sensor, unless the file does not fit that either.
  ASSERT_TRUE(WriteFileAtomic(dir_ / "config.yaml", "spike_h: 32\nspike_w: 40\nis_labeled: false\n").ok());
  const std::string below = dir_ / "train/clip/spike/1.dat";
  EXPECT_THAT(SpikeSteps(1600, {360, 640}, below).status().hint(), HasSubstr("config.yaml says 32 x 40, which fits"));
  EXPECT_THAT(SpikeSteps(1000, {360, 640}, below).status().hint(), HasSubstr("may be truncated"));
  // Another size of as many bytes is not what the data set says; one that the file cannot have says nothing.
  EXPECT_TRUE(CheckSaidSensor(10, {32, 40}, below).ok());
  EXPECT_TRUE(CheckSaidSensor(1, {250, 400}, below).ok());
  EXPECT_THAT(CheckSaidSensor(10, {40, 32}, below).message(), HasSubstr("has 32 x 40 pixels, not 40 x 32"));
}

TEST_F(SpikeTest, CentresOfEqualParts) {
  EXPECT_THAT(SpikeCentres(88, 1, 20), ElementsAre(44));
  // Parts of 22 steps: 11, 33, 55, 77, clamped to [20, 68].
  EXPECT_THAT(SpikeCentres(88, 4, 20), ElementsAre(20, 33, 55, 68));
  EXPECT_THAT(SpikeCentres(56, 3, 20), ElementsAre(20, 27, 36));
}

TEST_F(SpikeTest, EveryFormIsItsFormula) {
  const int64_t steps = 88;
  const Spikes s = RandomSpikes(steps, 12, 24);
  const SpikeFile file = Open(s);
  const SpikeBox box{4, 6, 5, 11};
  const auto each = [&](const SpikeForm& form, const auto& formula) {
    Result<std::vector<float>> got = RenderSpikes(file, form, box);
    ASSERT_TRUE(got.ok()) << got.status().message();
    ASSERT_EQ(got->size(), form.channels * 55U);
    for (int c = 0; c < form.channels; ++c) {
      for (int y = 0; y < 5; ++y) {
        for (int x = 0; x < 11; ++x) {
          ASSERT_FLOAT_EQ((*got)[(c * 5 + y) * 11 + x], formula(c, y + 4, x + 6))
              << form.Folder() << " " << c << " " << y << " " << x;
        }
      }
    }
    // The same through a precomputed file.
    const std::string path = dir_ / (form.Folder() + ".npy");
    Result<std::string> bytes = RenderToNpy(file, form);
    ASSERT_TRUE(bytes.ok() && WriteFileAtomic(path, *bytes, 0644, Durability::kProcess).ok());
    Result<NpyFile> npy = NpyFile::Open(path);
    ASSERT_TRUE(npy.ok()) << npy.status().message();
    Result<std::vector<float>> again = ReadRendered(*npy, file.sensor(), form, box);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(*again, *got) << form.Folder();
  };
  const auto sum = [&](int64_t from, int64_t to, int y, int x) {
    int count = 0;
    for (int64_t t = from; t < to; ++t) count += s.At(t, y, x);
    return static_cast<double>(count);
  };
  const int64_t centres[] = {20, 33, 55, 68};
  each({.kind = SpikeKind::kTfp, .channels = 4}, [&](int c, int y, int x) {
    const int64_t end = std::min<int64_t>(centres[c] + 21, steps);
    return static_cast<float>(std::floor(sum(centres[c] - 20, end, y, x) * 255 / (end - centres[c] + 20) + 1e-9)) / 255;
  });
  each({.kind = SpikeKind::kTfp},
       [&](int, int y, int x) { return static_cast<float>(std::floor(sum(24, 65, y, x) * 255 / 41 + 1e-9)) / 255; });
  each({.kind = SpikeKind::kTfi, .channels = 4}, [&](int c, int y, int x) {
    int64_t before = centres[c], after = centres[c] + 1;
    while (before > std::max<int64_t>(centres[c] - 20, 0) && s.At(before, y, x) == 0) --before;
    while (after < std::min<int64_t>(centres[c] + 21, steps) && s.At(after, y, x) == 0) ++after;
    const bool none =
        before == std::max<int64_t>(centres[c] - 20, 0) || after == std::min<int64_t>(centres[c] + 21, steps);
    return static_cast<float>(255 / (none ? 40 : after - before)) / 255;
  });
  each({.kind = SpikeKind::kRawWindow, .channels = 21},
       [&](int c, int y, int x) { return static_cast<float>(s.At(34 + c, y, x)); });
  const auto extreme = [&](int64_t from, int64_t to, bool most) {
    double value = most ? 0 : 1e9;
    for (int y = 0; y < 12; ++y) {
      for (int x = 0; x < 24; ++x)
        value = most ? std::max(value, sum(from, to, y, x)) : std::min(value, sum(from, to, y, x));
    }
    return value;
  };
  each({.kind = SpikeKind::kMiddleTfp}, [&](int, int y, int x) {
    // Steps [44 - 49, 44 + 50] inside the file are all 88.
    const double low = extreme(0, 88, false) / 88, high = extreme(0, 88, true) / 88;
    return static_cast<float>((sum(0, 88, y, x) / 88 - low) / (high - low + 1e-6));
  });
  each({.kind = SpikeKind::kVoxel, .channels = 4}, [&](int c, int y, int x) {
    return static_cast<float>(sum(c * 22, c * 22 + 22, y, x) / extreme(c * 22, c * 22 + 22, true));
  });
}

TEST_F(SpikeTest, FilesTooShortForTheirForm) {
  const SpikeFile file = Open(RandomSpikes(40, 8, 8));
  const Status status = RenderSpikes(file, {}, {0, 0, 8, 8}).status();
  EXPECT_THAT(status.message(), HasSubstr("is too short: tfp_b1_hw20 needs 41 steps or more, it has 40"));
  EXPECT_STREQ(FaultOf(status), "shape");
  EXPECT_THAT(CheckForm({.kind = SpikeKind::kRawWindow, .channels = 20}).message(), HasSubstr("an odd number"));
  EXPECT_FALSE(CheckForm({.kind = SpikeKind::kMiddleTfp, .channels = 2}).ok());
}

TEST_F(SpikeTest, ABoxOfThePictureIsABoxOfTheSpikes) {
  const SpikeSensor sensor{360, 640};
  const SpikeBox half = BoxOfSpikes(sensor, 720, 1280, {100, 201, 224, 224});
  EXPECT_THAT((std::vector{half.top, half.left, half.height, half.width}), ElementsAre(50, 100, 112, 112));
  const SpikeBox corner = BoxOfSpikes(sensor, 720, 1280, {496, 1056, 224, 224});
  EXPECT_EQ(corner.top + corner.height, 360);
  EXPECT_EQ(corner.left + corner.width, 640);
}

// An edge at column `x` of the picture is at the same place in the spikes, wherever the crop lies.
TEST_F(SpikeTest, AMovingEdgeStaysAligned) {
  constexpr int kHeight = 24, kWidth = 64, kCrop = 32;
  for (const int edge : {20, 24, 32, 40}) {  // in pixels of the picture, which is twice as large as the sensor
    Spikes s{41, kHeight, kWidth, {}};
    for (int i = 0; i < 41 * kHeight * kWidth; ++i) s.bits.push_back(i % kWidth >= edge / 2 ? 1 : 0);
    const SpikeFile file = Open(s);
    for (const int left : {0, 4, 10, 18}) {
      const SpikeBox box = BoxOfSpikes(file.sensor(), 2 * kHeight, 2 * kWidth, {6, left, kCrop, kCrop});
      std::vector<float> planes = *RenderSpikes(file, {}, box);
      planes = ResizePlanes(std::move(planes), 1, box.height, box.width, kCrop, kCrop);
      for (int x = 1; x < kCrop - 1; ++x) {  // the outermost columns have no neighbour: the crop is continued
        // Half of the light within a pixel on each side of the edge, all beyond.
        const int from_edge = x + left - edge;
        const float expected = from_edge >= 1 ? 1.0F : from_edge == 0 ? 0.75F : from_edge == -1 ? 0.25F : 0.0F;
        ASSERT_NEAR(planes[5 * kCrop + x], expected, 1e-5) << "edge " << edge << " left " << left << " x " << x;
      }
    }
  }
}

TEST_F(SpikeTest, ResizingIsBilinearWithHalfPixelCentres) {
  // 2 -> 4: 0, 0.25, 0.75, 1 of the way; 4 -> 2: the means of pairs.
  EXPECT_THAT(ResizePlanes({0, 8}, 1, 1, 2, 1, 4), ElementsAre(0, 2, 6, 8));
  EXPECT_THAT(ResizePlanes({0, 2, 4, 8}, 1, 1, 4, 1, 2), ElementsAre(1, 6));
  EXPECT_THAT(ResizePlanes({0, 8}, 1, 2, 1, 4, 1), ElementsAre(0, 2, 6, 8));
}

TEST_F(SpikeTest, NpyFiles) {
  const std::vector<int64_t> shape = {2, 3, 4};
  std::vector<float> values;
  for (int i = 0; i < 24; ++i) values.push_back(static_cast<float>(i));
  const std::string bytes = EncodeNpy(ElementType::kF32, shape, std::as_bytes(std::span(values)));
  // As numpy.save writes it: the array at a multiple of 64.
  EXPECT_EQ((bytes.size() - 96) % 64, 0U);
  EXPECT_THAT(bytes, HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4), }"));
  ASSERT_TRUE(WriteFileAtomic(dir_ / "a.npy", bytes).ok());
  Result<NpyFile> file = NpyFile::Open(dir_ / "a.npy");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->shape(), shape);
  std::vector<float> box(2 * 2 * 2);
  ASSERT_TRUE(file->ReadBox(1, 2, 2, 2, reinterpret_cast<std::byte*>(box.data())).ok());
  EXPECT_THAT(box, ElementsAre(6, 7, 10, 11, 18, 19, 22, 23));
  EXPECT_FALSE(file->ReadBox(2, 2, 2, 2, reinterpret_cast<std::byte*>(box.data())).ok());
  for (const auto& [content, word] : {std::pair{bytes.substr(0, bytes.size() - 1), "truncated"},
                                      {bytes.substr(0, 40), "truncated"},
                                      {std::string("PNG and so on"), "no .npy"},
                                      {std::string(bytes).replace(bytes.find("<f4"), 3, ">f4"), "expected uint8"},
                                      {std::string(bytes).replace(bytes.find("<f4"), 3, "|i1"), "expected uint8"},
                                      {std::string(bytes).replace(bytes.find("False"), 5, "True "), "Fortran"}}) {
    ASSERT_TRUE(WriteFileAtomic(dir_ / "b.npy", content).ok());
    EXPECT_THAT(NpyFile::Open(dir_ / "b.npy").status().message(), HasSubstr(word));
  }
}

// Of bytes 255 is the most, of numpy's bool 1.
TEST_F(SpikeTest, PrecomputedBytesAndBools) {
  const std::vector<int64_t> shape = {1, 2, 4};
  const std::vector<uint8_t> values = {0, 1, 1, 0, 1, 0, 0, 1};
  const std::string bytes = EncodeNpy(ElementType::kU8, shape, std::as_bytes(std::span(values)));
  const SpikeSensor sensor{.height = 2, .width = 4};
  for (const auto& [type, kind, one] :
       {std::tuple("|b1", SpikeKind::kTfp, 1.0F), std::tuple("|b1", SpikeKind::kRawWindow, 1.0F),
        std::tuple("|u1", SpikeKind::kTfp, 1 / 255.0F), std::tuple("|u1", SpikeKind::kRawWindow, 1.0F)}) {
    ASSERT_TRUE(WriteFileAtomic(dir_ / "c.npy", std::string(bytes).replace(bytes.find("|u1"), 3, type)).ok());
    const Result<NpyFile> file = NpyFile::Open(dir_ / "c.npy");
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto planes = ReadRendered(*file, sensor, {.kind = kind}, {0, 1, 2, 3});
    ASSERT_TRUE(planes.ok()) << planes.status().message();
    EXPECT_THAT(*planes, ElementsAre(one, one, 0, 0, 0, one)) << type;
  }
}

// Levels of 0 to 255 in float32 would wrap as bytes of a sample; so would 255 for a spike.
TEST_F(SpikeTest, PrecomputedValuesBeyondOneAreAnError) {
  const std::vector<int64_t> shape = {1, 2, 4};
  const SpikeSensor sensor{.height = 2, .width = 4};
  const auto error = [&](ElementType type, SpikeKind kind, std::span<const std::byte> values, const SpikeBox& box) {
    EXPECT_TRUE(WriteFileAtomic(dir_ / "d.npy", EncodeNpy(type, shape, values)).ok());
    return ReadRendered(*NpyFile::Open(dir_ / "d.npy"), sensor, {.kind = kind}, box).status().message();
  };
  for (const float value : {128.0F, -0.5F, std::nanf(""), INFINITY}) {
    const std::vector<float> values = {0, 0.5F, 1, 1.00001F, 0, 0, value, 0};
    const auto bytes = std::as_bytes(std::span(values));
    EXPECT_EQ(error(ElementType::kF32, SpikeKind::kVoxel, bytes, {0, 0, 1, 4}), "");
    EXPECT_THAT(error(ElementType::kF32, SpikeKind::kVoxel, bytes, {0, 0, 2, 4}),
                AllOf(HasSubstr("d.npy' has the value"), HasSubstr("expected 0 to 1")));
  }
  const std::vector<uint8_t> window = {0, 255, 0, 0, 255, 0, 0, 0};
  EXPECT_THAT(error(ElementType::kU8, SpikeKind::kRawWindow, std::as_bytes(std::span(window)), {0, 0, 2, 4}),
              HasSubstr("has the value 255"));
}

}  // namespace
}  // namespace lockstep::data
