// The GPUs of this machine and those a CUDA program would see. Read through NVML, loaded at run time so that one
// program runs with and without a driver; without the library from /proc/driver/nvidia. Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/environment.h"

namespace lockstep::hardware {

struct Gpu {
  std::string uuid;               // "GPU-..."; empty when unknown
  bool mig = false;               // in MIG mode: only its MIG devices compute
  std::vector<std::string> migs;  // "MIG-..." of each
  std::string pci;                // "0000:3b:00.0", as /sys names it; empty when unknown
  std::string name;               // "NVIDIA H800"; empty when unknown
};

struct GpuList {
  std::vector<Gpu> gpus;
  std::string source;  // "nvml", "/proc/driver/nvidia", "no driver"
  std::string note;    // why a better source was not used; empty when there is nothing to say
};

// `library` empty: libnvidia-ml.so.1. `root` is "" but in tests: the folder under which /proc and /dev are looked up.
GpuList FindGpus(const Environment& env, const std::string& library, const std::string& root);

// What the kernel module shows below /proc/driver/nvidia; source "no driver" where it is not loaded.
GpuList GpusOfKernel(const std::string& root);

struct Visible {
  int count = 0;
  std::string because;           // "CUDA_VISIBLE_DEVICES=0,1"; empty when nothing restricts
  std::vector<std::string> pci;  // of each visible device, in the order of CUDA's numbers
};

// How many devices CUDA enumerates, by its own rules: CUDA_VISIBLE_DEVICES is read up to the first entry that names no
// device; an entry named twice hides all; an entry is an index, or a prefix of "GPU-..." or "MIG-...", and one kind
// holds for the whole list. Of MIG devices a process sees one, and then no whole GPU.
Visible CountVisible(const Environment& env, const std::vector<Gpu>& gpus);

}  // namespace lockstep::hardware
