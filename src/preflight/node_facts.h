// What one node tells the others about itself, and what it found out about them. Plain values with their JSON form,
// which crosses the rendezvous; a damaged or foreign document gives defaults, never an exception. Any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "preflight/check.h"
#include "preflight/digest.h"
#include "preflight/probe.h"

namespace lockstep::preflight {

struct Tree {
  std::string path, digest, commit;
  uint64_t files = 0;
  bool cut = false;
  std::string trouble;                         // why there is no digest
  std::map<std::string, std::string> entries;  // sent only when asked for
};

struct Network {
  std::string address, interface;  // where others reach it
  std::vector<std::string> addresses;
  int mtu = 0;      // of that interface; 0: unknown
  double gbit = 0;  // 0: unknown
  Target probe;
};

struct NodeFacts {
  std::string host, boot_id;
  std::vector<CheckResult> checks;
  std::vector<std::pair<std::string, std::string>> gpus;  // visible: UUID, model
  std::string fabric;                                     // NVLink domain over nodes; empty: none
  std::map<std::string, std::string> software;            // "PyTorch" -> "2.13.0"
  std::map<std::string, std::string> env;
  std::map<std::string, Tree> trees;  // "code", "config:/path", "data:/path"
  Network net;

  Json ToJson(bool entries = false) const;
  static NodeFacts FromJson(const Json& json);
};

// One node's look at another.
struct Lookup {
  int node = -1;
  State state = State::kOk;
  std::string text;
};

struct Findings {
  std::vector<Reached> reached;
  std::vector<Lookup> names;
  std::map<std::string, Tree> trees;  // with entries, those that differ

  Json ToJson() const;
  static Findings FromJson(const Json& json);
};

struct PairRate {
  int from = -1, to = -1;
  double bits = 0;
  std::string trouble;
};

// Variables that decide how ranks speak to each other or to their libraries.
std::map<std::string, std::string> KeyEnvironment(const Environment& env);

}  // namespace lockstep::preflight
