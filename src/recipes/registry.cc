#include "recipes/registry.h"

#include <fmt/format.h>

#include "base/arguments.h"
#include "base/text.h"
#include "recipes/denoise.h"
#include "recipes/taehv.h"

namespace lockstep::recipes {
namespace {

struct Row {
  const char* name;
  std::unique_ptr<engine::Recipe> (*make)();
};

constexpr Row kRecipes[] = {
    {"denoise", MakeDenoise},
    {"taehv", [] { return std::unique_ptr<engine::Recipe>(new TaehvRecipe); }},
};

}  // namespace

std::vector<std::string> RecipeNames() {
  std::vector<std::string> names;
  for (const Row& row : kRecipes) names.emplace_back(row.name);
  return names;
}

Result<std::unique_ptr<engine::Recipe>> MakeRecipe(const std::string& name) {
  for (const Row& row : kRecipes) {
    if (name == row.name) return row.make();
  }
  if (const std::string meant = MeantFlag(name, {"--config", "--set"}); !meant.empty()) {
    return Status(Code::kUsage, fmt::format("expected the name of a recipe, found '{}'", Printable(name)),
                  fmt::format("write RECIPE {}; the recipes are {}", meant, Join(RecipeNames(), ", ")));
  }
  return Status(Code::kUsage, fmt::format("unknown recipe '{}'{}", Printable(name), DidYouMean(name, RecipeNames())),
                "the recipes are " + Join(RecipeNames(), ", "));
}

}  // namespace lockstep::recipes
