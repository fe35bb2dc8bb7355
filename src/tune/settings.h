// NCCL, Gloo and torch settings from the hardware: as few as possible, each with its reason. Pure functions over plain
// values; only ConfFileSettings reads files. Any thread; every node derives its own.
//
//   Settings settings = Derive(here, {.nnodes = 2, .peers = {"10.0.0.1"}}, env);
//   for (const Setting& s : settings.set) if (s.applies()) Export(s.name, s.value);
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hardware/hardware.h"

namespace lockstep::tune {

enum class Confidence { kCertain, kLikely, kGuess };

struct Setting {
  std::string name, value;
  std::string because;  // the reason, with what was seen: "the route to 10.0.0.1 leaves by bond0"
  Confidence confidence = Confidence::kGuess;
  std::optional<std::string> user_value;  // the user's own, which wins

  // Set without being asked: certain, and nobody chose otherwise.
  bool applies() const { return confidence == Confidence::kCertain && !user_value; }
  bool differs() const { return user_value && *user_value != value; }
};

// What was left alone on purpose, and why the default is right.
struct LeftAlone {
  std::string name, because;
};

struct JobShape {
  int nnodes = 1;
  int nproc_per_node = 1;
  std::vector<std::string> peers;  // numeric addresses of the other nodes or of the master; empty: unknown
  bool gpus = true;                // ranks use GPUs, and so NCCL
  // What this host's own name resolves to (numeric); empty: it does not resolve; nothing: not asked.
  std::optional<std::vector<std::string>> own_addresses;
  std::string job_id;   // what is per job is derived from it; empty: nothing is
  std::string log_dir;  // where dumps go; empty: PyTorch's own place
  int threads = 0;      // for OMP_NUM_THREADS; 0: somebody else decides
};

struct Settings {
  std::vector<Setting> set;
  std::vector<LeftAlone> left;
  std::vector<std::string> warnings;  // what the hardware says that no setting mends: "3 of 8 HCA ports are down"
};

Settings Derive(const hardware::Hardware& here, const JobShape& job, const Environment& user);

// RDMA ports that are not active and look as if they should be: not the second port of a card where no card uses it,
// and where cards sit beside the GPUs only those.
std::vector<const hardware::IbPort*> MissedPorts(const hardware::Hardware& here);

// The RDMA ports that are to carry the data: the fastest kind, without storage's.
std::vector<const hardware::IbPort*> DataPorts(const hardware::Hardware& here);

// The variables NCCL takes from ~/.nccl.conf (or NCCL_CONF_FILE) and /etc/nccl.conf: somebody's settings as much as the
// environment is, which wins over them. `root` is "" but in tests.
Environment ConfFileSettings(const Environment& env, const std::string& root = "");

// {2, 21} of "2.21.5"; nothing when it does not begin with two numbers.
std::optional<std::pair<int, int>> MajorMinor(const std::string& version);

const char* Name(Confidence confidence);

// A table people can read at a glance.
std::string ToText(const Settings& settings, bool colour);
// `export NAME=VALUE` lines of what applies, for eval in a shell.
std::string ToShell(const Settings& settings);
// At most a line for each difference to the user's settings and one for what was not applied; for the start of a run.
std::vector<std::string> StartLines(const Settings& settings);

nlohmann::json ToJson(const Settings& settings);

}  // namespace lockstep::tune
