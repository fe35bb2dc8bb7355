// Compiled with NDEBUG, as LibTorch is (CMakeLists.txt): the class below has other members without it.
#include "engine/operator_inputs.h"

#include <ATen/record_function.h>

#include <exception>
#include <memory>

namespace lockstep::engine {
namespace {

struct Watch {
  const std::map<const c10::TensorImpl*, size_t>* tensors = nullptr;
  std::optional<size_t> found;
};
thread_local Watch* watch = nullptr;

std::unique_ptr<at::ObserverContext> Look(const at::RecordFunction& function) {
  if (watch == nullptr || watch->found) return nullptr;
  for (const c10::IValue& input : function.inputs()) {
    if (!input.isTensor()) continue;
    const auto known = watch->tensors->find(input.toTensor().unsafeGetTensorImpl());
    if (known != watch->tensors->end()) watch->found = known->second;
  }
  return nullptr;
}

}  // namespace

std::optional<size_t> FirstUsed(const std::map<const c10::TensorImpl*, size_t>& tensors,
                                const std::function<void()>& run) {
  Watch looking{&tensors, {}};
  watch = &looking;
  const at::CallbackHandle handle = at::addThreadLocalCallback(at::RecordFunctionCallback(&Look).needsInputs(true));
  try {
    run();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): as documented
  }
  at::removeCallback(handle);
  watch = nullptr;
  return looking.found;
}

}  // namespace lockstep::engine
