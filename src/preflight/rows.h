// The functions behind the rows of one node, by subject. Pure but for the file systems, names and ports they try.
#pragma once

#include "preflight/check.h"

namespace lockstep::preflight {

// gpu_checks.cc
Outcome CheckGpuCount(const Scene& scene);
Outcome CheckGpuUnique(const Scene& scene);
Outcome CheckGpuMemory(const Scene& scene);
Outcome CheckGpuRecovery(const Scene& scene);
Outcome CheckGpuXid(const Scene& scene);
Outcome CheckGpuThrottle(const Scene& scene);
Outcome CheckGpuProcesses(const Scene& scene);
Outcome CheckGpuLinks(const Scene& scene);
Outcome CheckDriver(const Scene& scene);

// network_checks.cc
bool NeedsRdma(const Scene& scene);  // several nodes with GPUs: trouble with RDMA stops or cripples the job
Outcome CheckIbPorts(const Scene& scene);
Outcome CheckInterface(const Scene& scene);
Outcome CheckHostName(const Scene& scene);
Outcome CheckPorts(const Scene& scene);

// system_checks.cc
Outcome CheckMemlock(const Scene& scene);
Outcome CheckNofile(const Scene& scene);
Outcome CheckPids(const Scene& scene);
Outcome CheckMemory(const Scene& scene);
Outcome CheckShm(const Scene& scene);
Outcome CheckClock(const Scene& scene);

// disk_checks.cc
Outcome CheckLogDir(const Scene& scene);
Outcome CheckCheckpointDir(const Scene& scene);
Outcome CheckTmp(const Scene& scene);
Outcome CheckData(const Scene& scene);

// software_checks.cc
Outcome CheckPython(const Scene& scene);
Outcome CheckTorch(const Scene& scene);
Outcome CheckNccl(const Scene& scene);
Outcome CheckEnvironment(const Scene& scene);

}  // namespace lockstep::preflight
