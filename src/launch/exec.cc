#include "launch/exec.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "base/env_file.h"
#include "launch/activation.h"
#include "launch/worker_env.h"

namespace lockstep::launch {
namespace {

Status Exec(const Program& program, const std::vector<std::string>& env) {
  const auto pointers = [](const std::vector<std::string>& texts) {
    std::vector<char*> out;
    for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
    out.push_back(nullptr);
    return out;
  };
  if (!program.workdir.empty() && chdir(program.workdir.c_str()) != 0) {
    return Status(Code::kEnvironment, "--workdir " + program.workdir + ": " + ErrnoText(errno));
  }
  execve(program.argv[0].c_str(), pointers(program.argv).data(), pointers(env).data());
  return Status(Code::kEnvironment, fmt::format("cannot start {}: {}", program.argv[0], ErrnoText(errno)));
}

}  // namespace

Status ExecNested(const LaunchPlan& plan) { return Exec(plan.program, ToStrings(Apply(plan.env, plan.program.env))); }

Status ExecRank(const LaunchPlan& plan) {
  WorkerIdentity who = FirstRank(plan);
  who.agent_store = false;  // no launcher stays that could host it
  auto env = WorkerEnvironment(who, plan.env, plan.options, plan.program.env, plan.settings);
  if (!env.ok()) return env.status();
  return Exec(plan.program, *env);
}

}  // namespace lockstep::launch
