// The table of failure signatures: messages that are known, what they mean and what helps (format:
// docs/formats/signatures.md). Plain values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::diagnose {

enum class Role { kRoot, kConsequence, kTrigger, kKernel, kAdvice };
enum class Policy { kNone, kSame, kExclude, kOnce, kWait, kFix, kStop };

struct Signature {
  std::string id, domain;
  Role role = Role::kRoot;
  int weight = 0;
  std::string regex, cause, remedy;
  Policy policy = Policy::kNone;
  std::string sample, source;
  std::vector<std::string> over;  // ids this row beats on a line
};

// Rows of a table; `source` names it in errors.
Result<std::vector<Signature>> ParseSignatures(std::string_view text, const std::string& source);

// The table that is part of the program.
std::string_view EmbeddedSignatureText();

// The embedded rows, then those of the user's configuration, of LOCKSTEP_SIGNATURES and of `file` (empty: none). A row
// with a known id replaces the earlier one.
Result<std::vector<Signature>> LoadSignatures(const std::string& file);

}  // namespace lockstep::diagnose
