#include "cli/run_flag_setters.h"

#include <fmt/format.h>

#include <climits>

#include "base/text.h"
#include "launch/worker_env.h"
#include "record/run_dir.h"

namespace lockstep::cli {

Status Choose(const std::string& text, const std::vector<std::string>& choices) {
  for (const std::string& choice : choices) {
    if (text == choice) return Status::Ok();
  }
  return Status(Code::kUsage, fmt::format("expected {}, found '{}'{}", Join(choices, ", "), Printable(text),
                                          DidYouMean(text, choices)));
}

Status NotEmpty(const std::string& text, std::string* slot) {
  if (text.empty()) return Status(Code::kUsage, "expected a value, found nothing");
  *slot = text;
  return Status::Ok();
}

Status SetTune(const std::string& text, Draft* draft) {
  LOCKSTEP_RETURN_IF_ERROR(Choose(text, {"off", "report", "apply"}));
  draft->flags.options.tune = text == "off"      ? launch::Tune::kOff
                              : text == "report" ? launch::Tune::kReport
                                                 : launch::Tune::kApply;
  return Status::Ok();
}

Status SetAgentStore(const std::string& text, Draft* draft) {
  LOCKSTEP_RETURN_IF_ERROR(Choose(text, {"auto", "on", "off"}));
  draft->flags.options.agent_store = text == "auto" ? launch::AgentStore::kAuto
                                     : text == "on" ? launch::AgentStore::kOn
                                                    : launch::AgentStore::kOff;
  return Status::Ok();
}

Status SetStallTimeout(const std::string& text, Draft* draft) {
  using Mode = launch::StallLimit::Mode;
  launch::StallLimit& stall = draft->flags.options.stall;
  if (text == "off" || text == "auto") {
    stall = {text == "off" ? Mode::kOff : Mode::kWarn, std::chrono::milliseconds(0)};
    return Status::Ok();
  }
  const auto value = ParseDuration(text, BareNumber::kSeconds);
  if (!value.ok()) {
    return Status(Code::kUsage,
                  fmt::format("expected off, auto or a duration such as 10m, found '{}'", Printable(text)));
  }
  if (*value < std::chrono::seconds(1)) {
    return Status(Code::kUsage, "expected at least 1s: progress is looked at once a second", "off switches it off");
  }
  stall = {Mode::kStop, *value};
  return Status::Ok();
}

Status SetSampleEvery(const std::string& text, Draft* draft) {
  std::chrono::milliseconds& every = draft->flags.options.sample_every;
  if (text == "off" || text == "0") {
    every = std::chrono::milliseconds(0);
    return Status::Ok();
  }
  const auto value = ParseDuration(text, BareNumber::kSeconds);
  if (!value.ok() || *value < std::chrono::milliseconds(100)) {
    return Status(Code::kUsage,
                  fmt::format("expected off or a duration of at least 100ms, found '{}'", Printable(text)));
  }
  every = *value;
  return Status::Ok();
}

Status SetBackend(const std::string& text, Draft* draft) {
  if (text.starts_with("etcd")) {
    return Status(Code::kUsage,
                  fmt::format("{} is not supported: the launchers have a rendezvous of their own and need no store",
                              Printable(text)),
                  "drop it and give --rdzv-endpoint HOST:PORT of node 0, or --master-addr and --master-port");
  }
  LOCKSTEP_RETURN_IF_ERROR(Choose(text, {"static", "c10d"}));
  draft->flags.options.place.rdzv_backend = text;
  return Status::Ok();
}

Status SetRendezvousConf(const std::string& text, Draft* draft) {
  LOCKSTEP_RETURN_IF_ERROR(Put(ParseRendezvousConf(text), &draft->flags.options.rdzv_conf));
  static const std::vector<std::string> no_effect = {
      "last_call_timeout",      "close_timeout", "heartbeat_timeout", "read_timeout", "keep_alive_interval",
      "keep_alive_max_attempt", "rank",          "min_nodes",         "max_nodes"};
  for (const auto& [key, value] : draft->flags.options.rdzv_conf) {
    if (key == "join_timeout" || key == "timeout") {
      const Result<long> seconds = ParseCount(value, "seconds", 1, INT_MAX / 1000);
      if (!seconds.ok()) return seconds.status().Context(key);
    } else if (key == "is_host") {
      LOCKSTEP_RETURN_IF_ERROR(
          Choose(value, {"1", "0", "true", "false", "True", "False", "t", "f", "yes", "no", "y", "n"})
              .Context("is_host"));
    } else if (key == "store_type") {
      LOCKSTEP_RETURN_IF_ERROR(
          Choose(value, {"tcp"}).Context("store_type").WithHint("the rendezvous is over TCP; drop it"));
    } else if (std::find(no_effect.begin(), no_effect.end(), key) != no_effect.end()) {
      draft->flags.warnings.push_back(fmt::format("--rdzv-conf {} has no effect here", key));
    } else {
      std::vector<std::string> known = no_effect;
      known.insert(known.end(), {"join_timeout", "timeout", "is_host", "store_type"});
      draft->flags.warnings.push_back(
          fmt::format("--rdzv-conf {} is not known{}; ignored", Printable(key), DidYouMean(key, known)));
    }
  }
  return Status::Ok();
}

Status SetMasterAddr(const std::string& text, Draft* draft) {
  std::string host = text;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const bool bare_ipv6 = std::count(host.begin(), host.end(), ':') > 1;
  const Result<std::string> checked = ParseEndpoint(bare_ipv6 ? "[" + host + "]" : host);
  if (!checked.ok() || (!bare_ipv6 && host.find(':') != std::string::npos)) {
    return Status(Code::kUsage, fmt::format("expected a host name or address, found '{}'", Printable(text)),
                  "the port goes into --master-port");
  }
  draft->flags.options.place.master_addr = host;
  return Status::Ok();
}

Status SetMasterPort(const std::string& text, Draft* draft) {
  int port = 0;
  LOCKSTEP_RETURN_IF_ERROR(PutCount(text, "a port", 0, 65535, &port));
  draft->any_master_port = port == 0;
  draft->flags.options.place.master_port = port == 0 ? std::optional<int>() : port;
  return Status::Ok();
}

Status SetNumaBinding(const std::string& text, Draft* draft) {
  LOCKSTEP_RETURN_IF_ERROR(Choose(text, {"node", "socket", "exclusive", "core-complex"}));
  using launch::Bind;
  draft->numa_binding = text == "node"        ? Bind::kNuma
                        : text == "socket"    ? Bind::kSocket
                        : text == "exclusive" ? Bind::kCores
                                              : Bind::kComplex;
  return Status::Ok();
}

Status SetBind(const std::string& text, Draft* draft) {
  LOCKSTEP_RETURN_IF_ERROR(Choose(text, {"none", "numa", "cores", "socket", "complex"}));
  using launch::Bind;
  draft->bind = text == "none"     ? Bind::kNone
                : text == "numa"   ? Bind::kNuma
                : text == "cores"  ? Bind::kCores
                : text == "socket" ? Bind::kSocket
                                   : Bind::kComplex;
  return Status::Ok();
}

Status SetEventHandler(const std::string& text, Draft* draft) {
  if (text == "null") return Status::Ok();
  if (text == "console") {
    draft->flags.warnings.push_back("--event-log-handler console: events are written to events.jsonl of the run");
    return Status::Ok();
  }
  return Status(Code::kUsage, fmt::format("handler '{}' is registered in Python and cannot be called", Printable(text)),
                "drop it: every event is a line of events.jsonl in the run directory");
}

Status AddEnv(const std::string& text, Draft* draft) {
  const auto pair = ParseAssignment(text);
  if (!pair.ok()) return pair.status();
  LOCKSTEP_RETURN_IF_ERROR(launch::CheckUserVariable(pair->first));
  draft->flags.options.env.push_back(*pair);
  return Status::Ok();
}

Status AddModules(const std::string& text, Draft* draft) {
  for (const std::string& part : Split(text, ',')) {
    const std::string name(Trim(part));
    if (name.empty() || name[0] == '-') {
      return Status(Code::kUsage,
                    fmt::format("expected module names like cuda/12.4,gcc/13, found '{}'", Printable(text)));
    }
    draft->flags.options.modules.push_back(name);
  }
  return Status::Ok();
}

Status SetLevel(const std::string& text, Draft* draft) {
  LOCKSTEP_RETURN_IF_ERROR(Choose(text, {"node", "process"}));
  draft->flags.options.place.level = text == "node" ? place::Level::kNode : place::Level::kProcess;
  return Status::Ok();
}

Status SetName(const std::string& text, Draft* draft) {
  LOCKSTEP_RETURN_IF_ERROR(record::CheckRunName(text).WithCode(Code::kUsage));
  draft->flags.options.name = text;
  return Status::Ok();
}

Status SetPreflight(const std::string& text, Draft* draft) {
  const std::string value = text.empty() ? "standard" : text;
  LOCKSTEP_RETURN_IF_ERROR(Choose(value, {"standard", "full"}));
  draft->flags.options.preflight = value;
  return Status::Ok();
}

Status SetShutdownTimeout(const std::string& text, Draft* draft) {
  int seconds = 0;
  LOCKSTEP_RETURN_IF_ERROR(PutCount(text, "seconds", 0, INT_MAX / 1000, &seconds));
  draft->shutdown_timeout = std::chrono::seconds(seconds);
  return Status::Ok();
}

Status RefuseDuplicates(const std::string& text, Draft*) {
  if (text.empty()) return Status::Ok();  // an empty list asks for nothing
  return Status(Code::kUsage, "filtered copies of a log are not written",
                "every rank has a log file of its own; filter it with grep");
}

Status RefuseToken(const std::string&, Draft*) {
  return Status(Code::kUsage, "a token on the command line can be read by everyone on this machine (ps, /proc)",
                "put it into a file (--token-file FILE) or into the environment (LOCKSTEP_TOKEN)");
}

}  // namespace lockstep::cli
