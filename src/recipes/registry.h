// The recipes a train program knows, by name: a table, to which a program outside this tree adds rows of its own
// (cli/train/program.h). Plain values; any thread. Without LibTorch's headers, so that a main() compiles in a second.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace lockstep::engine {
class Recipe;
}

namespace lockstep::recipes {

struct RecipeRow {
  std::string name;  // what `lockstep train NAME` says
  std::unique_ptr<engine::Recipe> (*make)() = nullptr;
};

class Registry {
 public:
  // The built-in recipes behind `own`. An own one with the name of a built-in takes its place. Errors: two own ones of
  // one name, a name that no command line could say.
  static Result<Registry> With(std::vector<RecipeRow> own);

  std::vector<std::string> Names() const;
  // An unknown name is an error with the nearest.
  Result<std::unique_ptr<engine::Recipe>> Make(const std::string& name) const;

 private:
  std::vector<RecipeRow> rows_;
};

}  // namespace lockstep::recipes
