#include "launch/admission.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "base/process.h"
#include "base/sockets.h"
#include "base/version.h"
#include "launch/ports.h"

namespace lockstep::launch {

Participant DescribeParticipant(const LaunchPlan& plan) {
  const place::Placement& p = plan.placement;
  Participant self;
  self.level = p.level.value_or(place::Level::kNode);
  if (self.level == place::Level::kNode) {
    self.count = p.nnodes.value_or(1);
    self.index = p.node_rank.value_or(self.count == 1 ? 0 : -1);
    self.nproc = p.nproc_per_node.value_or(1);
    // Nodes may differ where each counts its own GPUs; a number somebody wrote down must hold everywhere.
    if (p.nproc_explicit) self.world = p.world_size.value_or(-1);
  } else {
    self.count = p.world_size.value_or(1);
    self.index = p.rank.value_or(0);
    self.nproc = 1;
    self.world = self.count;
    self.local_rank = p.local_rank.value_or(-1);
    self.local_world = p.local_world_size.value_or(-1);
    self.node_rank = p.node_rank.value_or(-1);
  }
  self.job = !plan.options.rdzv_id.empty() ? plan.options.rdzv_id : p.job_id;
  self.host = plan.host;
  self.boot_id = BootId();
  self.version = ThisBuild().version;
  self.pid = getpid();
  self.has_token = !plan.token.empty();
  self.command.push_back(plan.options.program);
  self.command.insert(self.command.end(), plan.options.args.begin(), plan.options.args.end());
  return self;
}

void ClaimNodeZeroByAddress(const LaunchPlan& plan, Participant* self, UniqueFd* listener) {
  if (self->index >= 0) return;
  auto addresses = Resolve(LauncherHost(plan), LauncherPort(plan));
  if (!addresses.ok()) return;  // the client waits for DNS and says so
  for (const Address& address : *addresses) {
    if (!IsLocal(address)) continue;
    auto held = Listen(LauncherPort(plan));
    if (held.ok()) {
      *listener = std::move(*held);
      self->index = 0;
    }
    return;
  }
}

Result<UniqueFd> ListenForLaunchers(const LaunchPlan& plan, bool loopback_only) {
  auto listener = Listen(LauncherPort(plan), loopback_only);
  if (listener.ok()) return listener;
  const std::string owner = PortOwner(LauncherPort(plan));
  return Status(
      Code::kRendezvous,
      owner.empty() ? listener.status().message() : fmt::format("port {} is in use by {}", LauncherPort(plan), owner),
      "end that program, or choose another port with --master-port (on every node)");
}

Status Admit(const Participant& self, const std::vector<const Participant*>& joined, const Participant& participant) {
  const auto refuse = [](std::string what, std::string hint) {
    return Status(Code::kRendezvous, std::move(what), std::move(hint));
  };
  const std::string us = fmt::format("pid {} on {}", self.pid, self.host);
  const std::string them = fmt::format("pid {} on {}", participant.pid, participant.host);
  if (participant.version != self.version) {
    return refuse(
        fmt::format("different versions: {} runs lockstep {}, {} runs {}", them, participant.version, us, self.version),
        "install the same lockstep on every node");
  }
  if (participant.job != self.job) {
    return refuse(
        fmt::format("another job holds this port: {} is job '{}', {} is job '{}'", us, self.job, them, participant.job),
        "give the second job another --master-port, or both the same --rdzv-id if they are one job");
  }
  if (participant.level != self.level) {
    return refuse(fmt::format("{} was started per {}, {} per {}", them, place::Name(participant.level), us,
                              place::Name(self.level)),
                  "compare `lockstep explain` on both and settle it with --level");
  }
  if (participant.count != self.count) {
    return refuse(fmt::format("the sizes differ: {} expects {} {}s, {} expects {}", them, participant.count,
                              ParticipantWord(self.level), us, self.count),
                  "start every node with the same --nnodes");
  }
  if (participant.index >= self.count) {
    return refuse(
        fmt::format("{} {} does not exist in a job of {}", ParticipantWord(self.level), participant.index, self.count),
        "ranks count from 0");
  }
  if (participant.index >= 0) {
    for (const Participant* taken : joined) {
      if (taken->index != participant.index) continue;
      return refuse(
          fmt::format("{} {} is claimed twice: by pid {} on {} and by {}", ParticipantWord(self.level),
                      participant.index, taken->pid, taken->host, them),
          fmt::format("give each a --{} of its own", self.level == place::Level::kNode ? "node-rank" : "rank"));
    }
  } else if (static_cast<int>(joined.size()) >= self.count) {
    return refuse(
        fmt::format("the job is complete: {} {}s have joined already", joined.size(), ParticipantWord(self.level)),
        "start it with a larger --nnodes, or not at all");
  }
  for (const Participant* slot : joined) {
    if (slot->world > 0 && participant.world > 0 && slot->world != participant.world) {
      return refuse(fmt::format("the numbers of ranks do not add up: {} has nproc {} in a world of {}, {} has nproc {} "
                                "in a world of {}",
                                them, participant.nproc, participant.world, slot->Who(), slot->nproc, slot->world),
                    "give every node the same --nproc-per-node");
    }
  }
  return {};
}

std::string MissingParticipants(const Participant& self, const std::function<bool(int)>& joined,
                                const std::vector<std::string>& hosts) {
  std::vector<std::string> missing;
  int more = 0;
  for (int i = 0; i < self.count; ++i) {
    if (joined(i)) continue;
    if (missing.size() >= 16) {
      ++more;
    } else if (static_cast<size_t>(i) < hosts.size()) {
      missing.push_back(fmt::format("{} ({})", i, hosts[static_cast<size_t>(i)]));
    } else {
      missing.push_back(std::to_string(i));
    }
  }
  return fmt::format("{} {}{}",
                     missing.size() == 1 ? ParticipantWord(self.level) : std::string(ParticipantWord(self.level)) + "s",
                     fmt::join(missing, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

void Refusals::Add(const Participant& self, const std::vector<const Participant*>& joined,
                   const Participant& participant, const Status& why) {
  if (participant.job != self.job) return;
  // Started again where its predecessor is still connected: not the one who is missing.
  for (const Participant* slot : joined) {
    if (slot->index == participant.index && slot->host == participant.host) return;
  }
  Forget(participant.host);
  refused_.push_back({participant.host, participant.Who(), participant.pid, why});
  last_ = Now();
}

void Refusals::Forget(const std::string& host) {
  std::erase_if(refused_, [&](const Refused& one) { return one.host == host; });
}

bool Refusals::Hopeless(int missing, Millis patience) const {
  return !refused_.empty() && static_cast<int>(refused_.size()) >= missing && Now() - last_ >= patience;
}

std::string Refusals::Text() const {
  if (refused_.empty()) return "";
  const std::string more = refused_.size() > 1 ? fmt::format(" (and {} more)", refused_.size() - 1) : "";
  return fmt::format("{}{} was refused: {}", refused_[0].who, more, refused_[0].why.message());
}

Status Refusals::End(const Participant& self, size_t joined, const std::string& missing) const {
  return Status(Code::kRendezvous,
                fmt::format("{} of {} {}s joined, missing: {}, and nobody else can come: {}", joined, self.count,
                            ParticipantWord(self.level), missing, Text()),
                refused_.empty() ? "" : refused_[0].why.hint());
}

}  // namespace lockstep::launch
