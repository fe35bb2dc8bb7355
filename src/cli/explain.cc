// `lockstep explain`: the placement and why, without starting anything.
#include "cli/explain.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/env_file.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/run_flags.h"
#include "launch/prepare.h"
#include "launch/tuning.h"
#include "place/describe.h"

namespace lockstep::cli {
namespace {

// Placement reads these itself, and says of each what became of it; merged into the flags they could only fail there.
Environment WithoutPlacementVariables(Environment env) {
  for (const char* name : {"PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT",
                           "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_STANDALONE"})
    env.erase(name);
  return env;
}

Result<Environment> Load(const std::string& path) {
  Result<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status().Context("--env-file").WithCode(Code::kUsage);
  Result<Environment> env = ParseEnvFile(*text, path);
  if (!env.ok()) return env.status().Context("--env-file");
  return env;
}

}  // namespace

Question Ask(int argc, char** argv) {
  Question question;
  // Also a wrong command line is answered in the form that was asked for.
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i)
    question.json = question.json || std::strcmp(argv[i], "--json") == 0;
  auto failed = [&](Status status) {
    question.placement.error = std::move(status);
    return question;
  };
  Environment env = CurrentEnvironment();
  Result<RunFlags> flags = ParseRunFlags(argc, argv, WithoutPlacementVariables(env), ParseMode::kExplain);
  if (!flags.ok()) return failed(flags.status());
  const bool foreign = !flags->explain.env_file.empty();
  if (foreign) {
    Result<Environment> loaded = Load(flags->explain.env_file);
    if (!loaded.ok()) return failed(loaded.status());
    env = std::move(*loaded);
    flags = ParseRunFlags(argc, argv, WithoutPlacementVariables(env), ParseMode::kExplain);
    if (!flags.ok()) return failed(flags.status());
  }
  if (flags->print_and_exit) {
    question.print = flags->text;
    return question;
  }
  question.json = flags->options.json;
  question.warnings = flags->warnings;
  place::MachineOptions options;
  options.gpus = flags->explain.assume_gpus;
  options.cpus = flags->explain.assume_cpus;
  options.host = flags->explain.assume_host;
  options.foreign_environment = foreign;
  auto prepared = launch::Prepare(std::move(flags->options), std::move(env), launch::Purpose::kExplain, options);
  if (!prepared.ok()) return failed(prepared.status());
  question.placement = prepared->plan.placement;
  if (!foreign) question.plan.emplace(std::move(prepared->plan));
  return question;
}

namespace {

// What `lockstep run` would set for the ranks of this node; null: nothing to say.
nlohmann::json Tuned(const Question& question) {
  if (!question.plan || !question.placement.error.ok() || question.plan->options.tune == launch::Tune::kOff) return {};
  return launch::Tuning::Now(*question.plan).event;
}

std::string TunedText(const nlohmann::json& tuned) {
  if (!tuned.is_object()) return "";
  std::string text;
  for (const auto& [name, told] : tuned["applied"].items()) {
    text += fmt::format("  {}={}  ({})\n", name, told["value"].get<std::string>(), told["because"].get<std::string>());
  }
  for (const auto& [name, told] : tuned["user"].items()) {
    if (told["value"] == told["suggested"]) continue;
    text += fmt::format("  {}={} is yours and is kept; suggested: {}\n", name,
                        Printable(told["value"].get<std::string>()), told["suggested"].get<std::string>());
  }
  for (const auto& warning : tuned["warnings"]) text += "  warning: " + warning.get<std::string>() + "\n";
  return text.empty() ? "" : "\nsettings for the ranks here (`lockstep tune` says more)\n" + text;
}

}  // namespace

int ExplainMain(int argc, char** argv) {
  Question question = Ask(argc, argv);
  place::Placement& placement = question.placement;
  if (question.print) {
    fmt::print("{}", *question.print);
    return 0;
  }
  placement.warnings.insert(placement.warnings.begin(), question.warnings.begin(), question.warnings.end());
  if (question.json) {
    nlohmann::ordered_json json = place::ToJson(placement);
    if (placement.platform.empty()) json["platform"] = nullptr;  // never got as far as the environment
    json["tuned"] = Tuned(question);
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (placement.platform.empty()) {
    fmt::print(stderr, "lockstep explain: {}\n", placement.error.ToString());
  } else {
    fmt::print("{}{}", place::ToText(placement, UseColour(STDOUT_FILENO)), TunedText(Tuned(question)));
  }
  return placement.error.ok() ? kExitOk : kExitUsage;
}

}  // namespace lockstep::cli
