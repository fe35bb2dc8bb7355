// Stacks of all ranks -> who holds the others up. Each rank's main thread is put into one of a few places by a table of
// frame names; the rank that is not where the others wait is named. Says "unknown" when the stacks do not tell. Pure
// functions, any thread.
//
//   const HangVerdict verdict = JudgeHang(stacks, {});
//   fmt::print("{}\n", verdict.summary);   // rank 2 is in the data loader (dataset.py:41); 3 ranks wait in all_reduce
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hang/stacks.h"

namespace lockstep::hang {

enum class Where {
  kUnknown,
  kGone,        // ended
  kStopped,     // SIGSTOP or a debugger
  kDisk,        // state D: the kernel waits for a disk, a network file system or a device
  kCollective,  // waits for the other ranks
  kRendezvous,  // waits for the other ranks to appear or for a key of the store
  kDataLoader,
  kDevice,   // waits for the GPU: a collective on the device cannot be told from a long kernel here
  kFile,     // reads or writes a file
  kLock,     // waits for another thread or process of its own
  kNetwork,  // a socket that is not a collective's
  kSleep,
  kTeardown,  // its program is over; the process group is taken down
  kCode,      // runs code of its own
};
const char* Name(Where where);  // "collective", "data_loader", ...
// In a collective, at the rendezvous, or for a GPU that may be in one.
bool WaitsForOthers(Where where);

struct RankPosition {
  int rank = -1, node = -1;
  std::string host;
  int64_t pid = 0;
  Where where = Where::kUnknown;
  std::string operation;  // "all_reduce", "barrier"; of a collective or rendezvous
  std::string words;      // "in the data loader"
  std::string at;         // "dataset.py:41 (__getitem__)", the innermost frame of the user's own code; empty: not known
  std::optional<uint64_t> step;
};

RankPosition Locate(const ProcessStacks& process);

// What the launcher knows besides the stacks.
struct HangFacts {
  std::map<int, uint64_t> steps;          // last step seen, by rank
  std::map<int, std::string> ended;       // ranks that are no longer there: "exit code 0"
  std::map<int, std::string> collective;  // from a flight recorder: "all_reduce #1017"
};

struct HangVerdict {
  std::vector<int> odd;  // the ranks that hold the others up; empty: not known
  std::string summary;   // one line
  std::string advice;
  double confidence = 0;
  bool healthy = false;              // it moves: nobody is to blame (movement.h)
  std::vector<RankPosition> places;  // by rank

  nlohmann::json ToJson() const;
  static HangVerdict FromJson(const nlohmann::json& json);  // missing fields stay as they are in an empty verdict
  std::string Text() const;                                 // summary, one line per group of ranks, advice
};

HangVerdict JudgeHang(const std::vector<ProcessStacks>& ranks, const HangFacts& facts);

}  // namespace lockstep::hang
