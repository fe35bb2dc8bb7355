// Sizes and durations with units, as flags and config values write them: "25MiB", "100MB", "1h30m", "250ms".
// Parsing is exact (no floating point) and strict; Exact* write text that parses back to the same value.
// Pure functions, any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace lockstep {

inline constexpr uint64_t kMiB = 1ull << 20, kGiB = 1ull << 30;

// Bytes from "512", "25MiB", "100MB", "1.5GiB", "5e8". B, KB, MB, GB, TB, PB count in thousands, KiB ... PiB in 1024s.
// A fraction that is no whole byte is rounded down. Bare K, M, G and bits are refused, because they are ambiguous.
Result<uint64_t> ParseSize(std::string_view text);

enum class BareNumber { kRefuse, kSeconds };

// "30s", "5m", "1h30m", "2d", "250ms", "2.5s"; units in falling order, each once. A number without a unit is an error
// unless the caller's flag or key already says seconds. Fractions below a millisecond are refused.
Result<std::chrono::milliseconds> ParseDuration(std::string_view text, BareNumber bare = BareNumber::kRefuse);

// For people: "512 B", "25.0 MiB", "1.5 GiB".
std::string FormatSize(uint64_t bytes);
// For people: "250ms", "3.2s", "5m07s", "1h02m", "2d03h".
std::string FormatDuration(std::chrono::milliseconds duration);

// For files: the largest unit that loses nothing. "25MiB", "100000001B"; "1h30m", "1m250ms", "0s".
std::string ExactSize(uint64_t bytes);
std::string ExactDuration(std::chrono::milliseconds duration);

}  // namespace lockstep
