#include "launch/member.h"

#include <fmt/format.h>

namespace lockstep::launch {
namespace {

constexpr int kMaxMembers = 1 << 20;
constexpr int kMaxProcs = 4096;

}  // namespace

const char* SeatWord(place::Level level) { return level == place::Level::kNode ? "node" : "rank"; }

std::string Member::Seat() const {
  return index < 0 ? fmt::format("a {}", SeatWord(level)) : fmt::format("{} {}", SeatWord(level), index);
}

std::string Member::Who() const { return fmt::format("{} (pid {} on {})", Seat(), pid, host); }

Json Member::ToJson() const {
  return Json{{"index", index},
              {"count", count},
              {"level", place::Name(level)},
              {"nproc", nproc},
              {"world", world},
              {"local_rank", local_rank},
              {"local_world", local_world},
              {"node_rank", node_rank},
              {"job", job},
              {"host", host},
              {"boot_id", boot_id},
              {"version", version},
              {"pid", pid},
              {"has_token", has_token},
              {"command", command}};
}

Result<Member> Member::FromJson(const Json& json) {
  Member member;
  const auto number = [&](const char* key, int low, int high, int* out) {
    const int64_t value = Number(json, key, INT64_MIN);
    if (value < low || value > high) return false;
    *out = static_cast<int>(value);
    return true;
  };
  if (!json.is_object() || !number("index", -1, kMaxMembers, &member.index) ||
      !number("count", 1, kMaxMembers, &member.count) || !number("nproc", 1, kMaxProcs, &member.nproc) ||
      !number("world", -1, kMaxMembers, &member.world) || !number("local_rank", -1, kMaxProcs, &member.local_rank) ||
      !number("local_world", -1, kMaxProcs, &member.local_world) ||
      !number("node_rank", -1, kMaxMembers, &member.node_rank)) {
    return Status(Code::kRendezvous, "malformed introduction of a launcher");
  }
  const std::string level = Text(json, "level");
  if (level != "node" && level != "process") return Status(Code::kRendezvous, "malformed level of a launcher");
  member.level = level == "node" ? place::Level::kNode : place::Level::kProcess;
  member.job = Text(json, "job");
  member.host = Text(json, "host");
  member.boot_id = Text(json, "boot_id");
  member.version = Text(json, "version");
  member.pid = Number(json, "pid");
  member.has_token = Flag(json, "has_token");
  if (auto it = json.find("command"); it != json.end() && it->is_array()) {
    for (const auto& word : *it) {
      if (word.is_string()) member.command.push_back(word.get<std::string>());
    }
  }
  return member;
}

}  // namespace lockstep::launch
