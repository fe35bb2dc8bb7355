// CUDA tensors: over NCCL (c10d's ProcessGroupNCCL), or staged through pinned shared memory over the host communicator.
// In a build without CUDA all of it says so. The rules of TensorCommunicator hold.
#pragma once

#include <memory>
#include <string>

#include "comm/torch/tensor_comm.h"

namespace lockstep::comm {

// Its UUID: equal for processes that use the same GPU.
Result<std::string> GpuName(at::Device device);

// Collective. `host` stays the control plane and carries host tensors.
Result<std::shared_ptr<TensorCommunicator>> MakeNccl(const Bootstrap& bootstrap, const Options& options,
                                                     std::shared_ptr<TensorCommunicator> host, at::Device device);

// `data` is the communicator under `host`; its shared buffers, pinned, are what is staged through.
Result<std::shared_ptr<TensorCommunicator>> MakeStaged(std::shared_ptr<Communicator> data,
                                                       std::shared_ptr<TensorCommunicator> host, at::Device device);

}  // namespace lockstep::comm
