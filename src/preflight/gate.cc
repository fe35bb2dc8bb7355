#include "preflight/gate.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/exit_codes.h"
#include "base/text.h"
#include "preflight/preflight.h"
#include "preflight/progress.h"
#include "preflight/report.h"

namespace lockstep::preflight {
namespace {

int RunGate(const launch::LaunchPlan& plan) {
  Options options;
  options.full = plan.options.preflight == "full";
  options.timeout = plan.options.join_timeout;
  options.configs = ConfigArguments(plan);
  Progress progress;
  const PreflightReport report = Run(plan, options, progress.Events());
  progress.Clear();
  const int code = report.exit_code();
  if (code != 0 && plan.options.json) {
    const Json document = {{"outcome", "failed"},
                           {"exit_code", code},
                           {"reason", "preflight " + Headline(report)},
                           {"do", report.rendezvous.ok() ? "see preflight" : report.rendezvous.hint()},
                           {"first_failure", nullptr},
                           {"preflight", Document(report)}};
    fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
    std::fflush(stdout);
  }
  const bool quiet = plan.options.quiet && report.state() == State::kOk && code == 0;
  if (quiet) return code;
  std::string text = ReportText(report, /*table=*/false, UseColour(2));
  // On other nodes a line is enough: node 0 tells it all.
  if (report.index != 0 && report.rendezvous.ok()) text = "preflight: " + Headline(report) + "\n";
  if (code != 0) text += "nothing was started on any node (--preflight)\n";
  std::string lines;
  for (const std::string& line : Split(text, '\n')) {
    if (!line.empty()) lines += "lockstep: " + line + "\n";
  }
  fmt::print(stderr, "{}", lines);
  return code;
}

}  // namespace

std::vector<std::string> ConfigArguments(const launch::LaunchPlan& plan) {
  std::vector<std::string> configs;
  for (const std::string& arg : plan.options.args) {
    const size_t equals = arg.find('=');
    const std::string path = arg.starts_with("-") && equals != std::string::npos ? arg.substr(equals + 1) : arg;
    bool config = false;
    for (const char* suffix : {".yaml", ".yml", ".json", ".toml", ".ini", ".cfg"})
      config = config || path.ends_with(suffix);
    if (!config) continue;
    std::error_code error;
    const std::filesystem::path full =
        plan.program.workdir.empty() ? std::filesystem::path(path) : std::filesystem::path(plan.program.workdir) / path;
    if (std::filesystem::is_regular_file(full, error)) configs.push_back(path);
  }
  return configs;
}

int Gate(const launch::LaunchPlan& plan) {
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    fmt::print(stderr, "lockstep: preflight: {}\n", ErrnoText(errno));
    return kExitEnvironment;
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kExitEnvironment);
    const int code = RunGate(plan);
    std::fflush(nullptr);
    _exit(code);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return ExitOfSignal(WTERMSIG(status));
}

}  // namespace lockstep::preflight
