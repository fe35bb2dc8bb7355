// The pyramid against a plain list of points: every level, rewinds, torn files, files of others.
#include "watch/web/pyramid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "base/files.h"
#include "record/metrics.h"

namespace lockstep::watch {
namespace {

using Points = std::map<uint64_t, double>;

class PyramidTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<TempDir> made = TempDir::Create();
    ASSERT_TRUE(made.ok());
    dir_.emplace(std::move(*made));
    std::filesystem::create_directory(*dir_ / "metrics");
  }
  std::string run() const { return dir_->path(); }
  std::string Source() const { return *dir_ / "metrics/rank-0.jsonl"; }
  std::string File() const { return *dir_ / "pyramid/rank-0.pyr"; }

  void Write(int attempt, uint64_t step, std::vector<std::pair<std::string, double>> scalars) {
    std::string text;
    record::AppendMetricLine({.t = 1000 + 0.5 * clock_++, .attempt = attempt, .step = step, .scalars = scalars}, &text);
    Raw(text);
  }
  void Raw(const std::string& text) { std::ofstream(Source(), std::ios::app) << text; }

  Pyramid Built() {
    Result<Pyramid> pyramid = Pyramid::Open(run(), 0);
    EXPECT_TRUE(pyramid.ok()) << pyramid.status().ToString();
    while (pyramid->Advance(Millis(1000))) {
    }
    return std::move(*pyramid);
  }

  // What a chart of any zoom must agree with the plain list on: extremes, count, and single values when they fit.
  static void Compare(const Pyramid& pyramid, const std::string& name, const Points& want) {
    for (size_t points : {16, 100, 3000, 10'000, 20'000}) {
      SCOPED_TRACE(points);
      const std::optional<Curve> curve = pyramid.Query(name, {.points = points});
      ASSERT_TRUE(curve.has_value());
      double low = HUGE_VAL, high = -HUGE_VAL, sum = 0, least = HUGE_VAL, most = -HUGE_VAL, total = 0;
      uint64_t values = 0, last = 0;
      for (const CurvePoint& point : curve->points) {
        values += point.values;
        EXPECT_GE(point.step, last);
        last = point.step;
        if (std::isnan(point.mean)) continue;
        low = std::min(low, point.low);
        high = std::max(high, point.high);
        sum += point.mean * (point.values - point.not_finite);
      }
      for (const auto& [step, value] : want) {
        if (!std::isfinite(value)) continue;
        least = std::min(least, value);
        most = std::max(most, value);
        total += value;
      }
      EXPECT_EQ(values, want.size());
      EXPECT_EQ(low, least);
      EXPECT_EQ(high, most);
      EXPECT_NEAR(sum, total, 1e-6 * (1 + std::fabs(total)));
      EXPECT_LE(curve->points.size(), points + kMostLevels + 3);
      if (!want.empty()) {
        EXPECT_EQ(last, want.rbegin()->first);
      }
      if (curve->level != -1) continue;
      ASSERT_EQ(curve->points.size(), want.size());
      auto point = curve->points.begin();
      for (const auto& [step, value] : want) {
        EXPECT_EQ(point->step, step);
        if (std::isfinite(value)) {
          EXPECT_EQ(point->mean, value);
        }
        ++point;
      }
    }
  }

  std::optional<TempDir> dir_;
  uint64_t clock_ = 0;
};

TEST_F(PyramidTest, EveryZoomHasTheExtremesOfThePlainListAlsoAfterRewinds) {
  std::mt19937 random(7);
  Points loss, rare;
  uint64_t step = 0;
  int attempt = 0;
  std::optional<Pyramid> live;
  for (int i = 0; i < 30'000; ++i, ++step) {
    if (i % 4000 == 3999) {  // a restart from an older checkpoint
      step -= std::min<uint64_t>(step, random() % 3000);
      ++attempt;
      loss.erase(loss.lower_bound(step), loss.end());
      rare.erase(rare.lower_bound(step), rare.end());
    } else if (i % 2500 == 2499) {  // a rollback inside one process: series go back when they speak again
      step -= std::min<uint64_t>(step, random() % 400);
    }
    double value = std::sin(0.001 * static_cast<double>(step)) + static_cast<double>(random() % 100) * 1e-3;
    if (random() % 5000 == 0) value = 1e6;
    if (random() % 3000 == 0) value = NAN;
    std::vector<std::pair<std::string, double>> scalars = {{"loss", value}};
    loss.erase(loss.lower_bound(step), loss.end());
    loss[step] = value;
    if (step % 700 == 0) {
      scalars.emplace_back("val/psnr", value + 1);
      rare.erase(rare.lower_bound(step), rare.end());
      rare[step] = value + 1;
    }
    Write(attempt, step, scalars);
    if (i % 6000 == 100) {  // read while it grows; the file is left and taken up in between
      if (live) {
        EXPECT_TRUE(live->Save().ok());
        live.reset();
      } else {
        live.emplace(Built());
      }
    }
  }
  live.reset();
  const Pyramid pyramid = Built();
  EXPECT_THAT(pyramid.names(), testing::ElementsAre("loss", "val/psnr"));
  Compare(pyramid, "loss", loss);
  Compare(pyramid, "val/psnr", rare);
  EXPECT_FALSE(pyramid.Query("nothing", {}).has_value());

  // A part of it down to the single values, by step and by time.
  const uint64_t middle = std::next(loss.begin(), static_cast<long>(loss.size() / 2))->first;
  const std::optional<Curve> part = pyramid.Query(
      "loss", {.from = static_cast<double>(middle), .to = static_cast<double>(middle + 50), .points = 4000});
  ASSERT_EQ(part->level, -1);
  Points seen;
  for (const CurvePoint& point : part->points) seen[point.step] = point.mean;
  for (auto it = loss.lower_bound(middle); it != loss.upper_bound(middle + 50); ++it) {
    ASSERT_TRUE(seen.contains(it->first)) << it->first;
  }
  const std::optional<Curve> late = pyramid.Query("loss", {.by_time = true, .from = 1000 + 0.5 * 29'900, .to = 1e12});
  ASSERT_FALSE(late->points.empty());
  EXPECT_EQ(late->points.back().step, loss.rbegin()->first);
}

TEST_F(PyramidTest, ADamagedFileIsTakenAsFarAsItIsWholeOrBuiltAgain) {
  Points loss;
  for (uint64_t step = 0; step < 5000; ++step) {
    Write(0, step, {{"loss", static_cast<double>(step % 977)}});
    loss[step] = static_cast<double>(step % 977);
  }
  EXPECT_TRUE(Built().Save().ok());
  const std::string whole = *ReadFile(File());
  struct Damage {
    const char* what;
    std::function<std::string(std::string)> make;
  };
  const Damage damages[] = {
      {"empty", [](std::string) { return std::string(); }},
      {"half of the header", [](std::string text) { return text.substr(0, 9); }},
      {"cut in a frame", [](std::string text) { return text.substr(0, text.size() / 2); }},
      {"a flipped bit",
       [](std::string text) {
         text[text.size() / 2] ^= 4;
         return text;
       }},
      {"bytes behind it", [](std::string text) { return text + "torn"; }},
      {"another format",
       [](std::string text) {
         text[7] = '9';
         return text;
       }},
      {"of other lines",
       [](std::string text) {
         text[8] ^= 1;
         return text;
       }},
  };
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.what);
    std::ofstream(File(), std::ios::binary) << damage.make(whole);
    Pyramid pyramid = Built();
    Compare(pyramid, "loss", loss);
    EXPECT_TRUE(pyramid.Save().ok());
    EXPECT_TRUE(pyramid.shared());
  }
  // The metric file itself was replaced by a shorter one.
  std::filesystem::remove(Source());
  Write(0, 1, {{"loss", 3}});
  Compare(Built(), "loss", {{1, 3}});
}

TEST_F(PyramidTest, TornAndForeignLinesAreCountedAndTheRestIsRead) {
  Raw("{\"t\": 1, \"step\": 1, \"scalars\": {\"loss\": 2}}\nnot json\n\n[1]\n");
  Raw("{\"extra\": {\"a\": [1]}, \"step\": 2, \"scalars\": {\"lo\\u0073s\": 3, \"text\": \"x\"}}\n");
  Raw("{\"step\": 3, \"scalars\": {\"loss\": \"nan\", \"up\": \"inf\"}}\n{\"t\": 5, \"scalars\": {\"loss\": "
      "9}}\n{\"step\": 4, \"sca");
  Pyramid pyramid = Built();
  EXPECT_EQ(pyramid.bad_lines(), 2u);
  Compare(pyramid, "loss", {{1, 2}, {2, 3}, {3, NAN}});
  Raw("lars\": {\"loss\": 4}}\n");
  while (pyramid.Advance(Millis(1000))) {
  }
  Compare(pyramid, "loss", {{1, 2}, {2, 3}, {3, NAN}, {4, 4}});
  Raw(std::string(3u << 20, 'x') + "\n{\"step\": 5, \"scalars\": {\"loss\": 5}}\n");
  while (pyramid.Advance(Millis(1000))) {
  }
  EXPECT_EQ(pyramid.bad_lines(), 3u);
  Compare(pyramid, "loss", {{1, 2}, {2, 3}, {3, NAN}, {4, 4}, {5, 5}});
}

TEST_F(PyramidTest, ALockedFileIsLeftAloneAndAPrivateCopyUsed) {
  for (uint64_t step = 0; step < 600; ++step) Write(0, step, {{"loss", 1.0 * static_cast<double>(step)}});
  Pyramid first = Built();
  Pyramid second = Built();
  EXPECT_TRUE(first.shared());
  EXPECT_FALSE(second.shared());
  Points want;
  for (uint64_t step = 0; step < 600; ++step) want[step] = static_cast<double>(step);
  Compare(second, "loss", want);
  EXPECT_TRUE(second.Save().ok());
  EXPECT_TRUE(first.Save().ok());
  Compare(first, "loss", want);
}

TEST_F(PyramidTest, WithoutMetricLinesThereIsNothing) {
  Pyramid pyramid = Built();
  EXPECT_TRUE(pyramid.names().empty());
  Raw("{\"step\": 1");
  EXPECT_FALSE(pyramid.Advance(Millis(10)));
  EXPECT_FALSE(std::filesystem::exists(File()));
}

}  // namespace
}  // namespace lockstep::watch
