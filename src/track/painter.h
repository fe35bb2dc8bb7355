// Draws pictures on a thread of its own, of low priority, so that training does not wait for them. A picture that
// cannot be drawn or written is said and counted; nothing here ever stops a training. Calls from one thread.
//
//   painter.Add("reconstruction-200.png", [sheet = std::move(sheet)] { return DrawAndWrite(sheet); });
//   painter.Finish();
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"

namespace lockstep::track {

class Painter {
 public:
  static constexpr size_t kMostWaiting = 8;  // pictures

  Painter();
  Painter(const Painter&) = delete;
  Painter& operator=(const Painter&) = delete;
  ~Painter();  // Finish()

  // `draw` is called on the painter's thread. Left out and counted where kMostWaiting others wait already: then
  // pictures come faster than they are drawn.
  void Add(std::string name, std::function<Status()> draw);
  // Returns when everything given so far is drawn.
  void Finish();
  // Pictures that are missing: failed, left out, or counted by Miss.
  uint64_t missing() const;
  // A picture that nobody tried to draw.
  void Miss();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::track
