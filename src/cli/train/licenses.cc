// `lockstep train --licenses`: notices and license texts of what is inside the training engine.
#include <cstddef>
#include <cstdio>

#include "base/exit_codes.h"
#include "cli/train/commands.h"

namespace lockstep {
// Named by cmake/notices.cmake.
extern const unsigned char notices_of_lockstep_train[];  // NOLINT(readability-identifier-naming)
extern const size_t notices_of_lockstep_train_size;      // NOLINT(readability-identifier-naming)
}  // namespace lockstep

namespace lockstep::cli {

int LicensesMain() {
  return std::fwrite(notices_of_lockstep_train, 1, notices_of_lockstep_train_size, stdout) ==
                 notices_of_lockstep_train_size
             ? kExitOk
             : kExitEnvironment;
}

}  // namespace lockstep::cli
