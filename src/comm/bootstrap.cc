#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "base/digits.h"
#include "comm/communicator.h"

namespace lockstep::comm {
namespace {

Status ReadNumber(const char* name, int low, int high, bool required, int* value) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') {
    if (!required) return {};
    return Status(Code::kUsage, fmt::format("environment: {} is not set, though RANK or WORLD_SIZE is", name),
                  "start the ranks with lockstep run, torchrun, srun or mpirun, or unset RANK and WORLD_SIZE");
  }
  const std::optional<int> number = ParseDigits(text);
  if (!number || *number < low || *number > high) {
    return Status(Code::kUsage,
                  fmt::format("environment: {}={}: expected a number from {} to {}", name, text, low, high));
  }
  *value = *number;
  return {};
}

bool IsSet(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0';
}

}  // namespace

Result<Bootstrap> BootstrapFromEnvironment() {
  Bootstrap me;
  if (const char* node = std::getenv("LOCKSTEP_NODE")) me.node = node;
  if (!IsSet("RANK") && !IsSet("WORLD_SIZE")) return me;
  constexpr int kMost = 1 << 20;
  LOCKSTEP_RETURN_IF_ERROR(ReadNumber("WORLD_SIZE", 1, kMost, true, &me.size));
  LOCKSTEP_RETURN_IF_ERROR(ReadNumber("RANK", 0, me.size - 1, true, &me.rank));
  LOCKSTEP_RETURN_IF_ERROR(ReadNumber("LOCAL_WORLD_SIZE", 1, kMost, false, &me.local_size));
  LOCKSTEP_RETURN_IF_ERROR(ReadNumber("LOCAL_RANK", 0, kMost, false, &me.local_rank));
  LOCKSTEP_RETURN_IF_ERROR(ReadNumber("MASTER_PORT", 1, 65535, me.size > 1, &me.master_port));
  if (const char* address = std::getenv("MASTER_ADDR"); address != nullptr && *address != '\0') {
    me.master_addr = address;
  } else if (me.size > 1) {
    return Status(Code::kUsage, "environment: MASTER_ADDR is not set, though WORLD_SIZE is greater than 1",
                  "set it to the host name or address of the machine of rank 0");
  }
  const char* store = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  me.agent_store = store != nullptr && std::string_view(store) == "True";
  return me;
}

std::string OwnNode() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat net{};
  struct stat memory{};
  (void)stat("/proc/self/ns/net", &net);
  (void)stat("/dev/shm", &memory);
  return fmt::format("{} net:{} shm:{}", boot, net.st_ino, memory.st_dev);
}

}  // namespace lockstep::comm
