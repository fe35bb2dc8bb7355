// Files of `torch.save` (the zip format, since PyTorch 1.6), read without Python: a restricted reader that knows
// tensors and containers and refuses all else by name, executing nothing. Use OpenWeights (base/weights.h) unless the
// format is certain. Views and shared storages are resolved on reading.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "base/weights.h"

namespace lockstep {

Result<std::unique_ptr<Weights>> OpenTorchFile(const std::string& path);

}  // namespace lockstep
