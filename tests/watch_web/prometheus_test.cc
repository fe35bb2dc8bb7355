// /metrics: names, types, escaping; promtool itself reads it in tests/integration/test_watch_web.py.
#include "watch/web/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::watch {
namespace {

TEST(Prometheus, EscapesLabelsAndLeavesOutWhatIsUnknown) {
  RunView view;
  view.name = "a\"b\\c\nd\xff";
  view.state = "running";
  view.loss = NAN;
  RankView rank;
  rank.rank = 3;
  rank.stages = {{"data", 0.5}};
  view.ranks.push_back(rank);
  NodeView node{.node = 1, .host = "h"};
  node.gpus.push_back({.index = 2,
                       .uuid = "GPU-1",
                       .name = "H200",
                       .utilisation = 97,
                       .memory_used = 3.0 * (1 << 20),
                       .memory_total = 4.0 * (1 << 20),
                       .throttle = {"hw slowdown"}});
  view.nodes.push_back(node);
  const std::string text = PrometheusText({&view}, 0);
  EXPECT_THAT(text, testing::HasSubstr("lockstep_run_loss{run=\"a\\\"b"));
  EXPECT_THAT(text, testing::HasSubstr("} NaN\n"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("\xff")));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("lockstep_run_step{")));
  EXPECT_THAT(text, testing::HasSubstr("rank=\"3\",stage=\"data\"} 0.5\n"));
  EXPECT_THAT(text,
              testing::HasSubstr("# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL{gpu=\"2\",UUID=\"GPU-1\","));
  EXPECT_THAT(text, testing::ContainsRegex("DCGM_FI_DEV_FB_USED\\{[^\n]*\\} 3\n"));
  EXPECT_THAT(text, testing::ContainsRegex("DCGM_FI_DEV_FB_FREE\\{[^\n]*\\} 1\n"));
  EXPECT_THAT(text, testing::ContainsRegex("lockstep_gpu_throttled\\{[^\n]*reason=\"hw slowdown\"\\} 1\n"));
}

}  // namespace
}  // namespace lockstep::watch
