// The launcher's own TORCHELASTIC_ERROR_FILE: whoever starts torchrun with that variable set (TorchX, another
// scheduler) finds the first failure there as JSON, in the format of PyTorch's ErrorHandler
// (torch/distributed/elastic/multiprocessing/errors). Pure but for the one write.
#pragma once

#include <string>

#include "base/status.h"
#include "launch/run_outcome.h"

namespace lockstep::launch {

// {"message": {"message", "extraInfo": {"py_callstack", "timestamp"}, "errorCode"}}. `first` is the first failing rank,
// null where the job ended for another reason; errorCode is its exit code, or minus its signal.
Json ErrorFileJson(const std::string& reason, const RankExit* first, double now);

// Replaces the file, as torchrun does. A path of "" writes nothing.
Status WriteErrorFile(const std::string& path, const Json& error);

}  // namespace lockstep::launch
