// `lockstep tune`: what this node's hardware says about the settings of NCCL, Gloo and torch, without starting
// anything.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/files.h"
#include "base/sockets.h"
#include "base/text.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "hardware/hardware.h"
#include "launch/worker_env.h"
#include "place/machine.h"
#include "tune/settings.h"

namespace lockstep::cli {
namespace {

constexpr char kExamples[] =
    "\nexamples:\n"
    "  lockstep tune --peer 10.0.0.1 --nnodes 2      a table: what is set, what is left alone, and why\n"
    "  eval \"$(lockstep tune --print-env --peer \"$MASTER_ADDR\" --nnodes 2)\"    for another launcher\n"
    "  lockstep doctor hardware --json >n7.json; lockstep tune --hardware n7.json --nnodes 2    for another machine\n"
    "\n`lockstep run` does this by itself on every node (--tune off|report|apply).\n";

struct TuneFlags {
  std::vector<std::string> peers;
  std::string hardware;
  int nnodes = 0, nproc = 0;
  bool print_env = false, json = false;
};

Result<hardware::Hardware> FromFile(const std::string& path) {
  auto text = ReadFile(path);
  if (!text.ok()) return text.status().Context("--hardware").WithCode(Code::kUsage);
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, false);
  if (json.is_discarded()) {
    return Status(Code::kUsage, fmt::format("--hardware {}: not JSON", path),
                  "lockstep doctor hardware --json writes such a file");
  }
  auto here = hardware::HardwareFromJson(json);
  if (!here.ok()) return here.status().Context("--hardware " + path).WithCode(Code::kUsage);
  return here;
}

// Names become addresses; the first of each is enough.
Result<std::vector<std::string>> Addresses(const std::vector<std::string>& hosts) {
  std::vector<std::string> out;
  for (const std::string& host : hosts) {
    auto found = Resolve(host, 0);
    if (!found.ok()) return found.status().Context("--peer " + host);
    const size_t scope = host.find('%');  // of a link-local address: the interface itself
    out.push_back(found->front().Host() + (scope == std::string::npos ? "" : host.substr(scope)));
  }
  return out;
}

int Tune(const TuneFlags& options) {
  const Environment env = CurrentEnvironment();
  const bool foreign = !options.hardware.empty();
  auto peers = Addresses(options.peers);
  if (!peers.ok()) return Complain("tune", peers.status());
  hardware::Hardware here;
  if (foreign) {
    auto read = FromFile(options.hardware);
    if (!read.ok()) return Complain("tune", read.status());
    here = std::move(*read);
  } else {
    here = hardware::ScanHardware({.env = env});
  }
  tune::JobShape job;
  job.peers = std::move(*peers);
  job.nnodes = options.nnodes > 0 ? options.nnodes : job.peers.empty() ? 1 : static_cast<int>(job.peers.size()) + 1;
  job.gpus = !here.gpus.empty();
  job.nproc_per_node = options.nproc > 0 ? options.nproc : std::max<int>(1, static_cast<int>(here.gpus.size()));
  if (here.cpus > 0) job.threads = launch::DefaultThreads(here.cpus, job.nproc_per_node);
  if (!foreign) {
    std::vector<std::string> own;
    auto found = Resolve(here.host, 0);
    if (found.ok()) {
      for (const Address& address : *found) own.push_back(address.Host());
    }
    job.own_addresses = std::move(own);
  }
  // Another machine's settings are not in this shell.
  Environment user = foreign ? Environment() : tune::ConfFileSettings(env);
  if (!foreign) {
    for (const auto& [name, value] : env) user[name] = value;
  }
  const tune::Settings settings = tune::Derive(here, job, user);
  if (options.json) {
    nlohmann::json document = tune::ToJson(settings);
    document["host"] = here.host;
    document["nnodes"] = job.nnodes;
    document["peers"] = job.peers;
    fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  if (options.print_env) {
    for (const std::string& warning : settings.warnings) fmt::print(stderr, "lockstep tune: warning: {}\n", warning);
    fmt::print("{}", tune::ToShell(settings));
    return 0;
  }
  fmt::print("{}, {}{}\n\n", here.host.empty() ? "this node" : here.host,
             job.nnodes == 1 ? "one node" : fmt::format("{} nodes", job.nnodes),
             job.peers.empty() ? job.nnodes > 1 ? "; --peer ADDRESS of another node would make guesses certain" : ""
                               : ", peer " + Join(job.peers, ", "));
  fmt::print("{}", tune::ToText(settings, UseColour(STDOUT_FILENO)));
  return 0;
}

}  // namespace

int TuneMain(int argc, char** argv) {
  TuneFlags options;
  Arguments args("Settings of NCCL, Gloo and torch from this node's hardware, each with its reason", "tune");
  args.Option("--peer", &options.peers, "address or name of another node, best the master's (repeatable)")
      .Named("ADDR");
  args.Option("--nnodes", &options.nnodes, "nodes of the job (default: 1, with --peer 2)")
      .Between(1, 100000)
      .Named("N");
  args.Option("--nproc-per-node", &options.nproc, "ranks of this node (default: its GPUs)").Between(1, 4096).Named("N");
  args.Option("--hardware", &options.hardware, "a machine written down by `lockstep doctor hardware --json`")
      .Named("FILE");
  const Argument print = args.Flag("--print-env", &options.print_env, "only export lines, for eval in a shell");
  args.Flag("--json", &options.json, "one JSON document").Excludes(print);
  args.Footer(kExamples);
  if (const auto code = ParseCommand(args, argc, argv)) return *code;
  return Tune(options);
}

}  // namespace lockstep::cli
