// The machine that watches, beside a log that says nothing of machines: its GPUs by NVML, its CPUs and memory. NVML
// stays open; without it, or without GPUs, there is nothing. One thread.
#pragma once

#include <memory>
#include <vector>

#include "hardware/gpu_sampler.h"
#include "hardware/proc_sampler.h"
#include "watch/view.h"

namespace lockstep::watch {

class LocalMachine {
 public:
  // One node, or none where there is no GPU.
  void Read(double now, std::vector<NodeView>* nodes);

 private:
  bool opened_ = false;
  std::unique_ptr<hardware::GpuSampler> gpus_;
  std::unique_ptr<hardware::MachineSampler> machine_;
  double last_ = 0, last_busy_ = 0;
};

}  // namespace lockstep::watch
