// wandb's own uploader beside a run that writes W&B files (wandb_sink.h): `wandb beta sync --live`, which follows them
// until their exit record. Its key comes from the environment or from netrc and is never read here. Whatever is missing
// or fails is said; the files stay, and `wandb sync` uploads them later. Main thread (base/process.h).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "base/environment.h"
#include "base/process.h"
#include "base/status.h"

namespace lockstep::track {

// Why no upload can start: wandb's variables forbid it, no wandb in PATH, or no key that it would find. Ok where it
// can.
Status CanUploadToWandb(const Environment& env);

class WandbLive {
 public:
  // `dir` holds the fragments of the run, the newest with its run record.
  static Result<WandbLive> Start(const std::string& dir, const Environment& env);

  // How it ended, once, where it ended before the run; cheap.
  std::optional<std::string> Poll();
  // After the exit record: waits until everything is uploaded, at most so long, or so long from when `hurry` is true.
  // What to say.
  std::string Finish(std::chrono::milliseconds patience, std::chrono::milliseconds hurried,
                     const std::function<bool()>& hurry);

 private:
  WandbLive(std::string dir, std::string log, Process process)
      : dir_(std::move(dir)), log_(std::move(log)), process_(std::move(process)) {}
  bool Uploaded(const ExitStatus& status) const;
  std::string Ended(const ExitStatus& status) const;

  std::string dir_, log_;
  Process process_;
  std::optional<ExitStatus> ended_;
};

}  // namespace lockstep::track
