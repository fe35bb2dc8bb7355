// Recipes of a program outside this tree stand beside the built-in ones.
#include "recipes/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/recipe.h"
#include "recipes/denoise.h"

namespace lockstep::recipes {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Registry, OwnRecipesComeFirstAndMayReplaceABuiltInOne) {
  const Registry own = *Registry::With({{"mine", MakeDenoise}, {"taehv", MakeDenoise}});
  EXPECT_THAT(own.Names(), ElementsAre("mine", "taehv", "denoise", "lm", "vrt"));
  EXPECT_EQ((*own.Make("taehv"))->name(), "denoise");
  EXPECT_THAT(own.Make("min").status().ToString(), HasSubstr("did you mean 'mine'"));
  EXPECT_THAT(Registry::With({})->Names(), ElementsAre("denoise", "lm", "taehv", "vrt"));
}

TEST(Registry, NamesAreRefusedThatACommandLineCannotSay) {
  for (const char* name : {"", "--mine", ".mine", "my recipe", "a/b"}) {
    EXPECT_THAT(Registry::With({{name, MakeDenoise}}).status().message(), HasSubstr("a recipe is named"));
  }
  EXPECT_THAT(Registry::With({{"a", MakeDenoise}, {"a", MakeDenoise}}).status().message(),
              HasSubstr("two recipes are named 'a'"));
}

}  // namespace
}  // namespace lockstep::recipes
