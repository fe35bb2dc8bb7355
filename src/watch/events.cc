#include "watch/events.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/columns.h"
#include "base/json.h"
#include "base/text.h"

namespace lockstep::watch {
namespace {

using nlohmann::json;

constexpr size_t kMostEvents = 200;

int SmallField(const json& event, const char* key) {
  return static_cast<int>(std::clamp<int64_t>(GetInt(event, key, -1), -1, INT32_MAX - 1));
}

std::string Words(const json& event, const char* key) { return OneLine(GetString(event, key), 300); }

// ": why", or nothing.
std::string After(const std::string& why) { return why.empty() ? "" : ": " + why; }

std::string Where(const json& event) {
  const int node = SmallField(event, "node");
  std::string host = OneLine(GetString(event, "host"), 60);
  if (node < 0) return host;
  return host.empty() ? fmt::format("node {}", node) : fmt::format("node {} ({})", node, host);
}

std::string SizeOf(const json& event) {
  const int64_t world = GetInt(event, "world_size"), nodes = GetInt(event, "nnodes");
  if (world <= 0) return "";
  return fmt::format(": {}{}", Count(world, "rank"), nodes > 1 ? fmt::format(" on {} nodes", nodes) : "");
}

std::string RankEnd(const json& event) {
  const int64_t code = GetInt(event, "exit_code"), signal = GetInt(event, "signal");
  if (code == 0 && signal == 0) return "";
  const std::string how = signal != 0 ? fmt::format("by signal {}", signal) : fmt::format("with exit code {}", code);
  return fmt::format("rank {} on {} ended {}", SmallField(event, "rank"), Where(event), how);
}

struct EventRow {
  std::string_view type;
  std::string (*text)(const json& event);
};

constexpr EventRow kEvents[] = {
    {"run_started", [](const json& event) { return "run started" + SizeOf(event); }},
    {"lock_taken_over", [](const json& event) { return "a stale lock was taken over" + After(Words(event, "why")); }},
    {"node_joined", [](const json& event) { return Where(event) + " joined"; }},
    {"node_suspected",
     [](const json& event) { return Where(event) + " does not answer" + After(Words(event, "why")); }},
    {"node_lost", [](const json& event) { return Where(event) + " was lost" + After(Words(event, "why")); }},
    {"attempt_started",
     [](const json& event) {
       return fmt::format("attempt {} started{}", SmallField(event, "attempt"), SizeOf(event));
     }},
    {"attempt_ended",
     [](const json& event) {
       return fmt::format("attempt {} ended{}", SmallField(event, "attempt"), After(Words(event, "reason")));
     }},
    {"rank_started", [](const json&) { return std::string(); }},
    {"rank_exited", RankEnd},
    {"rank_progress", [](const json&) { return std::string(); }},
    {"first_progress",
     [](const json& event) {
       return fmt::format("first step of attempt {}, by rank {}", SmallField(event, "attempt"),
                          SmallField(event, "rank"));
     }},
    {"restart",
     [](const json& event) {
       return fmt::format("restart{}, {} left", After(Words(event, "why")), GetInt(event, "left"));
     }},
    {"stalled", [](const json& event) { return "stalled" + After(Words(event, "summary")); }},
    {"stall_over", [](const json&) { return std::string("the stall is over"); }},
    {"diagnosis",
     [](const json& event) {
       const auto about = event.find("diagnosis");
       return "diagnosis" + After(about != event.end() ? Words(*about, "cause") : "");
     }},
    {"bad_sample",
     [](const json& event) {
       return fmt::format("rank {} left out sample {} at step {}{}", SmallField(event, "rank"),
                          OneLine(GetString(event, "sample"), 100), GetInt(event, "step"), After(Words(event, "why")));
     }},
    {"signal", [](const json& event) { return fmt::format("the launcher got signal {}", GetInt(event, "signal")); }},
    {"left_running", [](const json& event) { return "processes that ranks left on " + Where(event) + " were ended"; }},
    {"tuned", [](const json& event) { return "settings of " + Where(event) + " were derived"; }},
    {"comm_ready",
     [](const json& event) {
       const std::string version = Words(event, "nccl"), warning = Words(event, "warning");
       return fmt::format("NCCL {}is up on all ranks{}", version.empty() ? "" : version + " ", After(warning));
     }},
    {"run_ended", [](const json& event) { return "run ended" + After(Words(event, "reason")); }},
};

}  // namespace

std::string EventText(const json& event) {
  const std::string type = GetString(event, "type");
  for (const EventRow& row : kEvents) {
    if (row.type == type) return row.text(event);
  }
  // A type of a later version: its name and its reason.
  std::string words = Words(event, "text");
  for (const char* key : {"why", "reason", "summary"}) {
    if (words.empty()) words = Words(event, key);
  }
  return type.empty() ? "" : OneLine(type, 60) + After(words);
}

void EventReader::Read(std::vector<EventView>* events) {
  const auto take = [&](std::string_view line) {
    const json event = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object()) return false;
    std::string text = EventText(event);
    if (text.empty()) return true;
    events->push_back({.t = GetNumber(event, "t"),
                       .type = GetString(event, "type"),
                       .attempt = SmallField(event, "attempt"),
                       .node = SmallField(event, "node"),
                       .rank = SmallField(event, "rank"),
                       .text = std::move(text)});
    if (events->size() > 2 * kMostEvents) events->erase(events->begin(), events->end() - kMostEvents);
    return true;
  };
  while (lines_.Read(take, 4u << 20)) {
  }
  if (events->size() > kMostEvents) events->erase(events->begin(), events->end() - kMostEvents);
}

}  // namespace lockstep::watch
