// The flags of `lockstep run` as rows of data: name, other spellings, PET variable, help, what becomes of it compared
// to torchrun, and what it sets. run_flags.cc reads the rows; docs/torchrun-flags.md repeats their status and reason
// and a test compares the two. Immutable; any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_flags.h"

namespace lockstep::cli {

enum class Torchrun {
  kHonoured,  // means what it means to torchrun
  kMapped,    // accepted; served in another way, or needs no serving
  kRefused,   // an error that says why
  kOurs,      // unknown to torchrun
};

// What the flags said, before they are checked against each other.
struct Draft {
  RunFlags flags;
  std::optional<launch::Bind> bind, numa_binding;
  std::optional<std::chrono::milliseconds> grace, shutdown_timeout, join_timeout;
  bool any_master_port = false;  // --master-port 0: take a free one
};

struct FlagRow {
  const char* name;
  std::vector<std::string> aliases;
  const char* value;  // what to write for the value; nullptr for a switch; "[=a|b]" when it may be left out
  const char* pet;    // the variable that gives the default; nullptr when there is none
  const char* group;  // heading in the help; nullptr hides the flag
  Torchrun torchrun;
  const char* reason;  // for the table of torchrun's flags: how it is served, or why not
  const char* help;
  Status (*set)(const std::string& value, Draft* draft);  // for a switch the value is "1" or, from PET, "0"
  bool explain_only = false;
};

const std::vector<FlagRow>& RunFlagTable();

const char* Name(Torchrun status);  // "honoured" | "mapped" | "refused" | "ours"

}  // namespace lockstep::cli
