#include "engine/pictures.h"

#include <cstdlib>
#include <filesystem>

#include "base/files.h"
#include "data/image.h"
#include "engine/train_on.h"
#include "record/metrics.h"

namespace lockstep::engine {
namespace {

// Shows each sample as one plain tile, or cannot.
class Shower : public Toy {
 public:
  void Show(const TensorBatch& batch, track::Sheet* sheet) override {
    if (broken) throw std::runtime_error("no such layer\nstack");
    sheet->columns = {"sample"};
    for (int64_t i = 0; i < batch.count(); ++i) {
      sheet->rows.push_back({.cells = {{track::Picture{1, 1, {10, 200, 30}}}}});
    }
  }
  bool broken = false;
};

class PicturesTest : public testing::Test {
 protected:
  PicturesTest() : dir_(TempDir::Create()) {
    job_.config.train.steps = 4;
    job_.config.data.validation.every = 2;
    job_.options.run_dir = *dir_ / "night-1";
    job_.make = [this] {
      auto toy = std::make_unique<Shower>();
      toy->held_out = std::make_shared<Points>(7);
      toy->broken = broken_;
      return toy;
    };
  }
  ~PicturesTest() override { ::unsetenv("LOCKSTEP_CAIRO"); }

  // Trains; what the ranks wrote to stderr.
  std::string Train(int world) {
    testing::internal::CaptureStderr();
    for (const Outcome& outcome : TrainOn(world, job_)) {
      EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
      EXPECT_EQ(outcome.position.step, 4u);
    }
    return testing::internal::GetCapturedStderr();
  }
  std::string In(const std::string& name) const { return job_.options.run_dir + "/" + name; }
  // The last value of the metric `pictures_missing`.
  double Missing() const {
    double missing = 0;
    record::MetricFollower lines(In("metrics/rank-0.jsonl"));
    lines.Read([&](const record::MetricLine& line) { missing = line.Find("pictures_missing").value_or(missing); });
    return missing;
  }

  Result<TempDir> dir_;
  Job job_;
  bool broken_ = false;
};

TEST_F(PicturesTest, ASheetAfterEachValidationAndTheLossCurve) {
  job_.config.train.reproducible = true;  // validates sample by sample
  EXPECT_EQ(Train(2), "");
  for (const char* name : {"pictures/reconstruction-2.png", "pictures/reconstruction-4.png", "loss.png"}) {
    const Result<data::Image> image = data::DecodeImage(In(name));
    ASSERT_TRUE(image.ok()) << image.status().message();
    EXPECT_GT(image->width, 500) << name;
  }
  // Four samples, from as many batches: each is a green tile of 256 x 256.
  const Result<data::Image> sheet = data::DecodeImage(In("pictures/reconstruction-4.png"));
  int green = 0;
  for (size_t i = 0; i < sheet->rgb.size(); i += 3) green += sheet->rgb[i] == 10 && sheet->rgb[i + 1] == 200;
  EXPECT_EQ(green, 4 * 256 * 256);
  EXPECT_EQ(Missing(), 0);
}

TEST_F(PicturesTest, WithoutCairoTrainingGoesOnAndSaysOnceWhatIsMissing) {
  ::setenv("LOCKSTEP_CAIRO", "/nowhere/libcairo.so.2", 1);
  const std::string said = Train(2);
  EXPECT_NE(said.find("no pictures (pictures/*.png, loss.png): /nowhere/libcairo.so.2"), std::string::npos) << said;
  EXPECT_NE(said.find("apt-get install libcairo2"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_FALSE(std::filesystem::exists(In("loss.png")));
  EXPECT_FALSE(std::filesystem::exists(In("pictures")));
  EXPECT_EQ(Missing(), 3);
}

TEST_F(PicturesTest, ARecipeThatCannotShowStillTrains) {
  broken_ = true;
  const std::string said = Train(1);
  EXPECT_NE(said.find("reconstruction-2.png: no such layer; training goes on"), std::string::npos) << said;
  EXPECT_EQ(Missing(), 2);
  EXPECT_TRUE(std::filesystem::exists(In("loss.png")));
}

TEST_F(PicturesTest, AFolderThatCannotBeWrittenDoesNotStopTheTraining) {
  ASSERT_TRUE(MakeDirs(job_.options.run_dir).ok());
  ASSERT_TRUE(WriteFileAtomic(In("pictures"), "a file").ok());
  const std::string said = Train(1);
  EXPECT_NE(said.find("picture reconstruction-4.png: "), std::string::npos) << said;
  EXPECT_EQ(Missing(), 2);
}

}  // namespace
}  // namespace lockstep::engine
