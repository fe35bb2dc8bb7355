#include "data/scenery.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "data/things.h"

namespace lockstep::data {
namespace {

class Stage {
 public:
  Stage(Random* random, int height, int width)
      : random_(random),
        height_(static_cast<float>(height)),
        width_(static_cast<float>(width)),
        size_(std::min(height_, width_)) {
    // Large enough that the picture shows a texture about once.
    side_ = static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(32.0f, 1.25f * std::max(height_, width_)))));
    made_.textures.emplace_back(random, side_, In(0.85f, 1.0f));
    made_.textures.emplace_back(random, side_, In(1.35f, 1.6f));
    autumn_ = random->Chance(0.25);
    day_ = Pick(kDays);
    const float angle = In(-0.9f, 0.9f);
    made_.light = {0.75f * std::sin(angle), -0.75f * std::cos(angle), 0.66f, In(0.25f, 0.55f)};
  }

  Scenery Draw() {
    struct Row {
      double share;
      void (Stage::*draw)();
    };
    static constexpr Row rows[] = {{0.38, &Stage::Landscape}, {0.18, &Stage::Sea},   {0.12, &Stage::Street},
                                   {0.12, &Stage::Room},      {0.10, &Stage::Water}, {0.10, &Stage::Ground}};
    double left = random_->Uniform();
    const Row* row = rows;
    while (row != std::end(rows) - 1 && left >= row->share) left -= (row++)->share;
    (this->*row->draw)();
    return std::move(made_);
  }

 private:
  enum Surface { kSmooth, kFine };  // which texture

  float In(float low, float high) { return static_cast<float>(random_->Uniform(low, high)); }
  int Count(int low, int high) { return static_cast<int>(random_->Between(low, high)); }
  template <typename T>
  const T& Pick(std::span<const T> row) {
    return row[random_->Below(row.size())];
  }

  Rgb Vary(const Rgb& colour, float by = 0.15f) {
    const float bright = In(1 - by, 1 + by);
    const float warm = In(-0.2f * by, 0.2f * by);
    return {colour.r * bright + warm, colour.g * bright, colour.b * bright - warm};
  }
  Rgb Land() { return Vary(Pick(kLands)); }
  Rgb Stone() { return Pick(ColoursOf(Paint::kStone, false)); }

  // Filling the picture, somewhere in the texture.
  Layer Base(Shape shape, float depth, Surface surface = kSmooth) {
    Layer layer;
    layer.shape = shape;
    layer.depth = depth;
    layer.texture = surface;
    layer.texture_x = In(0, static_cast<float>(side_));
    layer.texture_y = In(0, static_cast<float>(side_));
    layer.half_width = width_;
    layer.half_height = height_;
    return layer;
  }
  Layer& Add(Layer layer) {
    made_.layers.push_back(std::move(layer));
    return made_.layers.back();
  }

  std::vector<float> Outline(int cells, float decay, float height) {
    const auto count = std::bit_ceil(static_cast<unsigned>(2 * std::max(width_, 16.0f)));
    std::vector<float> outline = DrawOutline(random_, static_cast<int>(count), cells, decay);
    for (float& h : outline) h *= height;
    return outline;
  }

  void AddSky(float horizon) {
    Layer sky = Base(Shape::kAll, 0);
    sky.y = horizon - 0.5f * height_;
    sky.half_height = 0.5f * height_;
    sky.top = Vary(day_.zenith, 0.1f);
    sky.bottom = Vary(day_.horizon, 0.08f);
    sky.contrast = 0.016f;
    Add(sky);
    if (random_->Chance(0.35)) AddSun(horizon);
    if (!random_->Chance(0.75)) return;
    Layer clouds = Base(Shape::kCloud, 0.05f);
    clouds.y = horizon - 0.5f * height_;
    clouds.top = clouds.bottom = Blend(day_.horizon, {.95f, .95f, .95f}, 0.6f);
    clouds.contrast = 0.04f;
    clouds.opacity = In(0.5f, 0.95f);
    clouds.cut = In(-0.4f, 1.0f);
    clouds.soft = In(0.8f, 2.0f);
    clouds.grain_x = In(0.3f, 0.6f);
    clouds.grain_y = clouds.grain_x * In(1.5f, 2.5f);
    clouds.motion.vx = size_ * In(-0.006f, 0.006f);
    Add(clouds);
  }

  void AddSun(float horizon) {
    Layer glow = Base(Shape::kEllipse, 0);
    glow.x = In(-0.4f, 0.4f) * width_;
    glow.y = horizon - In(0.12f, 0.5f) * height_;
    glow.half_width = glow.half_height = 0.28f * size_;
    glow.soft = 0.5f * size_;
    glow.opacity = 0.5f;
    glow.top = glow.bottom = {1.0f, .93f, .78f};
    Add(glow);
    Layer sun = glow;
    sun.half_width = sun.half_height = In(0.05f, 0.08f) * size_;
    sun.soft = 1.1f;
    sun.opacity = 1;
    sun.top = sun.bottom = {1.0f, .96f, .86f};
    Add(sun);
  }

  struct Relief {
    float y = 0;       // around which the outline runs
    float height = 0;  // of its hills
    float haze = 0;    // of the air before it
    float contrast = 0.4f;
    float stretch = 1;  // of the surface's pattern: larger is flatter
  };
  void AddLand(const Relief& relief, float depth, const Rgb& colour) {
    Layer land = Base(Shape::kBelow, depth, kFine);
    land.y = relief.y;
    land.half_height = std::max(0.15f * height_, 0.5f * height_ - relief.y);
    land.outline = Outline(relief.height > 0.05f * size_ ? 4 : 2, In(0.45f, 0.55f), 1.6f * relief.height);
    land.top = Blend(colour * day_.tint, day_.horizon, relief.haze);
    land.bottom = Blend(colour * day_.tint * In(0.65f, 0.9f), day_.horizon, relief.haze * 0.7f);
    land.contrast = relief.contrast * (1 - relief.haze) * (1.25f - 0.9f * colour.g);  // snow is smooth
    land.rough = 0.02f * size_;
    land.grain_y = relief.stretch;
    Add(land);
  }

  struct Pose {
    float x = 0, y = 0;  // of its middle
    float half = 1;      // of its height
    float aspect = 1;
    float depth = 1;
    float haze = 0;
    float angle = 0, spin = 0;
  };
  void Put(const Thing& thing, const Pose& pose, const Motion& motion = {}) {
    Rgb colours[kPaints];
    for (int i = 0; i < kPaints; ++i) {
      const auto paint = static_cast<Paint>(i);
      colours[i] = Vary(Pick(ColoursOf(paint, autumn_ && random_->Chance(0.7)))) * day_.tint;
    }
    const float sign = random_->Chance(0.5) ? 1.0f : -1.0f;
    const float cos = std::cos(pose.angle);
    const float sin = std::sin(pose.angle);
    for (const Part& part : thing.parts) {
      const bool grows = part.paint == Paint::kLeaf || part.paint == Paint::kBark;
      const bool fine = grows || part.paint == Paint::kStone || part.paint == Paint::kRoof;
      Layer layer = Base(part.shape, pose.depth, fine ? kFine : kSmooth);
      const float x = sign * part.x * pose.half * pose.aspect;
      const float y = part.y * pose.half;
      layer.x = pose.x + x * cos - y * sin;
      layer.y = pose.y + x * sin + y * cos;
      layer.half_width = sign * part.half_width * pose.half * pose.aspect;
      layer.half_height = part.half_height * pose.half;
      layer.angle = pose.angle + sign * part.angle;
      layer.spin = pose.spin;
      layer.motion = motion;
      const Rgb& colour = colours[static_cast<int>(part.paint)];
      layer.top = Blend(colour * 1.06f, day_.horizon, pose.haze);
      layer.bottom = Blend(colour * 0.85f, day_.horizon, pose.haze);
      layer.contrast = part.contrast * (1 - pose.haze);
      layer.round = part.round * (1 - pose.haze);
      layer.rough = part.rough;
      Add(layer);
    }
  }

  // Below a thing: as wide as it, away from the light.
  void AddShadow(const Pose& pose, float flat, float aside, const Motion& motion = {}) {
    Layer shadow = Base(Shape::kEllipse, pose.depth);
    shadow.x = pose.x - aside * pose.half * made_.light.x;
    shadow.y = pose.y;
    shadow.half_width = pose.half * pose.aspect * 0.9f;
    shadow.half_height = std::max(0.8f, flat * pose.half);
    shadow.soft = std::max(1.2f, 0.6f * shadow.half_height);
    shadow.opacity = 0.45f;
    shadow.angle = pose.angle;
    shadow.motion = motion;
    shadow.top = shadow.bottom = {.05f, .05f, .07f};
    Add(shadow);
  }

  // Things that stand on the ground are the lower the nearer they are.
  float Floor(float horizon, float depth) const { return horizon + (0.5f * height_ - horizon) * depth; }
  void Stand(const Thing& thing, Pose pose, float floor, const Motion& motion = {}) {
    pose.y = floor;
    AddShadow(pose, 0.13f, 0.3f, motion);
    pose.y = floor - pose.half;
    Put(thing, pose, motion);
  }

  // From far to near.
  std::vector<float> Depths(int count, float low, float high) {
    std::vector<float> depths(count);
    for (float& depth : depths) depth = In(low, high);
    std::ranges::sort(depths);
    return depths;
  }

  Motion Floating(float speed, float rise) {
    return {.vx = size_ * In(-speed, speed), .sway_y = rise * size_, .rate = In(0.15f, 0.5f), .phase = In(0, kTurn)};
  }

  void AddFliers(float horizon) {
    if (random_->Chance(0.3)) {
      for (int i = Count(1, 3); i > 0; --i) {
        Motion motion = Floating(0.006f, 0);
        motion.vy = size_ * In(-0.006f, 0.002f);
        Put(kBalloon,
            {.x = In(-0.5f, 0.5f) * width_,
             .y = In(-0.45f, 0.0f) * height_ + std::min(horizon, 0.0f),
             .half = size_ * kBalloon.half * In(0.6f, 1.5f),
             .depth = 0.3f,
             .haze = 0.1f},
            motion);
      }
    } else if (random_->Chance(0.3)) {
      const float speed = size_ * In(-0.02f, 0.02f);
      for (int i = Count(2, 5); i > 0; --i) {
        Motion motion = Floating(0, 0.01f);
        motion.vx = speed;
        Put(kBird,
            {.x = In(-0.6f, 0.6f) * width_,
             .y = In(-0.45f, -0.1f) * height_,
             .half = size_ * kBird.half * In(0.6f, 1.2f),
             .depth = 0.3f,
             .haze = 0.1f},
            motion);
      }
    }
  }

  void Landscape() {
    const float horizon = In(-0.22f, 0.12f) * height_;
    AddSky(horizon);
    const Rgb land = Land();
    const int ridges = Count(1, 3);
    for (int i = 1; i <= ridges; ++i) {
      const float near = static_cast<float>(i) / static_cast<float>(ridges + 1);
      AddLand({.y = horizon + (near - 0.5f) * 0.06f * height_,
               .height = size_ * In(0.06f, 0.2f) * (1.2f - near),
               .haze = 0.65f * (1 - near),
               .stretch = 1.2f},
              0.1f + 0.2f * near, Vary(Blend(land, Stone(), In(0.2f, 0.7f))));
    }
    AddLand({.y = horizon + 0.04f * height_, .height = 0.02f * size_, .haze = 0.12f, .stretch = 2}, 0.5f, land);
    AddLand({.y = horizon + 0.22f * height_, .height = 0.03f * size_, .contrast = 0.44f, .stretch = 1.5f}, 0.8f,
            Vary(land, 0.1f));
    const bool wood = random_->Chance(0.5);
    for (float depth : Depths(wood ? Count(6, 16) : Count(3, 9), 0.12f, 0.95f)) {
      const Thing& thing = Pick(wood ? kWood : kCountryside);
      Stand(thing,
            {.x = In(-0.75f, 0.75f) * width_,
             .half = size_ * thing.half * (0.25f + 0.95f * depth) * In(0.8f, 1.25f),
             .aspect = thing.aspect,
             .depth = depth,
             .haze = std::max(0.0f, 0.35f - 0.45f * depth)},
            Floor(horizon, depth));
    }
    AddFliers(horizon);
  }

  void Sea() {
    const float horizon = In(-0.2f, 0.1f) * height_;
    AddSky(horizon);
    if (random_->Chance(0.6)) {
      AddLand({.y = horizon - 0.01f * height_, .height = size_ * In(0.05f, 0.16f), .haze = In(0.2f, 0.6f)}, 0.12f,
              Vary(Blend(Land(), Stone(), 0.5f)));
    }
    const Rgb water = Vary(Pick(kWaters));
    for (float near : {0.0f, 0.35f, 0.7f}) {  // waves grow towards the viewer
      Layer sea = Base(Shape::kBelow, 0.3f + 0.6f * near, kFine);
      sea.y = Floor(horizon, near);
      sea.half_height = 0.5f * (0.5f * height_ - horizon);
      sea.outline = Outline(16, 0.6f, near * 0.03f * size_);
      sea.top = Blend(water, day_.horizon, 0.45f - 0.35f * near) * day_.tint;
      sea.bottom = Blend(water, day_.horizon, 0.2f - 0.15f * near) * day_.tint;
      sea.contrast = 0.34f;
      sea.soft = near > 0 ? 2.2f : 0.9f;
      sea.grain_x = 0.55f - 0.25f * near;
      sea.grain_y = 1.6f - 0.9f * near;
      sea.motion = Floating(0.01f, near * 0.006f);
      Add(sea);
    }
    if (random_->Chance(0.25)) {
      const float half = size_ * kLighthouse.half * In(0.75f, 1.25f);
      Pose pose{.x = In(-0.4f, 0.4f) * width_, .y = horizon + In(0.08f, 0.3f) * height_, .depth = 0.45f};
      pose.half = 0.5f * half;
      pose.aspect = 2.2f;
      Put(kRock, pose);
      pose.y -= 0.9f * half;
      pose.half = half;
      pose.aspect = kLighthouse.aspect;
      Put(kLighthouse, pose);
    }
    for (float depth : Depths(Count(1, 4), 0.1f, 0.7f)) {
      const Thing& thing = random_->Chance(0.25) ? kShip : kBoat;
      Pose pose{.x = In(-0.5f, 0.5f) * width_,
                .half = size_ * thing.half * In(0.7f, 1.3f) * (0.35f + 0.9f * depth),
                .aspect = thing.aspect,
                .depth = depth,
                .haze = std::max(0.0f, 0.24f - 0.4f * depth)};
      const Motion motion = Floating(0.012f, 0.008f);
      pose.y = Floor(horizon, depth) + 0.15f * pose.half;
      AddShadow(pose, 0.2f, 0, motion);
      pose.y -= 1.05f * pose.half;
      Put(thing, pose, motion);
    }
    AddFliers(horizon);
  }

  void Street() {
    const float horizon = In(-0.05f, 0.1f) * height_;
    AddSky(horizon);
    AddLand({.y = horizon, .height = 0.05f * size_, .haze = 0.5f}, 0.15f, Land());
    const float back = Floor(horizon, 0.2f);
    AddLand({.y = back - 0.03f * height_, .haze = 0.1f, .stretch = 1.6f}, 0.45f, Land());
    for (float x = -1.2f * width_; x < 1.2f * width_;) {
      const Thing& thing = random_->Chance(0.35) ? kTower : kHouse;
      Pose pose{.half = size_ * thing.half * In(0.75f, 1.25f), .aspect = In(0.9f, 1.4f), .depth = 0.5f, .haze = 0.06f};
      const float reach = pose.half * pose.aspect * (&thing == &kTower ? 0.5f : 1.0f);
      pose.x = x + reach;
      pose.y = back - pose.half;
      if (random_->Chance(0.85)) Put(thing, pose);
      x += 2 * reach + size_ * In(0, 0.12f);
      if (random_->Chance(0.35)) Put(kTree, {.x = x, .y = back - 0.14f * size_, .half = 0.15f * size_, .depth = 0.5f});
    }
    const Relief pavement{.y = back + 0.03f * height_, .contrast = 0.26f, .stretch = 2};
    AddLand(pavement, 0.6f, Vary({.45f, .44f, .43f}, 0.2f));
    const Relief road{.y = back + 0.10f * height_, .contrast = 0.28f, .stretch = 2};
    AddLand(road, 0.8f, Vary({.30f, .30f, .31f}, 0.2f));
    for (float depth : Depths(Count(1, 4), 0.35f, 0.95f)) {
      const bool walks = depth < 0.5f;
      const Thing& thing = walks ? kPerson : kCar;
      const float half = size_ * thing.half * (0.5f + depth);
      Put(thing,
          {.x = In(-0.8f, 0.8f) * width_,
           .y = Floor(horizon, depth) - half,
           .half = half,
           .aspect = thing.aspect,
           .depth = depth},
          walks ? Floating(0.006f, 0.004f) : Floating(0.03f, 0));
    }
    if (random_->Chance(0.4)) {  // a tree close by
      Put(kTree, {.x = In(-0.5f, 0.5f) * width_, .y = 0.05f * height_, .half = 0.55f * size_, .depth = 1.1f});
    }
  }

  void Room() {
    const float edge = In(0.02f, 0.25f) * height_;
    Layer wall = Base(Shape::kAll, 0.4f);
    wall.top = Vary(Pick(kRooms));
    wall.bottom = wall.top * In(0.6f, 0.9f);
    wall.contrast = In(0.06f, 0.2f);
    Add(wall);
    if (random_->Chance(0.6)) AddWindow();
    AddLand({.y = edge, .contrast = 0.26f, .stretch = 2.4f}, 0.7f, Pick(kTables));
    made_.layers.back().grain_x = 0.45f;  // wood
    made_.layers.back().rough = 0;
    for (float depth : Depths(Count(2, 7), 0.15f, 0.85f)) {
      const Thing& thing = Pick(kStillLife);
      Pose pose{.x = In(-0.55f, 0.55f) * width_,
                .half = size_ * thing.half * (0.7f + 0.5f * depth) * In(0.8f, 1.2f),
                .aspect = thing.aspect,
                .depth = 0.5f + 0.5f * depth};
      Motion motion;
      if (&thing == &kStillLife[kRolling] && random_->Chance(0.7)) {
        motion.vx = size_ * In(-0.012f, 0.012f);
        pose.spin = motion.vx / pose.half;
      }
      Stand(thing, pose, Floor(edge, depth), motion);
    }
    made_.pan = 0.6f;
  }

  // A frame, and a piece of land under the sky in it.
  void AddWindow() {
    Layer frame = Base(Shape::kBox, 0.4f);
    frame.x = In(-0.4f, 0.4f) * width_;
    frame.y = In(-0.35f, -0.15f) * height_;
    frame.half_height = size_ * In(0.15f, 0.24f);
    frame.half_width = frame.half_height * In(0.7f, 1.5f);
    frame.top = frame.bottom = Vary(Pick(ColoursOf(Paint::kBark, false)), 0.4f);
    frame.contrast = 0.13f;
    Add(frame);
    Layer sky = frame;
    sky.half_width -= 0.025f * size_;
    sky.half_height -= 0.025f * size_;
    sky.top = day_.zenith;
    sky.bottom = day_.horizon;
    sky.contrast = 0.18f;
    Add(sky);
    Layer land = sky;
    land.texture = kFine;
    land.y += 0.7f * sky.half_height;
    land.half_height *= 0.3f;
    land.top = land.bottom = Land();
    land.contrast = 0.4f;
    Add(land);
  }

  void Water() {
    day_.horizon = Vary({.32f, .55f, .58f});
    day_.tint = {.75f, .95f, 1.0f};
    Layer back = Base(Shape::kAll, 0.1f);
    back.half_height = 0.6f * height_;
    back.top = day_.horizon * 1.15f;
    back.bottom = Vary({.07f, .22f, .32f});
    back.contrast = 0.13f;
    back.grain_x = 0.6f;
    back.motion.vx = size_ * In(-0.004f, 0.004f);
    Add(back);
    AddLand({.y = In(0.15f, 0.35f) * height_, .height = 0.08f * size_, .haze = 0.35f, .stretch = 1.3f}, 0.4f,
            Vary({.50f, .46f, .36f}));
    for (float depth : Depths(Count(4, 11), 0.3f, 1)) {
      const bool swims = random_->Chance(0.5);
      const Thing& thing = swims ? kFish : random_->Chance(0.6) ? kWeed : kRock;
      Pose pose{.x = In(-0.6f, 0.6f) * width_,
                .half = size_ * thing.half * In(0.6f, 1.35f) * (0.4f + 0.8f * depth),
                .aspect = thing.aspect,
                .depth = depth,
                .haze = 0.4f * (1 - depth)};
      pose.y = swims ? In(-0.4f, 0.35f) * height_ : (0.3f + 0.22f * depth) * height_ - pose.half;
      Motion motion = Floating(0.015f, 0.012f);
      if (!swims)
        motion = {.sway_x = &thing == &kWeed ? 0.012f * size_ : 0, .rate = motion.rate, .phase = motion.phase};
      Put(thing, pose, motion);
    }
  }

  // Leaves, pebbles or flowers from above.
  void Ground() {
    Layer ground = Base(Shape::kAll, 0.85f, kFine);
    ground.top = Land() * 0.8f;
    ground.bottom = ground.top * In(0.7f, 1.0f);
    ground.contrast = 0.34f;
    Add(ground);
    const Thing& thing = Pick(kScattered);
    const int count = Count(20, 50);
    const float small = In(0.04f, 0.07f);
    for (int i = 0; i < count; ++i) {
      // As in nature, the number of things above a size falls with its square.
      const float half = size_ * std::min(0.4f, small / std::sqrt(std::max(0.004f, In(0, 1))));
      Pose pose{.x = In(-0.7f, 0.7f) * width_,
                .y = In(-0.7f, 0.7f) * height_,
                .half = half,
                .depth = 0.85f + 0.15f * static_cast<float>(i) / static_cast<float>(count),
                .angle = In(0, kTurn)};
      Motion motion;
      if (random_->Chance(0.1)) motion = {.vx = size_ * In(-0.015f, 0.015f), .vy = size_ * In(-0.015f, 0.015f)};
      AddShadow(pose, 0.6f, 0.25f, motion);
      Put(thing, pose, motion);
    }
    made_.pan = 0.7f;
  }

  Random* random_;
  float height_, width_;
  float size_;  // the smaller of both: what lengths are given in
  int side_ = 0;
  bool autumn_ = false;
  Day day_;
  Scenery made_;
};

}  // namespace

Scenery DrawScenery(Random* random, int height, int width) { return Stage(random, height, width).Draw(); }

}  // namespace lockstep::data
