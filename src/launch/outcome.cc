#include "launch/outcome.h"

#include <fmt/format.h>

#include "base/process.h"

namespace lockstep::launch {

std::string RankExit::Describe() const { return DescribeExit(ExitStatus{code, signal, core_dumped}); }

std::string FailureReason(const RankExit& exit, int world) {
  return fmt::format("rank {} on node {} ({}) failed{}: {}", exit.rank, exit.node, exit.host, world > 1 ? " first" : "",
                     exit.Describe());
}

Json RankExit::ToJson() const {
  return Json{{"rank", rank},
              {"local_rank", local_rank},
              {"node", node},
              {"host", host},
              {"pid", pid},
              {"exit_code", code},
              {"signal", signal},
              {"core_dumped", core_dumped},
              {"after_stop", after_stop},
              {"killed", killed},
              {"uptime", uptime},
              {"error_time", error_time},
              {"error_message", error_message},
              {"error_detail", error_detail},
              {"error_hint", error_hint},
              {"step", step ? Json(*step) : Json()},
              {"refused", refused},
              {"evidence", evidence},
              {"tail", tail},
              {"log", log}};
}

RankExit RankExit::FromJson(const Json& json) {
  RankExit exit;
  const auto number = [&](const char* key) { return static_cast<int>(Number(json, key)); };
  const auto real = [&](const char* key) {
    auto it = json.find(key);
    return it != json.end() && it->is_number() ? it->get<double>() : 0.0;
  };
  exit.rank = number("rank");
  exit.local_rank = number("local_rank");
  exit.node = number("node");
  exit.host = Text(json, "host");
  exit.pid = Number(json, "pid");
  exit.code = number("exit_code");
  exit.signal = number("signal");
  exit.core_dumped = Flag(json, "core_dumped");
  exit.after_stop = Flag(json, "after_stop");
  exit.killed = Flag(json, "killed");
  exit.uptime = real("uptime");
  exit.error_time = real("error_time");
  exit.error_message = Text(json, "error_message");
  exit.error_detail = Text(json, "error_detail");
  exit.error_hint = Text(json, "error_hint");
  if (auto it = json.find("step"); it != json.end() && it->is_number_integer()) exit.step = it->get<int64_t>();
  exit.refused = Flag(json, "refused");
  exit.evidence = Text(json, "evidence");
  exit.tail = Text(json, "tail");
  exit.log = Text(json, "log");
  return exit;
}

}  // namespace lockstep::launch
