#include "launch/store_choice.h"

#include <fmt/format.h>

#include "launch/worker_env.h"

namespace lockstep::launch {
namespace {

// torchrun's own switch, from the environment the workers will have.
bool Unshared(const RunOptions& options, const Program& program, const Environment& env) {
  const Environment seen = RankEnvironment(env, program.env, options);
  const auto value = seen.find("TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
  return value != seen.end() && value->second == "1";
}

}  // namespace

StoreChoice ChooseStore(const RunOptions& options, const Program& program, const Environment& env,
                        const std::optional<std::pair<int, int>>& torch) {
  if (options.agent_store == AgentStore::kOn) return {true, "--agent-store on"};
  if (options.agent_store == AgentStore::kOff) return {false, "--agent-store off"};
  if (options.exec) return {false, "--exec leaves no launcher"};
  if (program.interpreter.empty()) return {false, "the program is not run by Python"};
  if (!torch) return {false, fmt::format("no torch was found for {}", program.interpreter)};
  const std::string version = fmt::format("torch {}.{}", torch->first, torch->second);
  if (*torch < kFirstTorchForStore) {
    return {false,
            fmt::format("{} is older than {}.{}", version, kFirstTorchForStore.first, kFirstTorchForStore.second)};
  }
  if (Unshared(options, program, env)) return {false, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"};
  return {true, version};
}

}  // namespace lockstep::launch
