// Which files to read for the paths a person gave, and what is known about them before reading: run directories with
// their events, files and folders of other launchers. Reads folders and small files only. Any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnose/diagnosis.h"
#include "diagnose/findings.h"

namespace lockstep::diagnose {

struct LogSource {
  std::string path;  // as shown
  int rank = -1;
  std::string node;
  double clock_offset = 0;
  std::optional<std::string> text;  // read already
  uint64_t first_line = 1;          // number of its first line
  bool standard_input = false;
};

struct SourceSet {
  std::vector<LogSource> logs;
  std::vector<RankEnd> ends;
  std::optional<std::string> outcome;
  std::vector<std::string> notes;
  int world = 0;
};

// An error only when a path cannot be used at all; what is unreadable inside a folder becomes a note.
Result<SourceSet> FindSources(const std::vector<std::string>& paths, const DiagnoseOptions& options);

}  // namespace lockstep::diagnose
