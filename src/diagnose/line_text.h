// Small questions about the text of a log line. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/digits.h"

namespace lockstep::diagnose {

inline constexpr size_t kMaxText = 600;  // bytes of a line that a finding keeps

inline bool Has(std::string_view text, std::string_view what) { return text.find(what) != std::string_view::npos; }

// A letter, digit or underscore: what names in programs are made of.
inline bool IsWord(char c) { return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

}  // namespace lockstep::diagnose
