// In which order the units of a model are used in a pass: the order of the pass before is expected again, so that units
// can be gathered ahead; a pass that goes another way is learnt anew. Pure; no other rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace lockstep::engine {

struct UnitUse {
  size_t unit = 0;
  bool backward = false;
  friend bool operator==(const UnitUse&, const UnitUse&) = default;
};

class UnitOrder {
 public:
  // `sizes`: elements of each unit. Until a pass is seen: all units forward, then all backward.
  explicit UnitOrder(std::vector<int64_t> sizes);

  void Begin();  // of a pass
  // The next use. False: another one was expected.
  bool Use(const UnitUse& use);
  // The use that is expected `ahead` places behind the current one (0: the next).
  std::optional<UnitUse> Expected(size_t ahead) const;
  // What is still to come of this pass.
  std::vector<UnitUse> Rest() const;
  // Elements of the other units that are used before `unit` is used again in this pass; the largest number: never.
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  int64_t ReuseDistance(size_t unit) const;
  void End();  // the pass was run to its end: the next will be like it

 private:
  std::vector<int64_t> sizes_;
  std::vector<UnitUse> expected_, seen_;
  bool follows_ = true;  // what was expected
};

}  // namespace lockstep::engine
