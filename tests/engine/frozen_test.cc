// Frozen parameters in shards: every element is kept by one rank, in its type, and comes back where it was.
#include "engine/frozen.h"

#include <gtest/gtest.h>

namespace lockstep::engine {
namespace {

struct MixedModule : torch::nn::Module {
  MixedModule() {
    const auto add = [&](const char* name, at::IntArrayRef shape, at::ScalarType type, bool trains) {
      const int64_t n = c10::multiply_integers(shape);
      register_parameter(name, (at::arange(n).remainder(97) + 1).view(shape).to(type), trains);
    };
    add("a", {7, 9}, at::kFloat, false);
    add("b", {50}, at::kBFloat16, false);
    add("c", {3, 4, 5}, at::kFloat, false);
    add("trained", {40}, at::kFloat, true);
    add("small", {8}, at::kFloat, false);
    add("other", {33}, at::kFloat, false);
    add("of_no_unit", {64}, at::kFloat, false);
  }
};

TEST(FrozenShards, EveryElementIsKeptOnceAndComesBack) {
  const std::vector<Unit> units = {{"first", {"a", "b", "c", "trained", "small"}}, {"second", {"other"}}};
  const auto original = MixedModule().named_parameters();
  for (const int shares : {1, 2, 3, 5}) {
    std::vector<MixedModule> modules(static_cast<size_t>(shares));
    std::vector<FrozenShards> ranks;
    for (int r = 0; r < shares; ++r) {
      auto taken = FrozenShards::Take(modules[static_cast<size_t>(r)], units,
                                      {.persistent = 10, .shares = shares, .share = r, .on_host = r % 2 == 1});
      ASSERT_TRUE(taken.ok());
      ranks.push_back(std::move(*taken));
    }
    ASSERT_EQ(ranks[0].groups().size(), 3u) << "float32 and bfloat16 of the first unit, and the second";
    ASSERT_EQ(ranks[0].parameters().size(), 4u);
    for (const auto& item : modules[0].named_parameters()) {
      const bool sharded = item.key() == "a" || item.key() == "b" || item.key() == "c" || item.key() == "other";
      EXPECT_EQ(item.value().numel(), sharded ? 0 : original[item.key()].numel()) << item.key();
    }
    int64_t kept = 0, all = 0;
    for (const FrozenParameter& parameter : ranks[0].parameters()) {
      int64_t end = 0;
      for (int r = 0; r < shares; ++r) {
        const FlatRange range = ranks[0].RangeOf(parameter, r);
        if (range.size() > 0) EXPECT_EQ(range.begin, end);
        end += range.size();
      }
      EXPECT_EQ(end, parameter.numel) << parameter.name;
      all += parameter.numel;
    }
    for (size_t g = 0; g < ranks[0].groups().size(); ++g) {
      std::vector<at::Tensor> shards;
      for (const FrozenShards& rank : ranks) shards.push_back(rank.groups()[g].shard);
      ranks[0].Place(g, at::cat(shards));
      kept += shards[0].numel();
    }
    EXPECT_LE(kept, (all + shares - 1) / shares + 3 * kFlatAlignment);
    for (const auto& item : modules[0].named_parameters()) {
      EXPECT_TRUE(at::equal(item.value(), original[item.key()])) << item.key() << " of " << shares;
      EXPECT_EQ(item.value().scalar_type(), original[item.key()].scalar_type());
    }
  }
}

}  // namespace
}  // namespace lockstep::engine
