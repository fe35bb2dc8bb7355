// From which of several sets each draw of a mixture comes. The weights become whole numbers of draws in a period of at
// most 65,536 (0.7 and 0.3: 7 and 3 of every 10), laid out once as a table. So the number of draws that a set has had
// after any number of draws is arithmetic, and nothing is replayed: a run resumes at draw 10^12 as fast as at draw 0.
//
// After every number of draws each set has had its share of them with an error below 1 (Tijdeman's rule for the
// chairman assignment problem: at most 1 - 1 / (2n - 2) for n sets), and exactly its share after every period. Weights
// without such a period (shares of pi) are rounded to 1/65,536.
//
// Immutable; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace lockstep::data {

class Mixture {
 public:
  struct Part {
    uint64_t size = 0;  // samples
    double weight = 0;  // relative to the others
  };
  static constexpr uint64_t kLongestPeriod = 65'536;
  static constexpr size_t kMostParts = 1'000;

  // Errors: no sets, an empty one, a weight that is not above 0 or has no draw in the longest period.
  static Result<Mixture> Create(const std::vector<Part>& parts);

  struct Drawn {
    size_t part = 0;
    uint64_t number = 0;  // of the draws of that part, from 0
  };
  Drawn At(uint64_t draw) const;
  // How many of the first `draws` are of the part.
  uint64_t DrawsOf(size_t part, uint64_t draws) const;

  size_t parts() const { return sizes_.size(); }
  uint64_t size(size_t part) const { return sizes_[part]; }
  uint64_t period() const { return order_.size(); }
  uint64_t per_period(size_t part) const { return places_[part].size(); }
  double share(size_t part) const { return static_cast<double>(per_period(part)) / static_cast<double>(period()); }
  // After so many draws every sample of every set was drawn at least once.
  uint64_t DrawsOfAll() const;

 private:
  std::vector<uint64_t> sizes_;
  std::vector<uint16_t> order_;                // part of each draw of a period
  std::vector<uint32_t> ordinals_;             // which of its part's draws of the period it is
  std::vector<std::vector<uint32_t>> places_;  // of each part: its draws of the period, ascending
};

}  // namespace lockstep::data
