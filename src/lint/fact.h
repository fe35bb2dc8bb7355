// What a reader saw in a file, in one shape for all kinds of files, so that rules need not know where a thing was
// written: a variable with its value, a flag of a command, a key of a configuration, an argument of a Python call, the
// text of a comment, or a shape of the whole (named by the reader that recognised it). Plain values. Any thread.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::lint {

// An arm of an if, case or else; two facts in different arms of one construct never hold together.
struct Branch {
  int construct = 0, arm = 0;
  bool operator==(const Branch&) const = default;
};

struct Fact {
  std::string kind;       // "variable", "flag", "key", "call", "command", "comment", "shape"
  std::string name;       // "NCCL_DEBUG"; "torchrun --nnodes" (dashes for underscores); "zero_optimization.stage"; ...
  std::string value;      // as the program would receive it
  bool known = true;      // false: computed when it runs; `value` is then the text as written
  bool lasting = true;    // false: for one command only (A=1 command)
  bool fallback = false;  // the default of ${NAME:-value}: what is set when the user sets nothing
  bool exported = true;   // false: a variable of the script that programs do not see
  bool used = false;      // the script reads the variable itself: it may be its own
  bool launched = false;  // a flag of something that is started once per rank
  int line = 0, column = 0;
  int command = 0;     // of one script: facts of the same command share it
  int ends = 0;        // the line from which on it holds no more: unset, or set anew
  std::string detail;  // more words for the message
  std::vector<Branch> branches;
};

// Facts that belong together: a script, a code block, a container.
struct Unit {
  std::string
      dialect;  // "environment", "script", "sbatch", "manifest", "dockerfile", "conf", "config", "python", "text"
  std::vector<Fact> facts;
  std::set<std::string> used;  // variables that are read here
};

// Whether both can hold in one run.
inline bool Together(const Fact& a, const Fact& b) {
  auto passing = [](const Fact& fact) { return fact.kind == "variable" && !fact.lasting; };
  const bool apart = a.command != 0 && b.command != 0 && a.command != b.command;
  if (apart && (passing(a) || passing(b))) return false;
  if ((a.ends > 0 && b.line >= a.ends) || (b.ends > 0 && a.line >= b.ends)) return false;
  for (const Branch& x : a.branches) {
    for (const Branch& y : b.branches) {
      if (x.construct == y.construct && x.arm != y.arm) return false;
    }
  }
  return true;
}

}  // namespace lockstep::lint
