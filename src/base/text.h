// Small operations on text: splitting, quoting for a shell, and finding what a misspelt name meant.
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Steps from one word to the other: insert, delete, replace, or swap two neighbours.
int EditDistance(std::string_view a, std::string_view b);

// The candidate a misspelt name most likely meant, if one is near enough to be worth saying. '-' and '_' and case count
// as equal at first.
std::optional<std::string> Nearest(std::string_view name, const std::vector<std::string>& candidates);

// " (did you mean 'x'?)" or "".
std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates);

// Every field, also empty ones: Split("a,,b", ',') has three.
std::vector<std::string> Split(std::string_view text, char separator);
std::string_view Trim(std::string_view text);
std::string Join(const std::vector<std::string>& parts, std::string_view separator);

// "1 rank", "3 ranks"; `many` where the plural is no plain s.
std::string Count(int64_t number, std::string_view noun, std::string_view many = "");

// The word as a POSIX shell reads it back: plain where possible, else in single quotes.
std::string ShellQuote(std::string_view word);
std::string ShellQuote(const std::vector<std::string>& words);

// Control bytes and invalid UTF-8 made visible (\n, \x1b), so that foreign text cannot drive a terminal.
std::string Printable(std::string_view text, size_t max_bytes = 200);

bool IsUtf8(std::string_view text);
// The same text with every byte that is not part of valid UTF-8 replaced by U+FFFD, and NUL by a blank.
std::string ValidUtf8(std::string_view text);

// Whether text for this descriptor may be coloured: a terminal, not TERM=dumb, and NO_COLOR unset.
bool UseColour(int fd);

}  // namespace lockstep
