#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "media/load_vrt.h"
#include "models/vrt_file.h"

namespace lockstep::media {
namespace {

TEST(FusionJson, AnAdapterComesBackWithItsSizes) {
  models::FusionConfig config;
  config.op = "attention";
  config.frame_contract = "collapsed";
  config.spike_bins = 2, config.token_dim = 16, config.num_layers = 1, config.num_heads = 2, config.mlp_ratio = 1.5;
  const Result<models::FusionConfig> back = FusionFromJson(FusionToJson(config));
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(*back, config);
  EXPECT_FALSE(FusionFromJson("gated").ok());  // as the first checkpoints said it
  EXPECT_FALSE(FusionFromJson({{"operator", "gated"}}).ok());
}

// Names below DataParallel's "module."; the variant alone would say RGB.
TEST(LoadVrt, InputChannelsFollowTheFileWithAPrefixToo) {
  const auto dir = TempDir::Create("lockstep-load-vrt");
  ASSERT_TRUE(dir.ok());
  models::VrtConfig config = *models::FindVrt("tiny");
  config.in_chans = 4;
  const std::string path = *dir / "module.pth";
  ASSERT_TRUE(models::WriteVrtFile(models::Vrt(config, 1), path, "module").ok());
  const Result<LoadedVrt> loaded = LoadVrtWeights(path, "tiny");
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(loaded->model->config().in_chans, 4);
}

}  // namespace
}  // namespace lockstep::media
