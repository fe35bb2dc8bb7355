#include "launch/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <thread>

#include "base/sockets.h"
#include "base/text.h"
#include "hardware/gpus.h"
#include "hardware/sys_tree.h"
#include "launch/worker_env.h"
#include "lint/lint.h"

namespace lockstep::launch {
namespace {

// Programs that run another one in a file system of its own, where the run's log folder may not exist: NCCL would then
// write to standard output.
constexpr std::array<std::string_view, 11> kContainerRunners = {"apptainer", "singularity", "docker",  "podman",
                                                                "nerdctl",   "enroot",      "shifter", "sarus",
                                                                "ch-run",    "bwrap",       "chroot"};

bool IsContainerRunner(const Program& program) {
  if (program.argv.empty()) return false;
  const std::string& path = program.argv[0];
  const std::string_view name =
      std::string_view(path).substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);
  return std::find(kContainerRunners.begin(), kContainerRunners.end(), name) != kContainerRunners.end();
}

std::string MasterHost(const LaunchPlan& plan) {
  const auto& master = plan.placement.master_addr;
  return master && !master->empty() && !IsLoopbackName(*master) ? *master : LauncherHost(plan);
}

// Variables lint has an opinion about.
bool HasSettings(const Environment& env) {
  return std::any_of(env.begin(), env.end(), [](const auto& entry) {
    for (const char* prefix : {"NCCL_", "TORCH_", "GLOO_", "PYTORCH_", "UCX_", "FI_", "CUDA_", "DEEPSPEED_"}) {
      if (entry.first.starts_with(prefix)) return true;
    }
    return false;
  });
}

// At most three lines about mistakes in the job's environment.
std::vector<std::string> Lint(const Environment& env, const hardware::Hardware& here) {
  if (!HasSettings(env)) return {};
  lint::LintContext context;
  if (!here.gpus.empty() || !here.ib.empty()) context.hardware = here;
  const auto known = [](const std::optional<hardware::Library>& library) -> std::optional<lint::KnownLibrary> {
    if (!library || library->path.empty()) return std::nullopt;
    auto read = lint::ReadKnownLibrary(library->path, library->version);
    return read.ok() ? std::optional(std::move(*read)) : std::nullopt;
  };
  context.nccl = known(here.nccl);
  context.torch = known(here.torch);
  const std::vector<lint::LintFinding> all = lint::LintEnvironment(env, context);
  std::vector<lint::LintFinding> findings;
  for (const lint::Severity severity : {lint::Severity::kError, lint::Severity::kWarning}) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(findings),
                 [&](const lint::LintFinding& finding) { return finding.severity == severity; });
  }
  std::vector<std::string> out;
  for (const lint::LintFinding& finding : findings) {
    if (out.size() == 3) {
      out.back() += fmt::format(" (and {} more: `lockstep lint --env`)", findings.size() - 3);
      break;
    }
    out.push_back(fmt::format("lint: {}: {}{}", lint::Name(finding.severity), finding.what,
                              finding.fix.empty() ? "" : fmt::format("; fix: {}", finding.fix)));
  }
  if (!out.empty() && findings.size() <= 3) out.back() += " (`lockstep lint --env` says why)";
  return out;
}

// Numeric, in the resolver's order, each once.
std::vector<std::string> Numeric(const std::string& host) {
  std::vector<std::string> out;
  auto addresses = Resolve(host, 0);
  if (!addresses.ok()) return out;
  for (const Address& address : *addresses) {
    if (std::find(out.begin(), out.end(), address.Host()) == out.end()) out.push_back(address.Host());
  }
  return out;
}

}  // namespace

Tuning::Tuning(const LaunchPlan& plan)
    : mode_(plan.options.tune),
      env_(RankEnvironment(plan.env, plan.program.env, plan.options)),
      interpreter_(plan.program.interpreter),
      host_(plan.host),
      master_(MasterHost(plan)),
      gpu_pci_(plan.gpu_pci),
      gpus_(!plan.gpu_pci.empty()),
      contained_(IsContainerRunner(plan.program)) {}

std::shared_ptr<Tuning> Tuning::Start(const LaunchPlan& plan) {
  if (plan.options.tune == Tune::kOff) return nullptr;
  std::shared_ptr<Tuning> tuning(new Tuning(plan));
  const bool alone = plan.placement.level != place::Level::kProcess && plan.placement.nnodes.value_or(1) == 1;
  if (alone && !tuning->gpus_ && !HasSettings(tuning->env_)) {
    tuning->read_ = true;  // nothing depends on the machine, and there is nothing to lint
  } else {
    std::thread([tuning] { tuning->Read(); }).detach();
  }
  return tuning;
}

Tuning::Result Tuning::Now(const LaunchPlan& plan) {
  Tuning tuning(plan);
  tuning.Read();
  const place::Placement& p = plan.placement;
  return tuning.Derive(
      p.job_id, p.nnodes.value_or(1),
      p.level == place::Level::kProcess ? p.local_world_size.value_or(1) : p.nproc_per_node.value_or(1), "");
}

void Tuning::Read() {
  hardware::HardwareOptions options;
  options.env = env_;
  options.interpreter = interpreter_;
  options.gpus = false;  // they are known, and NVML takes its time
  hardware::Hardware here = hardware::ScanHardware(options);
  // All of the machine, also those this job does not use: which card is whose shows by all of them.
  std::vector<std::string> cards = gpu_pci_;
  for (const hardware::Gpu& gpu : gpus_ ? hardware::GpusOfKernel("").gpus : std::vector<hardware::Gpu>()) {
    if (!gpu.pci.empty() && std::find(cards.begin(), cards.end(), gpu.pci) == cards.end()) cards.push_back(gpu.pci);
  }
  for (const std::string& pci : cards) {
    hardware::GpuState& gpu = here.gpus.emplace_back();
    gpu.pci = pci;
    gpu.pci_path = hardware::PciOf(hardware::SysTree(""), "/sys/bus/pci/devices/" + pci).path;
  }
  std::vector<std::string> own = Numeric(host_);
  std::vector<std::string> all = Numeric(master_);
  // One address of the master is enough, the first that leads out of this machine.
  std::vector<std::string> peers;
  for (const std::string& address : all) {
    if (!IsLoopbackName(address) && peers.empty()) peers.push_back(address);
  }
  Environment conf = tune::ConfFileSettings(env_);
  std::vector<std::string> lint = Lint(env_, here);
  const std::lock_guard lock(mutex_);
  here_ = std::move(here);
  own_addresses_ = std::move(own);
  peers_ = std::move(peers);
  conf_ = std::move(conf);
  lint_ = std::move(lint);
  read_ = true;
  done_.notify_all();
}

std::optional<Tuning::Result> Tuning::Settle(const std::string& job_id, int nnodes, int local_world,
                                             const std::string& peer, Millis patience) {
  std::unique_lock lock(mutex_);
  if (!done_.wait_for(lock, patience, [this] { return read_; })) return std::nullopt;
  return Derive(job_id, nnodes, local_world, peer);
}

Tuning::Result Tuning::Derive(const std::string& job_id, int nnodes, int local_world, const std::string& peer) const {
  tune::JobShape job;
  job.nnodes = nnodes;
  job.nproc_per_node = local_world;
  job.peers = peers_;
  const auto other = ParseHostPort(peer);
  if (job.peers.empty() && other.ok() && !IsLoopbackName(other->host)) job.peers = {other->host};
  job.gpus = gpus_;
  job.own_addresses = own_addresses_;
  job.job_id = job_id;
  Environment user = conf_;
  for (const auto& [name, value] : env_) user[name] = value;

  Result out;
  out.settings = tune::Derive(here_, job, user);
  out.rdma_active =
      std::any_of(here_.ib.begin(), here_.ib.end(), [](const hardware::IbPort& port) { return port.active(); });
  const bool apply = mode_ == Tune::kApply;
  nlohmann::json applied = nlohmann::json::object(), suggested = nlohmann::json::object(),
                 yours = nlohmann::json::object();
  for (const tune::Setting& setting : out.settings.set) {
    const nlohmann::json told = {
        {"value", setting.value}, {"because", setting.because}, {"confidence", Name(setting.confidence)}};
    if (setting.user_value) {
      yours[setting.name] = {{"value", *setting.user_value}, {"suggested", setting.value}};
    } else if (apply && setting.applies()) {
      out.apply.emplace_back(setting.name, setting.value);
      applied[setting.name] = told;
    } else {
      suggested[setting.name] = told;
      if (!apply && setting.applies())
        out.lines.push_back(fmt::format("tune: --tune apply would set {}={}", setting.name, setting.value));
    }
  }
  const bool silent =
      !user.contains("NCCL_DEBUG") && !user.contains("NCCL_DEBUG_FILE") && !user.contains("NCCL_DEBUG_SUBSYS");
  out.collect_nccl = apply && gpus_ && silent && !contained_;
  for (const std::string& line : tune::StartLines(out.settings)) out.lines.push_back("tune: " + line);
  for (const std::string& warning : out.settings.warnings) out.lines.push_back("tune: warning: " + warning);
  out.lines.insert(out.lines.end(), lint_.begin(), lint_.end());
  out.event = {{"mode", apply ? "apply" : "report"},
               {"applied", applied},
               {"suggested", suggested},
               {"user", yours},
               {"warnings", out.settings.warnings}};
  return out;
}

}  // namespace lockstep::launch
