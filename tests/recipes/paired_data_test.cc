#include "recipes/paired_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "recipes/kair_options.h"

namespace lockstep::recipes {
namespace {

using testing::HasSubstr;

Status ReadData(const std::string& yaml, PairedData* data) {
  const Result<ConfigTree> tree = ConfigTree::Parse(yaml, "c.yaml", ConfigTree::Format::kYaml);
  EXPECT_TRUE(tree.ok());
  ConfigReader reader(*tree);
  engine::DataConfig engine;
  reader.Section("data", [&](ConfigReader& r) { DeclarePairedData(r, data, &engine); });
  return reader.Finish();
}

TEST(PairedData, Keys) {
  PairedData data;
  ASSERT_TRUE(ReadData("data: {}", &data).ok());
  EXPECT_EQ(data.train.kind, "generated");
  EXPECT_FALSE(data.Test().has_value());
  const std::string files = R"(data:
  kind: folders
  target: gt
  input: lq
  crop: 192
  starts: clip
  spikes: {use: true, path: s, form: raw_window, channels: 21, height: 250, width: 400}
  test: {target: tgt, input: tlq, spikes: {path: ts}}
)";
  const Status status = ReadData(files, &data);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(data.train.spikes.form.Folder(), "raw_window_l21");
  EXPECT_FALSE(data.train.every_start);
  ASSERT_TRUE(data.Test().has_value());
  EXPECT_EQ(data.Test()->spikes.path, "ts");
  EXPECT_EQ(data.Test()->crop, 0);
  EXPECT_EQ(data.Test()->spikes.sensor.width, 400);
}

TEST(PairedData, Mistakes) {
  struct Case {
    const char *yaml, *words;
  };
  for (const Case& one : std::initializer_list<Case>{
           {"data: {kind: folders, target: a}", "input"},
           {"data: {target: a}", "kind is generated"},
           {"data: {crop: 50, scale: 4}", "a multiple of scale 4"},
           {"data: {spikes: {use: true, form: raw_window, channels: 20}}", "an odd number"},
           {"data: {kind: folders, target: a, input: b, spikes: {use: true, path: s}, test: {target: c, input: d}}",
            "test.spikes.path"},
           {"data: {kind: folders, target: a, input: b, test: {target: c}}", "a test set needs an input"}}) {
    PairedData data;
    EXPECT_THAT(ReadData(one.yaml, &data).message(), HasSubstr(one.words)) << one.yaml;
  }
}

// What TranslateKair sets in `data` is what is declared here (and by the engine: shuffle, validation).
TEST(PairedData, TakesWhatOptionFilesBecome) {
  const char* text =
      R"({"datasets": {"train": {"dataset_type": "TrainDatasetRGBSpike", "dataroot_gt": "g", "dataroot_lq": "l"
    , "dataroot_spike": "s", "spike_h": 360, "spike_w": 640, "spike_channels": 4, "spike_flipud": true
    , "meta_info_file": "m", "io_backend": {"type": "lmdb"}, "num_frame": 6, "gt_size": 224, "interval_list": [1, 2]
    , "val_partition": "REDS4", "random_reverse": true, "use_hflip": true, "use_rot": false, "tfp_half_win_length": 15
    , "spike": {"reconstruction": {"type": "spikecv_tfp", "num_bins": 4, "middle_tfp_center": 40}
                , "precomputed": {"enable": true, "root": "p", "format": "npy"}}}
    , "test": {"dataroot_gt": "tg", "dataroot_lq": "tl", "dataroot_spike": "ts", "meta_info_file": "tm"
               , "num_frame": -1, "io_backend": {"type": "disk"}
               , "spike_h": 360, "spike_flipud": true, "dataloader_shuffle": false, "interval_list": [1]}}
    , "scale": 1, "netG": {"net_type": "vrt"}, "train": {}})";
  const Result<KairTranslation> made = TranslateKair(text, "o.json");
  ASSERT_TRUE(made.ok() && made->Check().ok()) << made.status().message();
  PairedData data;
  const Status status = ReadData(made->Yaml(), &data);
  // Sections that other parts of the engine declare.
  EXPECT_THAT(status.message(), testing::Not(HasSubstr("data.test"))) << status.message();
  EXPECT_EQ(data.train.spikes.form.Folder(), "tfp_b4_hw15");
  EXPECT_EQ(data.train.spikes.precomputed_path, "p");
  EXPECT_EQ(data.train.partition, "REDS4");
  EXPECT_EQ(data.train.intervals, (std::vector<int>{1, 2}));
  EXPECT_EQ(data.Test()->meta_info, "tm");
  EXPECT_EQ(data.Test()->kind, "folders");
  EXPECT_EQ(data.Test()->partition, "");  // clips of their own are all scored, as in KAIR
  data.test_target = data.train.target;
  EXPECT_EQ(data.Test()->partition, "REDS4");
}

}  // namespace
}  // namespace lockstep::recipes
