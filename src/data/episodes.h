// Navigation episodes: what an agent saw step by step, what it was told, and what it did. A sample is one step: the
// pictures up to it (field "frames", U8 [T, 3, H, W], the current one last), and the action taken there (field
// "action", I64 []: 0 STOP, 1 MOVE_FORWARD, 2 TURN_LEFT, 3 TURN_RIGHT); its texts are read when they are asked for. Two
// forms (docs/formats/episodes.md): a folder of episodes, or a JSON or JSONL file with one sample per entry. Any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/source.h"
#include "data/sources.h"

namespace lockstep::data {

struct EpisodeText {
  std::string instruction, subinstruction, description_2d, description_3d;
};

class EpisodeSource : public Source {
 public:
  virtual Result<EpisodeText> Text(uint64_t index) const = 0;
};

Result<std::unique_ptr<EpisodeSource>> OpenEpisodes(const SourceConfig& config);
// For SourceConfig::index of the other ranks: none but one parses the files of all steps.
Result<std::string> IndexEpisodes(const SourceConfig& config);

// Which frames stand for the history up to frame `current`, itself included: all of them, with the first repeated where
// there are fewer than `frames`; else spread evenly from the first to the current one (numpy's linspace, cut to whole
// numbers).
std::vector<uint64_t> HistoryOf(uint64_t current, int frames);

// "turn left", "TURN-LEFT", "LEFT", 2 as text or number -> 2.
std::optional<int64_t> ActionNumber(std::string_view word);

}  // namespace lockstep::data
