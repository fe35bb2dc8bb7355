// The functions behind the rows of one node, by subject. Pure but for the file systems, names and ports they try.
#pragma once

#include "preflight/check.h"

namespace lockstep::preflight {

// gpu_checks.cc
CheckOutcome CheckGpuCount(const CheckInput& input);
CheckOutcome CheckGpuUnique(const CheckInput& input);
CheckOutcome CheckGpuMemory(const CheckInput& input);
CheckOutcome CheckGpuRecovery(const CheckInput& input);
CheckOutcome CheckGpuXid(const CheckInput& input);
CheckOutcome CheckGpuThrottle(const CheckInput& input);
CheckOutcome CheckGpuProcesses(const CheckInput& input);
CheckOutcome CheckGpuLinks(const CheckInput& input);
CheckOutcome CheckDriver(const CheckInput& input);

// network_checks.cc
bool NeedsRdma(const CheckInput& input);  // several nodes with GPUs: trouble with RDMA stops or cripples the job
CheckOutcome CheckIbPorts(const CheckInput& input);
CheckOutcome CheckInterface(const CheckInput& input);
CheckOutcome CheckHostName(const CheckInput& input);
CheckOutcome CheckPorts(const CheckInput& input);

// system_checks.cc
CheckOutcome CheckMemlock(const CheckInput& input);
CheckOutcome CheckNofile(const CheckInput& input);
CheckOutcome CheckPids(const CheckInput& input);
CheckOutcome CheckMemory(const CheckInput& input);
CheckOutcome CheckShm(const CheckInput& input);
CheckOutcome CheckClock(const CheckInput& input);

// disk_checks.cc
CheckOutcome CheckLogDir(const CheckInput& input);
CheckOutcome CheckCheckpointDir(const CheckInput& input);
CheckOutcome CheckTmp(const CheckInput& input);
CheckOutcome CheckData(const CheckInput& input);

// software_checks.cc
CheckOutcome CheckPython(const CheckInput& input);
CheckOutcome CheckTorch(const CheckInput& input);
CheckOutcome CheckNccl(const CheckInput& input);
CheckOutcome CheckEnvironment(const CheckInput& input);

}  // namespace lockstep::preflight
