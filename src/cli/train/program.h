// A train program: the training engine with a table of recipes, as one function. `lockstep-train` is one; a project of
// a user is another, with recipes of its own beside the built-in ones (docs/write-a-recipe.md):
//
//   int main(int argc, char** argv) { return lockstep::TrainProgram(argc, argv, {{"mine", MakeMine}}); }
//
// `lockstep train --program ./my-train mine` starts it as ranks; any launcher that says who is who may, too. Called
// once, by main().
#pragma once

#include <vector>

#include "recipes/registry.h"

namespace lockstep {

// All commands of `lockstep-train`; returns the exit code.
int TrainProgram(int argc, char** argv, std::vector<recipes::RecipeRow> own = {});

}  // namespace lockstep
