#include "cache/arbiter.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::cache {
namespace {

TEST(CacheArbiter, ReadsUntilBothCostsAreKnown) {
  Arbiter arbiter;
  EXPECT_TRUE(arbiter.ReadNext());
  arbiter.Read(10, 100);
  EXPECT_EQ(arbiter.Share(), 1);
  arbiter.Encoded(10, 1000);
  EXPECT_EQ(arbiter.Share(), 1);  // reading is the faster one
}

// Storage from 0.1 to 4 GB/s against an encoder of 15.5 ms a record of 22.5 MB, in the time that both would take:
// reading and encoding run beside each other, a batch takes the longer of the two.
TEST(CacheArbiter, IsNeverSlowerThanTheBetterOfBoth) {
  constexpr double kEncode = 0.0155, kBytes = 22.5e6;
  for (const double speed : {0.1e9, 0.3e9, 0.7e9, 1.4e9, 1.5e9, 2e9, 4e9}) {
    const double read = kBytes / speed;
    Arbiter arbiter;
    arbiter.Encoded(1, kEncode);
    double seconds = 0;
    constexpr int kBatch = 16, kBatches = 500;
    for (int batch = 0; batch < kBatches; ++batch) {
      int reads = 0;
      for (int i = 0; i < kBatch; ++i) reads += arbiter.ReadNext() ? 1 : 0;
      if (reads > 0) arbiter.Read(static_cast<uint64_t>(reads), reads * read);
      if (reads < kBatch) arbiter.Encoded(static_cast<uint64_t>(kBatch - reads), (kBatch - reads) * kEncode);
      seconds += std::max(reads * read, (kBatch - reads) * kEncode);
    }
    const double better = kBatch * kBatches * std::min(read, kEncode);
    EXPECT_LE(seconds, 1.05 * better) << speed;
  }
}

// A storage of unknown speed holds up two reads, not all that are prepared ahead.
TEST(CacheArbiter, EncodesWhileTheFirstReadsAreUnderWay) {
  Arbiter arbiter;
  arbiter.Encoded(1, 0.01);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(arbiter.ReadNext());
    arbiter.ReadBegins();
  }
  EXPECT_FALSE(arbiter.ReadNext());
  arbiter.ReadEnds();
  arbiter.ReadEnds();
  EXPECT_GT(arbiter.read_cost(), 0);
  EXPECT_TRUE(arbiter.ReadNext());  // no time passed: reading is the faster one
}

// Each read of a storage that is slower by far may hold up a batch: all of them together by 2 % of the time.
TEST(CacheArbiter, ProbesASlowStorageForALittleOfTheTime) {
  for (const double slower : {5.0, 14.0, 100.0}) {
    Arbiter arbiter;
    arbiter.Encoded(1, 0.01);
    arbiter.Read(1, 0.01 * slower);
    double reading = 0, encoding = 0;
    for (int i = 0; i < 100000; ++i) (arbiter.ReadNext() ? reading : encoding) += 1;
    EXPECT_GT(reading, 0) << slower;
    EXPECT_LE(reading * slower, 0.021 * encoding) << slower;
  }
}

TEST(CacheArbiter, NoticesThatTheStorageHasRecovered) {
  Arbiter arbiter;
  arbiter.Encoded(1, 0.01);
  for (int i = 0; i < 20; ++i) arbiter.Read(1, 1);
  EXPECT_LT(arbiter.Share(), 0.1);
  int batches = 0;
  while (arbiter.Share() < 1 && batches < 30000) {
    if (arbiter.ReadNext()) arbiter.Read(1, 0.001);
    ++batches;
  }
  EXPECT_LT(batches, 30000);  // five minutes, of storage that was 100 times slower than the encoder
}

}  // namespace
}  // namespace lockstep::cache
