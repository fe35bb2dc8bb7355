#include "launch/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/secrets.h"
#include "base/sockets.h"
#include "base/text.h"
#include "launch/worker_env.h"

namespace lockstep::launch {
namespace {

using Json = nlohmann::json;

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

const char* Name(Bind bind) {
  switch (bind) {
    case Bind::kNone:
      return "none";
    case Bind::kNuma:
      return "numa";
    case Bind::kSocket:
      return "socket";
    case Bind::kComplex:
      return "core-complex";
    case Bind::kCores:
      return "cores";
  }
  return "none";
}

bool ProcessLevel(const LaunchPlan& plan) { return plan.placement.level == place::Level::kProcess; }

// The first rank's environment, without what is inherited.
Json SampleEnvironment(const LaunchPlan& plan) {
  auto env = WorkerEnvironment(FirstRank(plan), plan.env, plan.options, plan.program.env, plan.settings);
  Json shown = Json::object();
  if (!env.ok()) return shown;
  for (const std::string& entry : *env) {
    const size_t equals = entry.find('=');
    const std::string key = entry.substr(0, equals);
    auto inherited = plan.env.find(key);
    if (inherited == plan.env.end() || inherited->second != entry.substr(equals + 1)) {
      shown[key] = entry.substr(equals + 1);
    }
  }
  // Decided at the rendezvous, so unknown now.
  for (const char* later : {"MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "LOCKSTEP_RUN_DIR", "LOCKSTEP_METRICS",
                            "LOCKSTEP_RUN_ID", "TORCHELASTIC_RUN_ID"}) {
    if (shown.contains(later) && !(ProcessLevel(plan) && std::string(later) == "MASTER_PORT")) {
      shown[later] = "(decided at the start)";
    }
  }
  return shown;
}

}  // namespace

WorkerIdentity FirstRank(const LaunchPlan& plan) {
  const place::Placement& p = plan.placement;
  WorkerIdentity who;
  who.rank = p.rank.value_or(0);
  who.local_rank = p.local_rank.value_or(0);
  who.world_size = p.world_size.value_or(1);
  who.local_world_size = ProcessLevel(plan) ? p.local_world_size.value_or(1) : p.nproc_per_node.value_or(1);
  who.node_rank = p.node_rank.value_or(0);
  who.nnodes = p.nnodes.value_or(1);
  who.master_addr = p.master_addr.value_or("127.0.0.1");
  who.master_port = p.master_port.value_or(kDefaultPort);
  who.agent_store = plan.store.on;
  who.run_id = p.job_id;
  return who;
}

std::string LauncherHost(const LaunchPlan& plan) {
  if (!plan.options.place.rdzv_endpoint.empty()) {
    auto endpoint = ParseHostPort(plan.options.place.rdzv_endpoint);
    if (endpoint.ok()) return endpoint->host;
  }
  return plan.placement.master_addr.value_or("127.0.0.1");
}

int LauncherPort(const LaunchPlan& plan) {
  if (!plan.options.place.rdzv_endpoint.empty()) {
    auto endpoint = ParseHostPort(plan.options.place.rdzv_endpoint);
    if (endpoint.ok() && endpoint->port > 0) return endpoint->port;
  }
  const int master = plan.placement.master_port.value_or(kDefaultPort);
  return ProcessLevel(plan) ? master + 1 : master;
}

std::string NameStem(const RunOptions& options) {
  // A recipe, or the command where it has none.
  if (options.train_program && options.args.size() > 1) return options.args[options.args[1].starts_with("-") ? 0 : 1];
  std::string program = options.program;
  while (program.size() > 1 && program.ends_with('/')) program.pop_back();
  // The last part that is no __main__: "pkg.train", "pkg.train.__main__" and "pkg/train.py" are all "train".
  const auto take_last = [&](char separator, std::string_view main) {
    if (program.size() > main.size() + 1 && program.ends_with(main) &&
        program[program.size() - main.size() - 1] == separator) {
      program.resize(program.size() - main.size() - 1);
    }
    return program.substr(program.rfind(separator) + 1);
  };
  return options.module ? take_last('.', "__main__") : take_last('/', "__main__.py");
}

std::string EffectiveConfig(const LaunchPlan& plan) {
  const RunOptions& o = plan.options;
  const place::Placement& p = plan.placement;
  std::vector<std::string> command{o.program};
  command.insert(command.end(), o.args.begin(), o.args.end());
  command = MaskArguments(std::move(command), SecretValues(RankEnvironment(plan.env, {}, o)));
  const auto quote = [](const std::string& text) {
    return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string yaml = "run:\n";
  yaml += fmt::format("  command: {}\n", Json(command).dump(-1, ' ', false, Json::error_handler_t::replace));
  yaml += fmt::format("  platform: {}\n", quote(p.platform));
  yaml += fmt::format("  level: {}\n", ProcessLevel(plan) ? "process" : "node");
  yaml += fmt::format("  nnodes: {}\n", p.nnodes.value_or(1));
  yaml += fmt::format("  nproc_per_node: {}\n", p.nproc_per_node.value_or(1));
  yaml += fmt::format("  max_restarts: {}\n", o.max_restarts);
  yaml += fmt::format("  backoff: {}ms\n", o.backoff.count());
  yaml += fmt::format("  grace: {}ms\n", o.grace.count());
  yaml += fmt::format("  node_timeout: {}ms\n", o.node_timeout.count());
  yaml += fmt::format("  join_timeout: {}ms\n", o.join_timeout.count());
  yaml += fmt::format("  bind: {}\n", Name(o.bind));
  yaml += fmt::format("  tune: {}\n", o.tune == Tune::kOff ? "off" : o.tune == Tune::kReport ? "report" : "apply");
  yaml += fmt::format("  agent_store: {}\n", plan.store.on ? "on" : "off");
  yaml += fmt::format("  log_rotate: {{bytes: {}, keep: {}}}\n", o.rotation.bytes, o.rotation.keep);
  yaml += fmt::format("  workdir: {}\n", quote(plan.program.workdir));
  yaml += fmt::format("  interpreter: {}\n", quote(plan.program.interpreter));
  return yaml;
}

std::string DescribePlan(const LaunchPlan& plan, bool json) {
  const place::Placement& p = plan.placement;
  const bool several = ProcessLevel(plan) ? p.world_size.value_or(1) > 1 : p.nnodes.value_or(1) > 1;
  Json document = {
      {"platform", p.platform},
      {"level", p.level ? Json(place::Name(*p.level)) : Json()},
      {"nnodes", OrNull(p.nnodes)},
      {"node_rank", OrNull(p.node_rank)},
      {"nproc_per_node", OrNull(p.nproc_per_node)},
      {"nproc_source", p.nproc_source},
      {"world_size", OrNull(p.world_size)},
      {"rendezvous", several ? Json(fmt::format("{}:{}", LauncherHost(plan), LauncherPort(plan))) : Json()},
      {"command", plan.program.argv},
      {"program", plan.program.description},
      {"workdir", plan.program.workdir},
      {"max_restarts", plan.options.max_restarts},
      {"grace_seconds", plan.options.grace.count() / 1000.0},
      {"agent_store", {{"on", plan.store.on}, {"because", plan.store.because}}},
      {"environment", SampleEnvironment(plan)},
      {"tuned", plan.tuned},
      {"warnings", p.warnings}};
  if (json) return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  std::vector<std::string> quoted;
  for (const std::string& word : plan.program.argv) quoted.push_back(ShellQuote(word));
  std::string text = fmt::format("would start {} on this node, {}, platform {} (nproc-per-node: {})\n",
                                 Count(p.nproc_per_node.value_or(1), "rank"), Count(p.nnodes.value_or(1), "node"),
                                 p.platform, p.nproc_source);
  text += fmt::format("program:    {}\n", plan.program.description);
  text += fmt::format("command:    {}\n", fmt::join(quoted, " "));
  if (several) text += fmt::format("rendezvous: {}:{}\n", LauncherHost(plan), LauncherPort(plan));
  text += fmt::format("store:      {} ({})\n", plan.store.on ? "of the launcher of node 0" : "of rank 0",
                      plan.store.because);
  text += "environment of the first rank, where it differs from this one:\n";
  for (const auto& [key, value] : document["environment"].items()) {
    text += fmt::format("  {}={}\n", key, value.get<std::string>());
  }
  if (plan.tuned.is_object()) {
    for (const auto& [name, told] : plan.tuned["applied"].items()) {
      text += fmt::format("tuned: {} because {}\n", name, told["because"].get<std::string>());
    }
    for (const auto& [name, told] : plan.tuned["suggested"].items()) {
      text += fmt::format("not set: {}={} ({}): {}\n", name, told["value"].get<std::string>(),
                          told["confidence"].get<std::string>(), told["because"].get<std::string>());
    }
    for (const auto& [name, told] : plan.tuned["user"].items()) {
      text += fmt::format("yours: {}={} is kept; suggested: {}\n", name, Printable(told["value"].get<std::string>()),
                          told["suggested"].get<std::string>());
    }
    for (const auto& warning : plan.tuned["warnings"]) text += "warning: " + warning.get<std::string>() + "\n";
  }
  for (const std::string& warning : p.warnings) text += "warning: " + warning + "\n";
  return text + "nothing was started (--dry-run)\n";
}

}  // namespace lockstep::launch
