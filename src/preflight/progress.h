// What a preflight shows while it waits: on a terminal one line that replaces itself, elsewhere a line whenever the
// words change, at most every few seconds. To stderr. One thread.
#pragma once

#include <string>

#include "base/clock.h"
#include "launch/launcher_group.h"

namespace lockstep::preflight {

class Progress {
 public:
  Progress();
  launch::LauncherGroupEvents Events();
  void Clear();

 private:
  void Show(const std::string& text);

  bool terminal_;
  std::string shown_;
  TimePoint last_{};
};

}  // namespace lockstep::preflight
