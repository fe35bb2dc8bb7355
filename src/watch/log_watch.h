// A log file of any launcher, and the GPUs of this machine. See model.h.
#pragma once

#include <string>

#include "watch/log_progress.h"
#include "watch/machine.h"
#include "watch/model.h"

namespace lockstep::watch {

class LogWatch final : public Watch {
 public:
  explicit LogWatch(const std::string& path);

  void Poll(double now) override;
  bool MayHaveEnded() const override { return false; }
  LogPlace LogOf(int rank) const override;

 private:
  std::optional<double> EtaOfRun(const LogSign& sign, const RankView& rank);

  LogProgress log_;
  LocalMachine machine_;
  std::optional<double> eta_;   // as the last line says it
  bool eta_is_of_run_ = false;  // also where it is about the one of the epoch
  bool follows_ = false;        // all that was there at first has been read
};

}  // namespace lockstep::watch
