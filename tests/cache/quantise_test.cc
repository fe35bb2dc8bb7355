#include "cache/quantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "small_cache.h"

namespace lockstep::cache {
namespace {

// Values by the definition of the format (OCP 8-bit floating point, e4m3).
TEST(CacheQuantise, F8IsTheFormatsOwn) {
  EXPECT_EQ(FromF8E4M3(0x7e), 448.0f);
  EXPECT_EQ(FromF8E4M3(0x38), 1.0f);
  EXPECT_EQ(FromF8E4M3(0x01), 0x1p-9f);
  EXPECT_EQ(FromF8E4M3(0x08), 0x1p-6f);
  EXPECT_TRUE(std::isnan(FromF8E4M3(0x7f)));
  for (int bits = 0; bits < 256; ++bits) {
    const float value = FromF8E4M3(static_cast<uint8_t>(bits));
    if (!std::isnan(value)) EXPECT_EQ(ToF8E4M3(value), bits) << bits;
  }
  // Between two neighbours: the nearer one, and the even one in the middle.
  for (int bits = 0; bits < 0x7e; ++bits) {
    const float low = FromF8E4M3(static_cast<uint8_t>(bits)), high = FromF8E4M3(static_cast<uint8_t>(bits + 1));
    EXPECT_EQ(ToF8E4M3(low + 0.49f * (high - low)), bits);
    EXPECT_EQ(ToF8E4M3(low + 0.51f * (high - low)), bits + 1);
    EXPECT_EQ(ToF8E4M3((low + high) / 2), bits % 2 == 0 ? bits : bits + 1);
  }
  EXPECT_EQ(ToF8E4M3(1e9f), 0x7e);
}

TEST(CacheQuantise, Bf16RoundsToEven) {
  EXPECT_EQ(ToBf16(1.0f), 0x3f80);
  EXPECT_EQ(ToBf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(ToBf16(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_EQ(FromBf16(0xc000), -2.0f);
}

struct Trip {
  std::vector<float> back;
  double relative = 0;
  Status status;
};

Trip RoundTrip(Storage stored, const std::vector<float>& values, std::vector<int64_t> shape) {
  const FieldSpec field{"x", Dtype::kF32, stored, std::move(shape), false};
  Description description = SmallDescription();
  description.fields = {field};
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> out;
  for (const Column& column : description.Columns()) memory.emplace_back(column.bytes);
  for (auto& column : memory) out.push_back(column.data());
  PackError error;
  Trip trip;
  trip.status = Pack(field, Bytes(values), out, &error);
  if (!trip.status.ok()) return trip;
  trip.back.resize(values.size());
  const std::vector<const std::byte*> in(out.begin(), out.end());
  Unpack(field, in, reinterpret_cast<std::byte*>(trip.back.data()));
  trip.relative = error.Relative();
  double squares = 0, errors = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    squares += static_cast<double>(values[i]) * values[i];
    errors += std::pow(static_cast<double>(values[i]) - trip.back[i], 2);
  }
  EXPECT_NEAR(trip.relative, squares > 0 ? std::sqrt(errors / squares) : 0, 1e-9);  // what was measured is what it is
  return trip;
}

TEST(CacheQuantise, ErrorsAreMeasuredAndSmall) {
  std::vector<float> values = Values(3, 0, 16 * 64);
  for (size_t i = 0; i < 64; ++i) values[i] *= 1e6f;  // one token of another size: each has a scale of its own
  EXPECT_EQ(RoundTrip(Storage::kSame, values, {16, 64}).back, values);
  EXPECT_LT(RoundTrip(Storage::kBf16, values, {16, 64}).relative, 0.004);
  EXPECT_LT(RoundTrip(Storage::kF8, values, {16, 64}).relative, 0.04);
  EXPECT_LT(RoundTrip(Storage::kInt8, values, {16, 64}).relative, 0.01);
  EXPECT_EQ(RoundTrip(Storage::kF8, std::vector<float>(64), {1, 64}).back, std::vector<float>(64));
}

TEST(CacheQuantise, RefusesWhatIsNotFinite) {
  for (const Storage stored : {Storage::kSame, Storage::kBf16, Storage::kF8, Storage::kInt8}) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      std::vector<float> values(8, 1.0f);
      values[5] = bad;
      const Status status = RoundTrip(stored, values, {2, 4}).status;
      EXPECT_NE(status.message().find("value 5"), std::string::npos) << status.ToString();
    }
  }
}

TEST(CacheQuantise, QuantisedRecordsAreReadBack) {
  const Result<TempDir> dir = TempDir::Create();
  for (const Storage stored : {Storage::kBf16, Storage::kF8, Storage::kInt8}) {
    const Folder folder = *Folder::Create(dir->path(), SmallDescription(stored));
    WriteUnit(folder, 0, 0, 3);
    const auto reader = Reader::Open(folder);
    const Got got = ReadNumbers(**reader, {2})[0];
    ASSERT_EQ(got.outcome, Outcome::kHit) << got.why;
    EXPECT_EQ(got.tokens, RoundTrip(stored, Values(2, 0, 7 * 33), {7, 33}).back);
    EXPECT_EQ(got.pooled, Values(2, 1, 5));
  }
}

}  // namespace
}  // namespace lockstep::cache
