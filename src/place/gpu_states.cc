#include "place/gpus.h"
#include "place/hardware_parts.h"

namespace lockstep::place {

void ScanGpus(const SysTree& tree, const Environment& env, const std::string& nvml, Hardware* here) {
  const GpuList list = FindGpus(env, nvml, tree.root());
  here->gpu_source = list.source;
  if (!list.note.empty()) here->notes.push_back(list.note);
  for (size_t i = 0; i < list.gpus.size(); ++i) {
    GpuState gpu;
    gpu.index = static_cast<int>(i);
    gpu.uuid = list.gpus[i].uuid;
    gpu.pci = list.gpus[i].pci;
    gpu.mig = list.gpus[i].mig;
    gpu.migs = list.gpus[i].migs;
    here->gpus.push_back(gpu);
  }
  const Visible visible = CountVisible(env, list.gpus);
  here->gpus_visible = visible.count;
  here->visible_because = visible.because;
}
void ScanXids(const SysTree&, Hardware*) {}
void ScanLibraries(const SysTree&, const Environment&, const std::string&, Hardware*) {}

}  // namespace lockstep::place
