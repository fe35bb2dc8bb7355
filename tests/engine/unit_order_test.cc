#include "engine/unit_order.h"

#include <gtest/gtest.h>

namespace lockstep::engine {
namespace {

TEST(UnitOrder, BeginsWithForwardThenBackward) {
  UnitOrder order({10, 20, 30});
  order.Begin();
  const std::vector<UnitUse> expected = {{0, false}, {1, false}, {2, false}, {2, true}, {1, true}, {0, true}};
  EXPECT_EQ(order.Rest(), expected);
  EXPECT_TRUE(order.Use({0, false}));
  EXPECT_EQ(order.Expected(0), (UnitUse{1, false}));
  EXPECT_EQ(order.ReuseDistance(0), 20 + 30 + 30 + 20);
  EXPECT_TRUE(order.Use({1, false}));
  EXPECT_TRUE(order.Use({2, false}));
  EXPECT_EQ(order.ReuseDistance(2), 0);
  EXPECT_TRUE(order.Use({2, true}));
  EXPECT_EQ(order.ReuseDistance(2), UnitOrder::kNever);
}

TEST(UnitOrder, LearnsAnotherOrderFromAWholePass) {
  UnitOrder order({1, 1, 1});
  const std::vector<UnitUse> other = {{0, false}, {2, false}, {2, true}, {0, true}};
  order.Begin();
  EXPECT_TRUE(order.Use(other[0]));
  EXPECT_FALSE(order.Use(other[1]));
  EXPECT_EQ(order.Expected(0), std::nullopt);
  EXPECT_TRUE(order.Rest().empty());
  order.Use(other[2]);
  order.Use(other[3]);
  order.End();
  order.Begin();
  EXPECT_EQ(order.Rest(), other);
  // A pass that ends early (without End) is not taken for the order.
  EXPECT_TRUE(order.Use(other[0]));
  order.Begin();
  EXPECT_EQ(order.Rest(), other);
}

}  // namespace
}  // namespace lockstep::engine
