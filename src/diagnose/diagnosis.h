// Logs -> cause: what a failed run died of, where it began, and whether trying again can help. Reads files, starts
// nothing, writes nothing; memory stays bounded whatever the size of the logs. Any thread.
//
//   Result<Diagnosis> found = Diagnose({"runs/a"}, {});
//   fmt::print("{}", DiagnosisText(*found, {}));
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace lockstep::diagnose {

struct EvidenceLine {
  std::string file;
  uint64_t line = 0;  // from 1
  std::string text;   // made printable and shortened
  int rank = -1;
  std::string node;
};

struct Consequence {
  std::string what;       // "peer closed the connection"
  std::string signature;  // id, empty: general rule
  std::vector<int> ranks;
  std::string why;  // why it is not the cause
};

struct Alternative {
  std::string signature, cause, remedy;
  double confidence = 0;
  int rank = -1;
  std::string node;
};

enum class Verdict { kFailure, kHealthy, kUnknown };
enum class Restart { kYes, kNo, kAfterFix, kUndecided };

struct Diagnosis {
  Verdict verdict = Verdict::kUnknown;
  std::string signature;  // id of the table or of a general rule ("py-exception", "signal", ...); empty: unknown
  std::string cause;      // plain words, with what was captured
  std::string remedy;
  Restart restart = Restart::kUndecided;
  bool exclude_node = false;  // restart elsewhere
  double confidence = 0;      // 0..1
  int rank = -1;              // where it began, -1: not known
  std::string node;
  std::vector<int> alike;            // other ranks that failed of the same
  std::optional<int64_t> last_step;  // of that rank, from its progress lines
  std::vector<EvidenceLine> evidence;
  std::vector<Consequence> consequences;
  std::vector<Alternative> alternatives;
  std::vector<std::string> notes;  // what could not be read
};

// How a rank ended, where somebody knows it better than the logs do (a launcher).
struct KnownExit {
  int rank = -1;
  std::string node;
  int code = 0, signal = 0;
  bool after_stop = false;  // was told to end
  double time = 0;          // seconds since the epoch, 0: unknown
  std::string evidence;     // the kernel's word on an OOM kill
};

struct DiagnoseOptions {
  std::vector<KnownExit> exits;
  std::string signatures;                       // a further table (same columns), empty: none
  std::optional<int> attempt;                   // of a run directory; absent: the last
  bool follow_stdin = false;                    // "-" among the paths reads standard input
  std::map<std::string, double> clock_offsets;  // node -> seconds to add to its stamps
  // Told now and then how many bytes are read and how many there are (0: not known).
  std::function<void(uint64_t done, uint64_t total)> progress;
};

// Run directories, log files and folders of any launcher.
Result<Diagnosis> Diagnose(const std::vector<std::string>& paths, const DiagnoseOptions& options);

// Output that is in memory already, such as the last lines of each rank.
struct LogText {
  std::string name;  // shown as the file
  int rank = -1;
  std::string node;
  std::string text;
  uint64_t first_line = 1;  // number of its first line
};
Result<Diagnosis> DiagnoseText(const std::vector<LogText>& logs, const DiagnoseOptions& options);

nlohmann::json ToJson(const Diagnosis& diagnosis);
// Ten lines or fewer when `brief`.
std::string DiagnosisText(const Diagnosis& diagnosis, bool brief, bool colour);

}  // namespace lockstep::diagnose
