// What the user wants, from flags and from torchrun's PET_* variables, which are flags under another name: an operator
// or a script speaks through them, so they too win over what the platform says.
#include <fmt/format.h>

#include "base/text.h"
#include "place/facts.h"

namespace lockstep::place {
namespace {

std::optional<Said<int>> NodeCount(Reader& in) {
  std::optional<std::string> text = in.Text("PET_NNODES");
  if (!text) return std::nullopt;
  const size_t colon = text->find(':');
  if (colon == std::string::npos) return in.Number("PET_NNODES", 1);
  std::optional<int> low = ParseNumber(text->substr(0, colon)), high = ParseNumber(text->substr(colon + 1));
  if (low && high && *low == *high && *low >= 1 && *low <= kMaxCount) return Said<int>{*low, in.Source("PET_NNODES")};
  if (low && high && *low >= 1 && *low <= *high && *high <= kMaxCount)
    in.Fail(fmt::format("{}: a job whose number of nodes may change is not supported, all nodes start together",
                        in.Source("PET_NNODES")),
            fmt::format("pass --nnodes {}", *high));
  else
    in.Fail(fmt::format("{}: expected a number of nodes", in.Source("PET_NNODES")),
            "correct or unset PET_NNODES, or pass --nnodes");
  return std::nullopt;
}

template <typename T>
Said<T> Flag(std::string_view name, const T& value) {
  return Said<T>{value, fmt::format("{} {}", name, value)};
}

// A flag that repeats its PET_* variable came from it: the command line is merged with these variables before it gets
// here, and inside a worker an inherited variable is no wish.
template <typename T>
std::optional<Said<T>> Pick(std::string_view name, const std::optional<T>& flag, const std::optional<Said<T>>& pet) {
  if (flag && !(pet && pet->value == *flag)) return Flag(name, *flag);
  return pet;
}

}  // namespace

Asked ReadAsked(Reader& in, const Flags& flags) {
  Asked asked;
  auto text = [&](const char* name) { return in.Text(Names{name}); };
  // A variable that a flag overrules is not looked at: it cannot fail the placement.
  asked.nnodes = flags.nnodes && in.Text("PET_NNODES") != std::to_string(*flags.nnodes)
                     ? Flag("--nnodes", *flags.nnodes)
                     : NodeCount(in);
  asked.node_rank = flags.node_rank && in.Text("PET_NODE_RANK") != std::to_string(*flags.node_rank)
                        ? Flag("--node-rank", *flags.node_rank)
                        : in.Number("PET_NODE_RANK", 0);
  asked.nproc = Pick("--nproc-per-node", flags.nproc_per_node, text("PET_NPROC_PER_NODE"));
  asked.nproc_by_flag = asked.nproc && !asked.nproc->source.starts_with("PET_");
  asked.master_addr = Pick("--master-addr", flags.master_addr, text("PET_MASTER_ADDR"));
  if (flags.master_port)
    asked.master_port = Flag("--master-port", *flags.master_port);
  else if (std::optional<std::string> port = in.Text("PET_MASTER_PORT")) {
    std::optional<int> number = ParseNumber(*port);
    if (number && *number <= 65535)
      asked.master_port = Said<int>{*number, in.Source("PET_MASTER_PORT")};
    else
      in.Fail(in.Source("PET_MASTER_PORT") + ": expected a port from 0 to 65535",
              "correct PET_MASTER_PORT, or pass --master-port");
  }
  std::optional<std::string> endpoint;
  if (!flags.rdzv_endpoint.empty()) endpoint = flags.rdzv_endpoint;
  asked.endpoint = Pick("--rdzv-endpoint", endpoint, text("PET_RDZV_ENDPOINT"));
  asked.backend = !flags.rdzv_backend.empty() ? flags.rdzv_backend : in.Text("PET_RDZV_BACKEND").value_or("");
  std::optional<std::string> standalone = in.Text("PET_STANDALONE");
  asked.standalone =
      flags.standalone || (standalone && *standalone != "0" && *standalone != "false" && *standalone != "False");
  asked.level = flags.level;
  return asked;
}

std::string VisibleGpus(const Machine& machine) {
  return fmt::format("{} visible GPU{}{}", machine.gpus, machine.gpus == 1 ? "" : "s",
                     machine.gpus_source.empty() ? "" : " (" + machine.gpus_source + ")");
}

std::optional<Said<int>> CountRanks(Resolution& resolution, const Said<std::string>& spec) {
  const Machine& machine = resolution.machine;
  const std::string word(Trim(spec.value));
  const std::string cpus = fmt::format("{} CPU{}", machine.cpus, machine.cpus == 1 ? "" : "s");
  if (word == "gpu" || (word == "auto" && machine.gpus > 0)) {
    if (machine.gpus > 0) return Said<int>{machine.gpus, spec.source + ": " + VisibleGpus(machine)};
    resolution.in.Fail(spec.source + ": no GPU is visible here",
                       "use --nproc-per-node auto, cpu or a number, or look at CUDA_VISIBLE_DEVICES and the driver");
    return std::nullopt;
  }
  if (word == "cpu" || word == "auto") return Said<int>{std::max(machine.cpus, 1), spec.source + ": " + cpus};
  std::optional<int> number = ParseNumber(word);
  if (number && *number >= 1 && *number <= kMaxCount) return Said<int>{*number, spec.source};
  resolution.in.Fail(spec.source + ": expected a number of ranks, or auto, gpu or cpu", "pass --nproc-per-node");
  return std::nullopt;
}

}  // namespace lockstep::place
