// CSV, histograms and videos.
#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "track/gif.h"
#include "track/metrics.h"

namespace lockstep::track {
namespace {

TEST(Csv, ARestartLeavesEveryStepOnce) {
  Result<TempDir> dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const std::string path = *dir / "metrics.csv";
  for (int attempt = 0; attempt < 2; ++attempt) {
    Result<std::unique_ptr<Metrics>> metrics =
        Metrics::Start({.csv_path = path, .attempt = attempt, .first_step = attempt == 0 ? 0u : 2u});
    ASSERT_TRUE(metrics.ok());
    const MetricId loss = (*metrics)->Register("loss"), odd = (*metrics)->Register("a,\"b\"");
    for (uint64_t step = attempt == 0 ? 1 : 3; step <= 4; ++step) {
      (*metrics)->Set(loss, step, attempt * 10 + static_cast<double>(step));
      if (step == 4) (*metrics)->Set(odd, step, std::nan(""));
      (*metrics)->EndStep(step);
    }
    if (attempt == 0) ASSERT_TRUE((*metrics)->Flush().ok());
    metrics->reset();
    // A torn row, as a power cut leaves it.
    if (attempt == 0) ASSERT_TRUE(WriteFileAtomic(path, *ReadFile(path) + "1,0,17").ok());
  }
  std::string text = *ReadFile(path), found;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin), first = text.find(',', begin), second = text.find(',', first + 1),
                 third = text.find(',', second + 1);
    found += text.substr(begin, second - begin) + text.substr(third, end - third) + "\n";
    begin = end + 1;
  }
  EXPECT_EQ(found,
            "step,attempt,name,value\n1,0,loss,1\n2,0,loss,2\n3,1,loss,13\n4,1,loss,14\n4,1,\"a,\"\"b\"\"\",nan\n");
}

TEST(Csv, ARowWhoseNameHasANewlineStaysWhole) {
  Result<TempDir> dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const std::string path = *dir / "metrics.csv", kept = "step,attempt,t,name,value\n1,0,17.000,\"a\n7,\"\"b\"\"\",2\n";
  ASSERT_TRUE(WriteFileAtomic(path, kept + "2,0,17.000,\"a\n1,\"\"b\"\"\",2\n").ok());
  ASSERT_TRUE(Metrics::Start({.csv_path = path, .first_step = 1}).ok());
  EXPECT_EQ(*ReadFile(path), kept);
}

TEST(Gif, FramesOfDifferentSizesAreRefused) {
  EXPECT_FALSE(EncodeGif({}, 8).ok());
  EXPECT_FALSE(EncodeGif({{2, 1, std::vector<uint8_t>(6)}, {1, 2, std::vector<uint8_t>(6)}}, 8).ok());
}

TEST(Gif, PicturesStandBesideEachOther) {
  const Picture a{1, 2, {1, 2, 3, 4, 5, 6}}, b{2, 2, {7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}};
  const Picture both = SideBySide({a, b});
  EXPECT_EQ(both.width, 3);
  EXPECT_EQ(both.rgb, (std::vector<uint8_t>{1, 2, 3, 7, 8, 9, 10, 11, 12, 4, 5, 6, 13, 14, 15, 16, 17, 18}));
}

}  // namespace
}  // namespace lockstep::track
