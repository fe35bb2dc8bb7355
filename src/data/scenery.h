// What scenes show: landscapes, seas, streets, rooms, water and the ground from above, with things from a table (trees,
// houses, boats, ...). Everything is drawn from random numbers and comes out as layers. One thread.
#pragma once

#include <numbers>
#include <vector>

#include "data/layer.h"
#include "data/random.h"

namespace lockstep::data {

inline constexpr float kTurn = 2 * std::numbers::pi_v<float>;  // radians

struct Scenery {
  std::vector<Layer> layers;  // from far to near
  std::vector<Texture> textures;
  Light light;
  float pan = 1;  // how fast a camera may move; less where things are close
};

Scenery DrawScenery(Random* random, int height, int width);

}  // namespace lockstep::data
