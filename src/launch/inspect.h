// A local socket of a running launcher for commands on its machine: `lockstep doctor hang` asks here for the stacks of
// all ranks on all nodes. An abstract unix socket named after the launcher's pid and start time, so nothing is left in
// any folder; only the same user and root are answered. The server lives on the loop's thread, the question blocks its
// caller.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>

#include "base/fd.h"
#include "base/loop.h"
#include "base/status.h"
#include "launch/connection.h"

namespace lockstep::launch {

class InspectServer {
 public:
  using Reply = std::function<void(const Json&)>;
  // `ask` gets each question and answers when it can.
  InspectServer(Loop& loop, std::function<void(const Json&, Reply)> ask);
  ~InspectServer();

 private:
  void Accept();

  Loop& loop_;
  std::function<void(const Json&, Reply)> ask_;
  UniqueFd listener_;
  std::map<uint64_t, std::unique_ptr<Connection>> open_;
  uint64_t next_ = 1;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// Asks the launcher with this pid and start time, waits for its answer.
Result<Json> AskLauncher(pid_t pid, uint64_t start_time, const Json& question, Millis patience);

}  // namespace lockstep::launch
