// Who said a line: the tags that launchers, schedulers and libraries put before a program's own words (rank, host, pod,
// time, level), taken off and understood. Pure functions over text; any thread.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::diagnose {

enum class Level { kNone, kDebug, kInfo, kWarning, kError };

struct Origin {
  int rank = -1;
  int local_rank = -1;    // NCCL names the device
  std::string_view node;  // into the line; empty: not said
  double time = 0;        // 0: not said
  Level level = Level::kNone;
  std::string_view text;  // into the line: the program's own words, indentation kept
};

// Tags that are too short to be believed from one line ("3: ", "worker-1: "); learnt from the start of a file.
struct LineStyle {
  bool rank_label = false;  // srun --label
  bool host_label = false;  // pdsh
  bool rank_tag = false;    // "[rank3]:" and the like were seen: lines of several ranks are mixed
};
LineStyle LearnStyle(std::string_view first_lines);

// `line` without colours (StripColour) and without line end.
Origin ReadOrigin(std::string_view line, const LineStyle& style, int year);

// Terminal control sequences and stray control bytes taken out, and of a line redrawn by carriage returns the state
// that `at` lies in. The result lives in `buffer` or in the line itself.
std::string_view CleanLine(std::string_view line, size_t at, std::string* buffer);

// What a file's path says about whose output it is.
struct PathOrigin {
  int rank = -1;
  std::string node;
  int attempt = -1;
};
PathOrigin ReadPathOrigin(std::string_view path);

}  // namespace lockstep::diagnose
