// Which of some tensors the operators of a computation are given. For explaining failures: slow. The calling thread.
#pragma once

#include <c10/core/TensorImpl.h>

#include <cstddef>
#include <functional>
#include <map>
#include <optional>

namespace lockstep::engine {

// The number of the first of `tensors` that `run` hands to an operator. What `run` throws is of no interest.
std::optional<size_t> FirstUsed(const std::map<const c10::TensorImpl*, size_t>& tensors,
                                const std::function<void()>& run);

}  // namespace lockstep::engine
