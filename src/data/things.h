// What scenes are furnished with: things as lists of parts, and the colours they come in. Tables, nothing else.
#pragma once

#include <cstdint>
#include <span>

#include "data/layer.h"

namespace lockstep::data {

// Whose colours a part takes: all parts of a thing with the same paint have the same colour.
enum class Paint : uint8_t { kAccent, kAccent2, kWall, kRoof, kBark, kLeaf, kStone, kDark, kPale, kSkin };
constexpr int kPaints = 10;

// In a box from (-1, -1) to (1, 1), y downwards; what stands stands at y = 1. The meaning of the numbers is Layer's.
struct Part {
  Shape shape = Shape::kEllipse;
  float x = 0, y = 0, half_width = 1, half_height = 1;
  Paint paint = Paint::kAccent;
  float rough = 0, round = 0, contrast = 0.13f, angle = 0;
};
using Parts = std::span<const Part>;

// A thing with the size it has beside others: half its height where it is near, in sizes of the picture, and how wide
// it is beside that.
struct Thing {
  Parts parts;
  float half = 0.1f;
  float aspect = 1;
};

extern const std::span<const Thing> kWood, kCountryside, kStillLife;
constexpr int kRolling = 2;  // of kStillLife
extern const Thing kTree, kHouse, kTower, kRock, kLighthouse, kBoat, kShip, kBalloon, kBird, kCar, kPerson, kFish,
    kWeed;
extern const std::span<const Thing> kScattered;  // seen from above

// The colours of a paint; leaves have others in autumn.
std::span<const Rgb> ColoursOf(Paint paint, bool autumn);

// The light of a day: the sky above and at the horizon, and its tint on everything.
struct Day {
  Rgb zenith, horizon, tint;
};
extern const std::span<const Day> kDays;
extern const std::span<const Rgb> kLands, kWaters, kRooms, kTables;

}  // namespace lockstep::data
