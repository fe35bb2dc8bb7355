// What is known about environment variables of NCCL, PyTorch, Gloo, CUDA and related libraries: a table in the program
// (docs/formats/lint-rules.md), made from the sources and binaries of every release. Immutable, read once. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::lint {

struct Variable {
  std::string name;   // a trailing '*': every name that begins so
  std::string owner;  // "nccl", "nccl-plugin", "torch", "gloo", "cuda", ...
  std::string type;   // "int", "size", "bool", "torch-bool", "enum", "subsys", "level", "list", "path", "omp", "string"
  std::string range;  // "0..31", "1.."; the words of an enum
  std::string fallback;      // the default; empty: none or computed
  std::string since, until;  // versions of the owner; empty: open
  std::string status;        // "current", "renamed:NEW", "removed", "never"
  std::string note;

  std::string NewName() const { return status.rfind("renamed:", 0) == 0 ? status.substr(8) : ""; }
};

class Variables {
 public:
  static const Variables& Table();
  static Result<Variables> Parse(std::string_view text);

  // The row of this name, a row of its beginning ("NCCL_OFI_*") else; null: none.
  const Variable* Find(std::string_view name) const;
  // Whether the table claims to know every name with this one's beginning.
  static bool Complete(std::string_view name);
  // The known name a misspelt one most likely meant.
  std::optional<std::string> Meant(std::string_view name) const;
  const std::vector<Variable>& rows() const { return rows_; }

 private:
  std::vector<Variable> rows_;
};

// -1, 0, 1 by the numbers of a dotted version; missing parts count as 0.
int CompareVersions(std::string_view a, std::string_view b);

}  // namespace lockstep::lint
