// The screen of `lockstep watch`: reads the runs at an interval, draws them, does what keys ask, until the user leaves
// or a signal ends it. One thread.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "watch/model.h"
#include "watch/screen.h"

namespace lockstep::watch {

// The signal that ended it; 0: the user left. The screen stays open.
int ShowRuns(const std::vector<std::unique_ptr<Watch>>& watches, Millis interval, Screen* screen);

}  // namespace lockstep::watch
