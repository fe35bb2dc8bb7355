// What kind of damage made a sample unreadable, for events and statistics: one word beside the message that says all.
// Any thread.
#pragma once

#include "base/status.h"

namespace lockstep::data {

// "vanished" (the file is not there), "truncated" (it ends early), "shape" (readable, but of a size or length that
// gives no sample), "decode" (its content is damaged, or of an unknown format), "timeout" (reading took longer than
// data.timeout), "io" (everything else that the file system or the network said no to), "other".
const char* FaultOf(const Status& status);

}  // namespace lockstep::data
