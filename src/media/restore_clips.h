// The clips that `lockstep restore` finds at INPUT, where each of them goes, and the spikes of their frames. What can
// be wrong with them (a frame missing in the middle, mixed sizes, spikes that are missing or of another sensor) is
// found here, before anything is written. Every rank finds the same. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/spike.h"
#include "media/files.h"
#include "media/tool.h"

namespace lockstep::media {

// What OUTPUT becomes.
enum class Written { kFolder, kVideo, kTensor };
Result<Written> WrittenAs(const std::string& output);

struct FoundClip {
  std::string name;                 // below INPUT; "": INPUT is the clip
  std::string input, output;        // paths
  std::vector<std::string> frames;  // files of a folder, in order; none: a video or a .safetensors file
  std::vector<std::string> spikes;  // files in the order of the frames; none: the model takes none
  MediaShape shape;                 // its count is certain but for videos
  std::string identity;             // another one when a file of the clip is another one
  Written written = Written::kFolder;
  bool renumbered = false;  // frames come out that did not go in
  // Name of a written frame: that of the input's frame, else its number from 1.
  std::string FrameName(int64_t frame) const;
};

// Sensor and form of the spikes: what flags say, else the weights.
data::SpikeSensor SensorOf(const RestoreAsked& asked);
data::SpikeForm FormOf(const RestoreAsked& asked, int64_t channels);

// `spike_channels`: what the model takes; 0: none.
Result<std::vector<FoundClip>> FindRestoreClips(const MediaOptions& options, int64_t spike_channels);

// A frame is missing where the numbers at the end of the names have another distance than everywhere else. Names
// without numbers, and longer ones (times), are not looked at.
Status CheckFrameNumbers(const std::string& folder, const std::vector<std::string>& names);

// The only clip's file is read to its end: how many frames there are, and of videos when each is shown and what their
// decoder had to leave out.
struct CountedFrames {
  uint64_t count = 0;
  std::vector<double> seconds;
  std::vector<std::string> notes;
};
Result<CountedFrames> CountFrames(const FoundClip& clip, const MediaOptions& options);

}  // namespace lockstep::media
