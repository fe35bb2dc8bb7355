#include "data/things.h"

#include <numbers>

namespace lockstep::data {
namespace {

using enum Shape;
using enum Paint;

constexpr float kQuarter = std::numbers::pi_v<float> / 2;
constexpr float kFifth = std::numbers::pi_v<float> * 2 / 5;

constexpr Part kTreeParts[] = {{kBox, 0, .62f, .08f, .40f, kBark, .2f, .3f, .32f},
                               {kEllipse, .05f, -.25f, .66f, .72f, kLeaf, .5f, .75f, .55f},
                               {kEllipse, -.22f, -.38f, .40f, .40f, kLeaf, .5f, .6f, .55f}};
constexpr Part kFirParts[] = {{kBox, 0, .85f, .07f, .17f, kBark},
                              {kTriangle, 0, .38f, .52f, .46f, kLeaf, .35f, .5f, .52f},
                              {kTriangle, 0, -.08f, .42f, .44f, kLeaf, .35f, .5f, .52f},
                              {kTriangle, 0, -.55f, .30f, .44f, kLeaf, .35f, .5f, .52f}};
constexpr Part kBushParts[] = {{kEllipse, 0, .45f, .95f, .62f, kLeaf, .5f, .7f, .55f},
                               {kEllipse, -.3f, .2f, .5f, .45f, kLeaf, .5f, .6f, .55f}};
constexpr Part kRockParts[] = {{kEllipse, 0, .45f, .95f, .62f, kStone, .35f, .8f, .36f}};
constexpr Part kHouseParts[] = {{kBox, 0, .38f, .78f, .62f, kWall, 0, .15f, .18f},
                                {kTriangle, 0, -.55f, 1, .38f, kRoof, 0, .2f, .28f},
                                {kBox, .5f, -.72f, .09f, .2f, kRoof},
                                {kBox, -.42f, .25f, .15f, .18f, kDark},
                                {kBox, .42f, .25f, .15f, .18f, kDark},
                                {kBox, 0, .62f, .14f, .38f, kAccent}};
constexpr Part kTowerParts[] = {{kBox, 0, .1f, .46f, .9f, kWall, 0, .3f, .2f},
                                {kBox, 0, -.85f, .5f, .08f, kRoof},
                                {kBox, -.2f, -.5f, .1f, .1f, kDark},
                                {kBox, .2f, -.5f, .1f, .1f, kDark},
                                {kBox, -.2f, -.1f, .1f, .1f, kDark},
                                {kBox, .2f, -.1f, .1f, .1f, kDark},
                                {kBox, -.2f, .3f, .1f, .1f, kDark},
                                {kBox, .2f, .3f, .1f, .1f, kDark},
                                {kBox, 0, .8f, .12f, .2f, kAccent}};
constexpr Part kLighthouseParts[] = {{kBox, 0, .15f, .2f, .85f, kPale, 0, .7f},
                                     {kBox, 0, -.25f, .2f, .14f, kAccent, 0, .7f},
                                     {kBox, 0, .35f, .2f, .14f, kAccent, 0, .7f},
                                     {kBox, 0, -.78f, .14f, .1f, kDark},
                                     {kTriangle, 0, -.93f, .2f, .08f, kAccent}};
constexpr Part kBoatParts[] = {{kBox, 0, -.1f, .03f, .85f, kBark},
                               {kSail, .36f, -.15f, .32f, .68f, kPale, 0, .3f},
                               {kSail, -.26f, -.05f, -.2f, .56f, kPale, 0, .3f},
                               {kHull, 0, .8f, .8f, .2f, kAccent, 0, .3f}};
constexpr Part kShipParts[] = {{kBox, -.1f, .25f, .32f, .3f, kPale, 0, .2f},
                               {kBox, 0, -.2f, .1f, .25f, kAccent2},
                               {kBox, -.1f, .2f, .26f, .06f, kDark},
                               {kHull, 0, .75f, 1, .25f, kAccent, 0, .3f}};
constexpr Part kBalloonParts[] = {{kEllipse, 0, -.28f, .64f, .70f, kAccent, 0, .9f},
                                  {kEllipse, 0, -.28f, .24f, .70f, kAccent2, 0, .8f},
                                  {kBox, 0, .82f, .15f, .14f, kBark}};
constexpr Part kBirdParts[] = {{kLens, -.45f, 0, .52f, .16f, kDark, 0, 0, 0, .35f},
                               {kLens, .45f, 0, .52f, .16f, kDark, 0, 0, 0, -.35f}};
constexpr Part kCarParts[] = {
    {kEllipse, 0, .92f, 1.05f, .12f, kDark},   {kEllipse, 0, -.05f, .6f, .75f, kAccent, 0, .3f},
    {kBox, 0, .3f, 1, .35f, kAccent, 0, .4f},  {kBox, -.22f, -.28f, .19f, .24f, kDark},
    {kBox, .22f, -.28f, .19f, .24f, kDark},    {kEllipse, -.55f, .66f, .22f, .32f, kDark},
    {kEllipse, .55f, .66f, .22f, .32f, kDark}, {kEllipse, .92f, .25f, .08f, .1f, kPale}};
constexpr Part kPersonParts[] = {{kBox, -.1f, .65f, .09f, .36f, kDark},
                                 {kBox, .1f, .65f, .09f, .36f, kDark},
                                 {kEllipse, 0, -.12f, .27f, .48f, kAccent, 0, .6f},
                                 {kEllipse, 0, -.75f, .16f, .2f, kSkin, 0, .6f},
                                 {kEllipse, 0, -.85f, .17f, .14f, kBark}};
constexpr Part kFishParts[] = {{kTriangle, -.82f, 0, .42f, .28f, kAccent, 0, .3f, .13f, kQuarter},
                               {kLens, .08f, 0, .85f, .48f, kAccent, 0, .6f, .26f},
                               {kBox, .1f, 0, .09f, .36f, kAccent2, .2f, .3f},
                               {kEllipse, .55f, -.08f, .07f, .09f, kDark}};
constexpr Part kWeedParts[] = {{kLens, 0, .1f, .9f, .1f, kLeaf, .2f, .4f, .4f, kQuarter},
                               {kLens, -.2f, .3f, .7f, .1f, kLeaf, .2f, .4f, .4f, kQuarter + .25f},
                               {kLens, .2f, .3f, .7f, .1f, kLeaf, .2f, .4f, .4f, kQuarter - .25f}};
constexpr Part kFruitParts[] = {{kBox, .06f, -.95f, .06f, .2f, kBark},
                                {kEllipse, 0, 0, .95f, .92f, kAccent, 0, 1, .1f}};
constexpr Part kBallParts[] = {{kEllipse, 0, 0, 1, 1, kAccent, 0, 1, .07f},
                               {kEllipse, 0, 0, .35f, 1, kAccent2, 0, .9f, .07f}};
constexpr Part kBottleParts[] = {{kBox, 0, -.62f, .12f, .38f, kAccent, 0, .8f},
                                 {kEllipse, 0, -.18f, .36f, .3f, kAccent, 0, .8f},
                                 {kBox, 0, .4f, .36f, .6f, kAccent, 0, .8f},
                                 {kBox, 0, .4f, .34f, .25f, kPale, 0, .5f}};
constexpr Part kMugParts[] = {{kEllipse, .58f, .1f, .34f, .5f, kAccent, 0, .5f},
                              {kEllipse, .58f, .1f, .2f, .3f, kDark},
                              {kBox, 0, .05f, .62f, .9f, kAccent, 0, .8f},
                              {kEllipse, 0, -.84f, .6f, .14f, kDark}};
constexpr Part kBookParts[] = {
    {kBox, 0, 0, .7f, 1, kAccent, 0, .1f, .1f}, {kBox, 0, -.4f, .45f, .15f, kPale}, {kBox, -.62f, 0, .06f, 1, kDark}};
constexpr Part kPlantParts[] = {{kLens, -.35f, -.3f, .6f, .2f, kLeaf, 0, .4f, .26f, 1},
                                {kLens, .35f, -.3f, .6f, .2f, kLeaf, 0, .4f, .26f, -1},
                                {kLens, 0, -.4f, .6f, .2f, kLeaf, 0, .4f, .26f, kQuarter},
                                {kHull, 0, .6f, .45f, .4f, kRoof, 0, .6f}};
constexpr Part kLeafParts[] = {{kLens, 0, 0, 1, .52f, kLeaf, .12f, .5f, .28f},
                               {kBox, -.1f, 0, .9f, .03f, kBark, 0, 0, 0}};
constexpr Part kPebbleParts[] = {{kEllipse, 0, 0, 1, .8f, kStone, .2f, .9f, .32f}};
constexpr Part kFlowerParts[] = {{kEllipse, .55f, 0, .45f, .32f, kAccent, 0, .5f},
                                 {kEllipse, .17f, .52f, .45f, .32f, kAccent, 0, .5f, .13f, kFifth},
                                 {kEllipse, -.44f, .32f, .45f, .32f, kAccent, 0, .5f, .13f, 2 * kFifth},
                                 {kEllipse, -.44f, -.32f, .45f, .32f, kAccent, 0, .5f, .13f, 3 * kFifth},
                                 {kEllipse, .17f, -.52f, .45f, .32f, kAccent, 0, .5f, .13f, 4 * kFifth},
                                 {kEllipse, 0, 0, .3f, .3f, kAccent2, .2f, .7f, .26f}};

constexpr Thing kFir = {kFirParts, .34f, .9f};
constexpr Thing kBush = {kBushParts, .12f, 1.5f};
constexpr Thing kSmallTree = {kTreeParts, .29f};
constexpr Thing kWoodThings[] = {{kTreeParts, .32f}, {kTreeParts, .32f}, kFir, kFir, kBush};
constexpr Thing kCountrysideThings[] = {
    {kTreeParts, .32f}, {kTreeParts, .32f},  kFir, kFir, kBush, {kHouseParts, .22f, 1.2f}, {kRockParts, .10f, 1.4f},
    kSmallTree,         {kPersonParts, .14f}};
constexpr Thing kStillLifeThings[] = {{kFruitParts, .14f},  {kFruitParts, .13f, 1.05f}, {kBallParts, .15f},
                                      {kBottleParts, .33f}, {kMugParts, .18f},          {kBookParts, .28f},
                                      {kPlantParts, .30f},  {kMugParts, .16f}};
constexpr Thing kScatteredThings[] = {{kLeafParts}, {kPebbleParts}, {kFlowerParts}};

constexpr Rgb kAccents[] = {{.66f, .17f, .13f}, {.16f, .30f, .56f}, {.82f, .64f, .20f},
                            {.80f, .43f, .16f}, {.85f, .84f, .80f}, {.14f, .42f, .40f},
                            {.48f, .20f, .34f}, {.30f, .46f, .22f}, {.24f, .24f, .28f}};
constexpr Rgb kWallColours[] = {{.82f, .78f, .70f}, {.72f, .62f, .50f}, {.62f, .38f, .30f},
                                {.86f, .85f, .83f}, {.55f, .53f, .50f}, {.78f, .68f, .48f}};
constexpr Rgb kRoofColours[] = {{.52f, .24f, .17f}, {.34f, .30f, .30f}, {.44f, .34f, .26f}, {.28f, .32f, .38f}};
constexpr Rgb kBarkColours[] = {{.28f, .21f, .15f}, {.38f, .32f, .26f}, {.20f, .16f, .13f}};
constexpr Rgb kSummerColours[] = {{.17f, .29f, .11f}, {.25f, .35f, .13f}, {.13f, .24f, .14f}, {.34f, .36f, .14f}};
constexpr Rgb kAutumnColours[] = {{.55f, .30f, .10f}, {.62f, .45f, .14f}, {.42f, .18f, .10f}, {.40f, .34f, .14f}};
constexpr Rgb kStoneColours[] = {{.46f, .44f, .42f}, {.56f, .51f, .45f}, {.34f, .33f, .34f}, {.62f, .60f, .57f}};
constexpr Rgb kDarkColours[] = {{.10f, .10f, .12f}, {.15f, .17f, .22f}};
constexpr Rgb kPaleColours[] = {{.90f, .89f, .85f}, {.93f, .90f, .80f}};
constexpr Rgb kSkinColours[] = {{.78f, .58f, .46f}, {.55f, .38f, .28f}, {.36f, .24f, .18f}};

constexpr Day kDayRows[] = {{{.34f, .49f, .71f}, {.66f, .73f, .78f}, {1.0f, .98f, .94f}},
                            {{.45f, .55f, .68f}, {.80f, .74f, .65f}, {1.0f, .94f, .84f}},
                            {{.34f, .34f, .46f}, {.78f, .55f, .43f}, {.92f, .75f, .66f}},
                            {{.54f, .57f, .61f}, {.70f, .71f, .72f}, {.92f, .94f, .97f}},
                            {{.38f, .51f, .67f}, {.72f, .76f, .77f}, {1.0f, 1.0f, .97f}}};
constexpr Rgb kLandColours[] = {{.38f, .47f, .24f}, {.46f, .50f, .27f}, {.56f, .49f, .31f}, {.68f, .59f, .44f},
                                {.74f, .76f, .79f}, {.46f, .43f, .36f}, {.33f, .43f, .24f}};
constexpr Rgb kWaterColours[] = {{.22f, .36f, .44f}, {.28f, .42f, .46f}, {.20f, .31f, .43f}, {.36f, .44f, .48f}};
constexpr Rgb kRoomColours[] = {
    {.72f, .68f, .60f}, {.56f, .60f, .60f}, {.66f, .54f, .46f}, {.44f, .46f, .52f}, {.78f, .76f, .72f}};
constexpr Rgb kTableColours[] = {{.48f, .33f, .21f}, {.60f, .46f, .32f}, {.34f, .24f, .17f}, {.66f, .63f, .58f}};

}  // namespace

constinit const Thing kTree = {kTreeParts, .32f};
constinit const Thing kHouse = {kHouseParts, .22f, 1.2f};
constinit const Thing kTower = {kTowerParts, .33f};
constinit const Thing kRock = {kRockParts, .10f, 1.4f};
constinit const Thing kLighthouse = {kLighthouseParts, .20f};
constinit const Thing kBoat = {kBoatParts, .20f};
constinit const Thing kShip = {kShipParts, .20f, 1.5f};
constinit const Thing kBalloon = {kBalloonParts, .12f};
constinit const Thing kBird = {kBirdParts, .05f};
constinit const Thing kCar = {kCarParts, .11f, 1.7f};
constinit const Thing kPerson = {kPersonParts, .12f};
constinit const Thing kFish = {kFishParts, .12f, 1.5f};
constinit const Thing kWeed = {kWeedParts, .24f};
constinit const std::span<const Thing> kWood = kWoodThings;
constinit const std::span<const Thing> kCountryside = kCountrysideThings;
constinit const std::span<const Thing> kStillLife = kStillLifeThings;
constinit const std::span<const Thing> kScattered = kScatteredThings;
constinit const std::span<const Day> kDays = kDayRows;
constinit const std::span<const Rgb> kLands = kLandColours;
constinit const std::span<const Rgb> kWaters = kWaterColours;
constinit const std::span<const Rgb> kRooms = kRoomColours;
constinit const std::span<const Rgb> kTables = kTableColours;

std::span<const Rgb> ColoursOf(Paint paint, bool autumn) {
  static constexpr std::span<const Rgb> rows[kPaints] = {kAccents,     kAccents,       kWallColours,  kRoofColours,
                                                         kBarkColours, kSummerColours, kStoneColours, kDarkColours,
                                                         kPaleColours, kSkinColours};
  if (paint == kLeaf && autumn) return kAutumnColours;
  return rows[static_cast<int>(paint)];
}

}  // namespace lockstep::data
