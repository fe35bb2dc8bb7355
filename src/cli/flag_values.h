// Texts of flag values turned into typed values: counts with bounds, stream sets, rank lists, port ranges, signals,
// endpoints. Each says what was expected and what was found; the caller adds which flag it was. Pure; any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "launch/options.h"

namespace lockstep::cli {

// Limits a real job stays below; beyond them a number is a mistake.
inline constexpr long kMaxNodes = 100000;
inline constexpr long kMaxRanksPerNode = 4096;
inline constexpr long kMaxRanks = 999999;

// Any Python-int spelling of a decimal number ("8", " 8", "+8"), within [low, high].
Result<long> ParseCount(const std::string& text, const std::string& what, long low, long high);

// "4", "4:4". MIN:MAX with MIN < MAX is refused: the gang has one size.
Result<int> ParseNodes(const std::string& text);
// A number, or auto | gpu | cpu.
Result<std::string> ParseRanksPerNode(const std::string& text);

Result<double> ParsePositive(const std::string& text);
// PET_* switches: torchrun reads bool(int(value)).
Result<bool> ParseSwitch(const std::string& text);

Result<launch::StreamSet> ParseStreams(const std::string& text);               // "3", "0:1,1:3"
Result<std::vector<int>> ParseRankList(const std::string& text, bool ranges);  // "0,2" and, with ranges, "0,4-7"
Result<launch::ConsoleRanks> ParseConsole(const std::string& text);            // "all", "none", "0,8-11"
Result<std::pair<int, int>> ParsePortRange(const std::string& text);           // "29600-29700"
Result<std::pair<int, int>> ParseSteps(const std::string& text);               // "10..12", "10"
Result<logs::LogRotation> ParseRotation(const std::string& text);              // "100MiB:5"
Result<std::vector<int>> ParseSignals(const std::string& text);                // "SIGTERM,SIGUSR1"
Result<std::pair<std::string, std::string>> ParseAssignment(const std::string& text);  // "K=V"
Result<std::map<std::string, std::string>> ParseRendezvousConf(const std::string& text);
Result<std::string> ParseEndpoint(const std::string& text);  // "host", "host:port", "[::1]:29400"
Result<std::string> ParseGpuList(const std::string& text);   // "0,1", UUIDs; no spaces in the result

}  // namespace lockstep::cli
