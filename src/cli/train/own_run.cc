#include "cli/train/own_run.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "base/clock.h"
#include "base/environment.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "base/secrets.h"
#include "base/version.h"

namespace lockstep::cli {
namespace {

constexpr std::chrono::seconds kHeartbeat{10};

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace

OwnRun::OwnRun(record::RunDir dir, int world) : dir_(std::move(dir)), world_(world), started_(UnixSeconds()) {}

Result<std::unique_ptr<OwnRun>> OwnRun::Start(const std::string& name, const std::vector<std::string>& command,
                                              int world) {
  Result<record::RunDir> dir = record::RunDir::Create("", name, /*authority=*/true);
  if (!dir.ok()) return dir.status();
  std::unique_ptr<OwnRun> run(new OwnRun(std::move(*dir), world));
  for (const std::string& notice : run->dir_.notices()) LogInfo("{}", notice);
  const char* user = std::getenv("USER");
  LOCKSTEP_RETURN_IF_ERROR(
      run->dir_.WriteRunJson({{"program", MaskArguments(command, SecretValues(CurrentEnvironment()))},
                              {"id", name},
                              {"world_size", world},
                              {"user", user != nullptr ? user : std::to_string(getuid())},
                              {"host", HostName()},
                              {"pid", getpid()},
                              {"workdir", std::filesystem::current_path().string()},
                              {"version", ThisBuild().version},
                              {"commit", VersionJson("")["commit"]}}));
  run->dir_.AppendEvent("run_started",
                        {{"name", name}, {"world_size", world}, {"pid", getpid()}, {"host", HostName()}});
  run->dir_.AppendEvent("attempt_started", {{"attempt", run->attempt()}, {"world_size", world}});
  run->heart_ = std::jthread([dir = &run->dir_](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock<std::mutex> lock(mutex);
    while (!wake.wait_for(lock, stop, kHeartbeat, [] { return false; }) && !stop.stop_requested()) {
      (void)dir->TouchLock();
    }
  });
  return run;
}

bool OwnRun::Discard() {
  heart_ = {};  // ends it: the lock goes
  return dir_.Discard(attempt());
}

void OwnRun::End(int exit_code, const std::string& reason, const std::string& hint) {
  dir_.AppendEvent("attempt_ended", {{"attempt", attempt()}, {"exit_code", exit_code}, {"reason", reason}});
  dir_.AppendEvent("run_ended", {{"exit_code", exit_code}, {"reason", reason}});
  const char* outcome = exit_code == 0 ? "succeeded" : exit_code == kExitResume ? "stopped" : "failed";
  const Status written = dir_.WriteReport({{"outcome", outcome},
                                           {"exit_code", exit_code},
                                           {"reason", reason},
                                           {"do", hint},
                                           {"world_size", world_},
                                           {"attempts", 1},
                                           {"restarts", 0},
                                           {"started", started_},
                                           {"ended", UnixSeconds()},
                                           {"first_failure", nullptr},
                                           {"other_failures", nlohmann::json::array()},
                                           {"warnings", nlohmann::json::array()}});
  if (!written.ok()) LogWarn("{}", written.message());
}

}  // namespace lockstep::cli
