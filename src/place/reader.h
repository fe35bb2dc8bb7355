// The environment as the rules see it: strict numbers, blank values set aside, and a record of everything that was read
// or refused. Shared by the rule files of this folder while one placement is resolved; not used outside it, one thread.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "place/placement.h"

namespace lockstep::place {

using Names = std::vector<std::string_view>;

// A value and where it was said: "NNODES=2", "--nnodes 2".
template <typename T>
struct Said {
  T value;
  std::string source;
};

// Larger counts of nodes, ranks per node or ranks are typing errors or corrupt variables, not clusters.
inline constexpr int kMaxCount = 1 << 20;

// Digits only, no sign, within int. What a person may write around it (blanks) is accepted.
std::optional<int> ParseNumber(std::string_view text);
bool IsLoopback(std::string_view host);

class Reader {
 public:
  Reader(const Environment& env, Placement* out) : env_(env), out_(out) {}

  // The value unless unset or blank; a blank one is noted as ignored.
  std::optional<std::string> Text(std::string_view name);
  bool Has(std::string_view name) const;
  // Whether any variable of this prefix has a value; its name.
  std::optional<std::string> AnyWith(std::string_view prefix) const;
  // A count of at least `least`; anything else in the variable is corrupt and fails the placement.
  std::optional<Said<int>> Number(std::string_view name, int least);
  std::optional<Said<int>> Number(const Names& names, int least);  // the first that has a value
  // The same for what a flag overrules: a corrupt value is noted, and does not matter.
  std::optional<Said<int>> NumberUnless(bool overruled, const Names& names, int least);
  std::optional<Said<std::string>> Text(const Names& names);
  // "NAME=value", shortened and made printable.
  std::string Source(std::string_view name) const;

  void Decides(std::string source, std::string says) { Note(std::move(source), std::move(says), "decides"); }
  void Supports(std::string source, std::string says) { Note(std::move(source), std::move(says), "supports"); }
  void Contradicts(std::string source, std::string says) { Note(std::move(source), std::move(says), "contradicts"); }
  void Ignored(std::string source, std::string says) { Note(std::move(source), std::move(says), "ignored"); }
  void Warn(std::string text);
  // The first failure is the placement's error; the ones after it are kept as warnings.
  void Fail(std::string message, std::string hint);
  bool failed() const { return !out_->error.ok(); }

 private:
  void Note(std::string source, std::string says, const char* weight);

  const Environment& env_;
  Placement* out_;
  std::set<std::string, std::less<>> blanks_;
};

}  // namespace lockstep::place
