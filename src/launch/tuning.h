// This node's settings for NCCL, Gloo and torch. The machine is read and names are resolved on a thread of its own
// during the rendezvous, so that a slow DNS delays nobody; the settings are settled when the job is known. Owned by the
// launcher, shared with that thread; called from the loop's thread.
//
//   auto tuning = Tuning::Start(plan);                              // null with --tune off
//   Tuning::Result tuned = tuning->Settle(job, ..., Millis(3000));       // at the first attempt
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "launch/plan.h"
#include "tune/settings.h"

namespace lockstep::launch {

class Tuning {
 public:
  struct Result {
    tune::Settings settings;
    std::vector<std::pair<std::string, std::string>> apply;  // for WorkerEnvironment; empty with --tune report
    bool collect_nccl = false;                               // see RankSettings
    bool rdma_active = false;                                // an RDMA port of this node is ACTIVE
    std::vector<std::string> lines;                          // worth a line each at the start
    nlohmann::json event;                                    // fields of `tuned`
  };

  static std::shared_ptr<Tuning> Start(const LaunchPlan& plan);
  // The same at once, for --dry-run.
  static Result Now(const LaunchPlan& plan);

  // `peer` is another node's address and port, for where the master's name leads nowhere but here; may be empty.
  // Nothing when the machine could not be read in that time.
  std::optional<Result> Settle(const std::string& job_id, int nnodes, int local_world, const std::string& peer,
                               Millis patience);

 private:
  explicit Tuning(const LaunchPlan& plan);
  void Read();
  Result Derive(const std::string& job_id, int nnodes, int local_world, const std::string& peer) const;

  const Tune mode_;
  const Environment env_;  // the ranks', but for what says who they are
  const std::string interpreter_, host_, master_;
  const std::vector<std::string> gpu_pci_;
  const bool gpus_, contained_;

  std::mutex mutex_;
  std::condition_variable done_;
  bool read_ = false;
  hardware::Hardware here_;
  std::vector<std::string> peers_;
  std::optional<std::vector<std::string>> own_addresses_;
  Environment conf_;
  std::vector<std::string> lint_;
};

}  // namespace lockstep::launch
