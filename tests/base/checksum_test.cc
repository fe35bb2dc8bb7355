#include "base/checksum.h"

#include <gtest/gtest.h>

#include "base/zip.h"

namespace lockstep {
namespace {

// Published vectors: xxHash's own sanity test for the empty input, the CRC catalogue's check value.
TEST(Checksum, GivesThePublishedValues) {
  EXPECT_EQ(ChecksumText(""), "xxh3-128:99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Crc32(0, "123456789", 9), 0xCBF43926u);
  EXPECT_EQ(Crc32(0, "", 0), 0u);
}

TEST(Checksum, GivesBytesInTheOrderOfTheText) {
  EXPECT_EQ(Checksum().Bytes()[0], 0x99);
  EXPECT_EQ(Checksum().Bytes()[15], 0x7f);
  EXPECT_EQ(Checksum64("", 0), 0x2D06800538D394C2u);  // xxHash's own sanity test
  EXPECT_NE(Checksum64("abc", 3, 1), Checksum64("abc", 3, 2));
}

TEST(Checksum, DoesNotDependOnTheCuts) {
  std::string data(100'000, 'x');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 31 + i / 7);
  for (size_t piece : {1u, 7u, 255u, 4096u, 99'999u}) {
    Checksum sum;
    uint32_t crc = 0;
    for (size_t at = 0; at < data.size(); at += piece) {
      const size_t bytes = std::min<size_t>(piece, data.size() - at);
      sum.Update(data.data() + at, bytes);
      crc = Crc32(crc, data.data() + at, bytes);
    }
    EXPECT_EQ(sum.Text(), ChecksumText(data)) << piece;
    EXPECT_EQ(crc, Crc32(0, data.data(), data.size())) << piece;
  }
}

TEST(Checksum, StartsAnewAfterReset) {
  Checksum sum;
  sum.Update("abc", 3);
  EXPECT_NE(sum.Text(), ChecksumText(""));
  sum.Reset();
  EXPECT_EQ(sum.Text(), ChecksumText(""));
}

}  // namespace
}  // namespace lockstep
