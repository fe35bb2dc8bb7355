// Which PyTorch a Python interpreter would import, read from the package's version file without starting Python. Used
// to choose between the old and the new names of settings that PyTorch renamed. Pure reads, any thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace lockstep::launch {

// {2, 13} for the torch in the packages folder of this interpreter's prefix; nothing when it is not found there.
std::optional<std::pair<int, int>> TorchVersion(const std::string& interpreter);

}  // namespace lockstep::launch
