#include "cli/train/place.h"

#include "base/environment.h"
#include "place/machine.h"
#include "place/placement.h"

namespace lockstep::cli {

Result<comm::Bootstrap> FindIdentity() {
  const Environment env = CurrentEnvironment();
  const auto said = [&](const char* name) {
    const auto it = env.find(name);
    return it != env.end() && !it->second.empty();
  };
  if (said("RANK") || said("WORLD_SIZE")) return comm::BootstrapFromEnvironment();
  place::Flags flags;
  flags.level = place::Level::kProcess;  // this program is a rank, never a launcher
  const place::Placement placement = place::Resolve(env, flags, place::ReadMachine(env));
  // Typed once in a batch script or an allocation's shell: nobody else was started.
  if (placement.starts == place::Starts::kOnce) return comm::Bootstrap{};
  if (!placement.error.ok()) return placement.error;
  comm::Bootstrap me;
  me.rank = placement.rank.value_or(0);
  me.size = placement.world_size.value_or(1);
  me.local_rank = placement.local_rank.value_or(0);
  me.local_size = placement.local_world_size.value_or(placement.nproc_per_node.value_or(1));
  me.master_addr = placement.master_addr.value_or(me.master_addr);
  me.master_port = placement.master_port.value_or(me.master_port);
  if (said("LOCKSTEP_NODE")) me.node = env.at("LOCKSTEP_NODE");
  return me;
}

}  // namespace lockstep::cli
