// The records of a W&B run (docs/formats/wandb.md), encoded by hand from wandb's public definitions, and what an older
// fragment says. Private to wandb_sink.cc and its tests. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::track {

using JsonItem = std::pair<std::string, std::string>;  // key, value as JSON

struct WandbRun {
  std::string id, project, entity, group, name, host;
  std::vector<std::string> tags;
  double start = 0;                    // seconds since 1970
  bool resumed = false;                // continues what earlier fragments hold
  std::optional<uint64_t> keep_up_to;  // rewinds to this step first: later ones are repeated
};

// A number as wandb writes it in JSON: NaN and Infinity are allowed there.
std::string WandbNumber(double value);

std::string WandbHeaderRecord();
std::string WandbRunRecord(const WandbRun& run);
std::string WandbConfigRecord(const std::vector<JsonItem>& items);  // keys with dots are nested
std::string WandbHistoryRecord(const std::vector<JsonItem>& items);
std::string WandbSummaryRecord(const std::vector<JsonItem>& items);
std::string WandbOutputRecord(double t, std::string_view line);
std::string WandbStatsRecord(double t, const std::vector<JsonItem>& items);
std::string WandbMediaRecord(std::string_view path);  // relative to files/
std::string WandbPreemptingRecord();
std::string WandbExitRecord(int exit_code, double runtime);
// After it: the uploader of wandb 0.17 to 0.22 sends configuration and exit code only where it finds this.
std::string WandbFinalRecord();

// What a fragment holds.
struct WandbFragment {
  bool header = false, run = false, ended = false;
  std::optional<uint64_t> last_step;  // of its last history record
  double runtime = 0;
  uint64_t whole = 0;  // bytes of whole records
};
WandbFragment ReadWandbFragment(std::string_view file);

}  // namespace lockstep::track
