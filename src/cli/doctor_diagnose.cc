#include <fmt/format.h>

#include "cli/commands.h"

namespace lockstep::cli {

int DoctorDiagnoseMain(int, char**) {
  fmt::print(stderr, "lockstep: not built yet\n");
  return 2;
}

}  // namespace lockstep::cli
