// How many CPUs this process may use. Reads /proc, /sys and the scheduler; any thread.
#pragma once

#include <string>

namespace lockstep::hardware {

// Its affinity, limited by the quotas of its cgroups (rounded down, at least 1: a thread more than the quota is a
// thread that is stopped in every period). `root` is "" but in tests.
int CountCpus(const std::string& root);

}  // namespace lockstep::hardware
