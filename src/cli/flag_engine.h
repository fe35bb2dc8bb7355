// Splits a command line into flags, the program and the program's own arguments, the way Python's argparse does it for
// torchrun: hyphens and underscores mean the same, `--flag value` and `--flag=value`, unique prefixes of long names,
// `-r3` and `-mr 3`, and everything from the program on belongs to the program untouched.
//
// CLI11 is not used here: it has no notion of argparse's REMAINDER (a program argument named like one of our flags must
// not be taken), of unique prefixes where torchrun's names go before ours, or of a negative number as a value.
// Pure; any thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace lockstep::cli {

struct FlagSpec {
  std::string name;                  // "--nproc-per-node"
  std::vector<std::string> aliases;  // "-m", "--modules"
  bool takes_value = false;
  bool optional_value = false;  // `--flag` alone or `--flag=value`; never the next word
  // Prefixes are looked up among these first and among the others only when none of these matches, so that a flag added
  // by us never makes a torchrun command line ambiguous.
  bool first_class = false;
  bool stops = false;  // --help: what follows is not looked at
};

struct ScannedFlag {
  size_t index = 0;      // into the specs
  std::string spelling;  // as written: "--nproc"
  std::string value;
};

struct Scanned {
  std::vector<ScannedFlag> flags;  // in the order written
  std::optional<std::string> program;
  std::vector<std::string> args;  // the program's
};

// What to write instead of an unknown flag with this value (empty: none was given); empty: no idea.
using MeantInstead = std::function<std::string(const std::string& flag, const std::string& value)>;

// `args` without the command's own name. `hint` is said after every complaint: "see lockstep run --help".
Result<Scanned> ScanFlags(const std::vector<FlagSpec>& specs, const std::vector<std::string>& args,
                          const std::string& hint, const MeantInstead& meant = {});

}  // namespace lockstep::cli
