// Names inside a binary: which variables a library was built to know, and the version it prints. The file is mapped and
// searched; nothing is loaded or executed. Any thread.
//
//   Result<LibraryNames> names = NamesWithPrefix("/usr/lib/libnccl.so.2", {"NCCL_"});
//   if (names.ok() && !names->Knows("NCCL_IB_TIMEUOT")) ...
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::hardware {

// Words of capitals, digits and underscores that begin with one of the prefixes. Sorted, each once.
struct LibraryNames {
  std::vector<std::string> whole;      // a string of its own: what getenv is called with
  std::vector<std::string> mentioned;  // only inside longer text: messages

  // A string of its own, or the tail of one: linkers let "NCCL_X" share the bytes of "TORCH_NCCL_X". False is no proof:
  // a compiler may cut a literal that it copies into constants of 16 bytes, and then only pieces are there.
  bool Knows(std::string_view name) const;

  std::vector<std::string> tails;  // words that end in a prefixed name: "TORCH_NCCL_X" where NCCL_ was asked for
};

Result<LibraryNames> NamesWithPrefix(const std::string& path, const std::vector<std::string>& prefixes);

// What follows `before` in the file's constants, where a digit follows at once and a dot soon after, as long as it is
// made of `characters`: "2.28.9+cuda13.0" after "NCCL version ". The first such place counts.
std::optional<std::string> TextAfter(const std::string& path, std::string_view before, std::string_view characters);
// Digits and dots only: "2.28.9".
std::optional<std::string> VersionAfter(const std::string& path, std::string_view before);

}  // namespace lockstep::hardware
