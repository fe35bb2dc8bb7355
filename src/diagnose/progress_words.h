// What a progress line says beyond a step of a known framework. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::diagnose {

// Whether the loss of the line is a number; nothing where it names none. A loss of 0 beside a gradient that is no
// number has not recovered.
std::optional<bool> LossIsFinite(std::string_view line);

// "Epoch: [3][50/1251] Loss 0.5", "Epoch [3][50/1251] lr: ...", "Train: 3 [ 50/1251 (4%)]", "Epoch 3/10" as one number
// that rises with epoch and step.
std::optional<uint64_t> EpochPosition(std::string_view line);

}  // namespace lockstep::diagnose
