// Every message that crosses between launchers, as a struct: the page docs/formats/rendezvous.md in code. Each struct
// names its fields once, in Each(); sending, strict parsing and the list that a test compares with the page follow from
// that. A field that is missing or of another type is an error that names message, field, expected, found and peer;
// fields that a struct does not know are ignored. Pure functions, plain values.
//
//   connection.Send(ToJson(message::Stop{SIGTERM, Millis(15000), "a rank failed"}));
//
//   Receiver on(message, "node 0");
//   on.Case<message::Stop>([&](const message::Stop& stop) { ... });
//   if (!on.status().ok()) ...
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "launch/fields.h"
#include "launch/participant.h"
#include "launch/run_outcome.h"
#include "launch/stall.h"
#include "logs/log_excerpt.h"

namespace lockstep::launch {
namespace message {

// ---- introduction -------------------------------------------------------------------------------------------------

struct Challenge {
  static constexpr const char* kType = "challenge";
  int protocol = kProtocol;
  std::string version, nonce;
  LOCKSTEP_FIELDS(visit("protocol", self.protocol), visit("version", self.version), visit("nonce", self.nonce))
};

struct Hello {
  static constexpr const char* kType = "hello";
  std::string nonce, claims;  // claims: a Participant as JSON text, so that its proof covers these very bytes
  bool has_token = false;
  std::string proof;
  LOCKSTEP_FIELDS(visit("nonce", self.nonce), visit("claims", self.claims), visit("has_token", self.has_token),
                  visit("proof", self.proof))
};

struct Welcome {
  static constexpr const char* kType = "welcome";
  std::string proof;
  LOCKSTEP_FIELDS(visit("proof", self.proof))
};

struct Refuse {
  static constexpr const char* kType = "refuse";
  std::string why, hint;
  LOCKSTEP_FIELDS(visit("why", self.why), visit("hint", self.hint))
};

// ---- both sides ---------------------------------------------------------------------------------------------------

struct Ping {
  static constexpr const char* kType = "ping";
  LOCKSTEP_FIELDS()
};

// ---- from the coordinator -----------------------------------------------------------------------------------------

struct Waiting {
  static constexpr const char* kType = "waiting";
  int joined = 0, count = 0;
  std::string missing;
  LOCKSTEP_FIELDS(visit("joined", self.joined), visit("count", self.count), visit("missing", self.missing))
  std::string Text() const;  // for the status line of who waits
};

struct Go {
  static constexpr const char* kType = "go";
  int attempt = 0, restarts = 0, max_restarts = 0;
  std::string run_name, run_id;
  int node = 0, nnodes = 1;
  int rank_base = 0, local_rank = 0, local_world = 1;
  int host_base = 0, host_ranks = 0;
  int world = 1;
  std::string master_addr;
  int master_port = 0;
  bool agent_store = false;
  std::string peer;
  Millis pulse{0};
  LOCKSTEP_FIELDS(visit("attempt", self.attempt), visit("restarts", self.restarts),
                  visit("max_restarts", self.max_restarts), visit("run_name", self.run_name),
                  visit("run_id", self.run_id), visit("node", self.node), visit("nnodes", self.nnodes),
                  visit("rank_base", self.rank_base), visit("local_rank", self.local_rank),
                  visit("local_world", self.local_world), visit("host_base", self.host_base),
                  visit("host_ranks", self.host_ranks), visit("world", self.world),
                  visit("master_addr", self.master_addr), visit("master_port", self.master_port, Range{0, 65535}),
                  visit("agent_store", self.agent_store), visit("peer", self.peer), visit("pulse_ms", self.pulse))
};

struct Stop {
  static constexpr const char* kType = "stop";
  int signal = 0;
  Millis grace{0};
  std::string why;
  LOCKSTEP_FIELDS(visit("signal", self.signal, kSignals), visit("grace_ms", self.grace), visit("why", self.why))
};

struct StacksQuestion {
  static constexpr const char* kType = "stacks";
  int64_t id = 0;
  bool pause = false;
  Millis limit{0};
  LOCKSTEP_FIELDS(visit("id", self.id), visit("pause", self.pause), visit("limit_ms", self.limit))
};

struct Finish {
  static constexpr const char* kType = "finish";
  int exit_code = 0;
  std::string reason, hint;
  bool discard = false;
  std::optional<RankExit> failure;
  LOCKSTEP_FIELDS(visit("exit_code", self.exit_code, Range{0, 255}), visit("reason", self.reason),
                  visit("hint", self.hint), visit("discard", self.discard), visit("failure", self.failure))
};

// ---- from an agent ------------------------------------------------------------------------------------------------

struct Started {
  static constexpr const char* kType = "started";
  LOCKSTEP_FIELDS()
};

struct StartFailed {
  static constexpr const char* kType = "start_failed";
  std::string why, hint;
  LOCKSTEP_FIELDS(visit("why", self.why), visit("hint", self.hint))
};

struct Progress {
  static constexpr const char* kType = "progress";
  int rank = 0;
  LOCKSTEP_FIELDS(visit("rank", self.rank))
};

struct Comm {
  static constexpr const char* kType = "comm";
  int node = 0;
  bool rdma_active = false;
  std::vector<Json> ranks;  // diagnose::Transport
  LOCKSTEP_FIELDS(visit("node", self.node), visit("rdma_active", self.rdma_active), visit("ranks", self.ranks))
};

struct Pulse {
  static constexpr const char* kType = "pulse";
  int attempt = 0;
  std::vector<RankPulse> ranks;
  LOCKSTEP_FIELDS(visit("attempt", self.attempt), visit("ranks", self.ranks))
};

struct Sample {
  static constexpr const char* kType = "sample";
  Json sample;  // record::NodeSample
  LOCKSTEP_FIELDS(visit("sample", self.sample))
};

struct Stacks {
  static constexpr const char* kType = "stacks";
  int64_t id = 0;
  std::vector<Json> ranks;  // hang::ProcessStacks
  std::map<int, std::string> collectives;
  std::string ras, error;
  LOCKSTEP_FIELDS(visit("id", self.id), visit("ranks", self.ranks), visit("collectives", self.collectives),
                  visit("ras", self.ras), visit("error", self.error))
};

struct Exit {
  static constexpr const char* kType = "exit";
  RankEnd end;
  LOCKSTEP_FIELDS(RankEnd::Each(self.end, visit))
};

// What a node knows of a rank that failed.
struct RankDetail {
  int rank = 0;
  RankFindings findings;
  logs::LogExcerpt excerpt;  // an empty text: none
  LOCKSTEP_FIELDS(visit("rank", self.rank), RankFindings::Each(self.findings, visit), visit("text", self.excerpt.text),
                  visit("first_line", self.excerpt.first_line), visit("earlier", self.excerpt.earlier),
                  visit("earlier_line", self.excerpt.earlier_line))
};

// A process that outlived its rank.
struct LeftProcess {
  int rank = -1;
  int64_t pid = 0;
  std::string command;
  LOCKSTEP_FIELDS(visit("rank", self.rank), visit("pid", self.pid), visit("command", self.command))
};

struct Stopped {
  static constexpr const char* kType = "stopped";
  std::vector<RankDetail> details;
  std::string stuck;
  std::vector<LeftProcess> left;
  LOCKSTEP_FIELDS(visit("details", self.details), visit("stuck", self.stuck), visit("left", self.left))
};

struct StopRequest {
  static constexpr const char* kType = "stop_request";
  int signal = 0;
  bool now = false;
  LOCKSTEP_FIELDS(visit("signal", self.signal, kSignals), visit("now", self.now))
};

// ---- launcher groups (launcher_group.h)
// ---------------------------------------------------------------------------------------------------

struct Assigned {
  static constexpr const char* kType = "seated";
  int index = 0;
  LOCKSTEP_FIELDS(visit("index", self.index, Range{0, Participant::kMostParticipants}))
};

struct ClockQuestion {
  static constexpr const char* kType = "clock";
  int n = 0;
  LOCKSTEP_FIELDS(visit("n", self.n))
};

struct Round {
  static constexpr const char* kType = "round";
  int n = 0;
  Json document;
  LOCKSTEP_FIELDS(visit("n", self.n), visit("document", self.document))
};

struct Over {
  static constexpr const char* kType = "over";
  std::string why, hint;
  int code = static_cast<int>(Code::kRendezvous);
  LOCKSTEP_FIELDS(visit("why", self.why), visit("hint", self.hint),
                  visit("code", self.code, Range{1, static_cast<int>(Code::kInternal)}))
};

struct Document {
  static constexpr const char* kType = "document";
  int n = 0;
  Json document;
  LOCKSTEP_FIELDS(visit("n", self.n), visit("document", self.document))
};

struct ClockAnswer {
  static constexpr const char* kType = "clock";
  int n = 0;
  double time = 0;
  LOCKSTEP_FIELDS(visit("n", self.n), visit("time", self.time))
};

// ---- from `lockstep doctor hang`, on the launcher's own machine -----------------------------------------------------

struct Inspect {
  static constexpr const char* kType = "stacks";
  bool pause = false, keep = false;
  LOCKSTEP_FIELDS(visit("pause", self.pause), visit("keep", self.keep))
};

}  // namespace message

// Defined for every struct above and for Participant, RankExit and RankPulse. A message carries its "type".
template <typename M>
Json ToJson(const M& value);

// `peer` is who sent it, for the error.
template <typename M>
Result<M> Parse(const Json& json, const std::string& peer);

inline std::string TypeOf(const Json& message) { return GetString(message, "type"); }

// Picks the case of one message's type and parses it. A type without a case is ignored: status() is ok.
class Receiver {
 public:
  Receiver(const Json& message, std::string peer) : message_(message), peer_(std::move(peer)), type_(TypeOf(message)) {}

  template <typename M, typename Handle>
  void Case(const Handle& handle) {
    if (taken_ || type_ != M::kType) return;
    taken_ = true;
    Result<M> parsed = Parse<M>(message_, peer_);
    status_ = parsed.status();
    if (parsed.ok()) handle(*parsed);
  }
  bool taken() const { return taken_; }
  const Status& status() const { return status_; }

 private:
  const Json& message_;
  std::string peer_, type_;
  bool taken_ = false;
  Status status_;
};

// A struct as the page lists it: "go", {"attempt: integer", ...}. Objects inside messages have a name of their own.
struct MessageFields {
  std::string name;
  std::vector<std::string> fields;
};
std::vector<MessageFields> ListMessages();

}  // namespace lockstep::launch
