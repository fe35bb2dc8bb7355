// The recipes this program knows, by name. A table; a new recipe is one row.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/recipe.h"

namespace lockstep::recipes {

std::vector<std::string> RecipeNames();
// An unknown name is an error with the nearest.
Result<std::unique_ptr<engine::Recipe>> MakeRecipe(const std::string& name);

}  // namespace lockstep::recipes
