#include "launch/profile_hook.h"

#include <string_view>

#include "base/files.h"

namespace lockstep {
// src/launch/profile_hook.py, embedded.
extern const unsigned char profile_hook_program[];  // NOLINT(readability-identifier-naming)
extern const size_t profile_hook_program_size;      // NOLINT(readability-identifier-naming)
}  // namespace lockstep

namespace lockstep::launch {

std::string ProfileHookDir(const std::string& run_dir) { return run_dir + "/profile/hook"; }

Status WriteProfileHook(const std::string& run_dir) {
  const std::string folder = ProfileHookDir(run_dir);
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(folder));
  return WriteFileAtomic(
      folder + "/sitecustomize.py",
      std::string_view(reinterpret_cast<const char*>(profile_hook_program), profile_hook_program_size), 0644,
      Durability::kProcess);
}

}  // namespace lockstep::launch
