// JSON as Lockstep reads and writes it: strict documents, documents with comments and trailing commas (as training
// configs are written), and JSON lines that survive a torn tail. No exception leaves these functions. Any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep {

// Strict JSON. `source` names the origin in errors: "run.json:3:17: ...".
Result<nlohmann::json> ParseJson(std::string_view text, const std::string& source);

// JSON with // and /* */ comments and trailing commas. Positions in errors are those of the text as given.
Result<nlohmann::json> ParseJsonWithComments(std::string_view text, const std::string& source);

// Comments and trailing commas replaced by blanks, so that every position keeps its line and column. An unterminated
// comment is an error.
Result<std::string> BlankJsonComments(std::string_view text, const std::string& source);

Result<nlohmann::json> ReadJsonFile(const std::string& path, size_t max_bytes = 64u << 20);

// One line of compact JSON without newline; invalid UTF-8 is replaced rather than thrown at the caller.
std::string ToJsonLine(const nlohmann::json& value);

struct JsonLines {
  std::vector<nlohmann::json> lines;  // the objects, in order
  std::vector<size_t> bad_lines;      // 1-based numbers of lines that were no JSON object
  bool torn_tail = false;             // the text did not end in a newline
};

// Reads every complete line. A last line without newline counts if it parses, else it is a torn tail. Empty lines are
// passed over.
JsonLines ParseJsonLines(std::string_view text);
Result<JsonLines> ReadJsonLines(const std::string& path, size_t max_bytes = 256u << 20);

// Typed access that never throws: the value, or the fallback when the key is absent or of another type.
std::string GetString(const nlohmann::json& object, std::string_view key, std::string fallback = "");
double GetNumber(const nlohmann::json& object, std::string_view key, double fallback = 0);
int64_t GetInt(const nlohmann::json& object, std::string_view key, int64_t fallback = 0);
bool GetBool(const nlohmann::json& object, std::string_view key, bool fallback = false);

}  // namespace lockstep
