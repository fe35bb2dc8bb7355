// The smallest useful recipe: a network that takes noise off pictures. It is the example of docs/write-a-recipe.md.
#pragma once

#include <memory>

#include "engine/recipe.h"

namespace lockstep::recipes {

std::unique_ptr<engine::Recipe> MakeDenoise();

}  // namespace lockstep::recipes
