#include "recipes/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/arguments.h"
#include "base/text.h"
#include "engine/recipe.h"
#include "recipes/denoise.h"
#include "recipes/lm.h"
#include "recipes/taehv.h"
#include "recipes/vrt.h"

namespace lockstep::recipes {
namespace {

const std::vector<RecipeRow>& BuiltIn() {
  static const std::vector<RecipeRow> rows = {
      {"denoise", MakeDenoise},
      {"lm", [] { return std::unique_ptr<engine::Recipe>(new LmRecipe); }},
      {"taehv", [] { return std::unique_ptr<engine::Recipe>(new TaehvRecipe); }},
      {"vrt", [] { return std::unique_ptr<engine::Recipe>(new VrtRecipe); }},
  };
  return rows;
}

// One word on a command line, and part of the name of a run directory.
bool IsName(const std::string& name) {
  return !name.empty() && name.front() != '-' && name.front() != '.' &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; });
}

}  // namespace

Result<Registry> Registry::With(std::vector<RecipeRow> own) {
  Registry registry;
  const auto known = [&](const std::string& name) {
    return std::any_of(registry.rows_.begin(), registry.rows_.end(),
                       [&](const RecipeRow& row) { return row.name == name; });
  };
  for (RecipeRow& row : own) {
    if (!IsName(row.name)) {
      return Status(Code::kUsage, fmt::format("a recipe is named '{}'", Printable(row.name)),
                    "name it with letters, digits, '-', '_' and '.' in the call of TrainProgram");
    }
    if (known(row.name)) {
      return Status(Code::kUsage, fmt::format("two recipes are named '{}'", row.name),
                    "give them different names in the call of TrainProgram");
    }
    registry.rows_.push_back(std::move(row));
  }
  for (const RecipeRow& row : BuiltIn()) {
    if (!known(row.name)) registry.rows_.push_back(row);
  }
  return registry;
}

std::vector<std::string> Registry::Names() const {
  std::vector<std::string> names;
  for (const RecipeRow& row : rows_) names.push_back(row.name);
  return names;
}

Result<std::unique_ptr<engine::Recipe>> Registry::Make(const std::string& name) const {
  for (const RecipeRow& row : rows_) {
    if (name == row.name) return row.make();
  }
  if (const std::string meant = MeantFlag(name, {"--config", "--set"}); !meant.empty()) {
    return Status(Code::kUsage, fmt::format("expected the name of a recipe, found '{}'", Printable(name)),
                  fmt::format("write RECIPE {}; the recipes are {}", meant, Join(Names(), ", ")));
  }
  return Status(Code::kUsage, fmt::format("unknown recipe '{}'{}", Printable(name), DidYouMean(name, Names())),
                "the recipes are " + Join(Names(), ", "));
}

}  // namespace lockstep::recipes
