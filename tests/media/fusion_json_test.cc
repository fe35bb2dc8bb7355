#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "media/load_vrt.h"

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

}  // namespace
}  // namespace lockstep::media
