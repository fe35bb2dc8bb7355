// Making a data set of paired clips and spikes ready: that every frame has its spikes, KAIR's list of clips, LMDBs, and
// pictures of the spikes as arrays; and writing generated scenes as such a data set. Work is divided by (part, parts),
// so that ranks share it without talking to each other, and what is there already is kept: an interrupted run goes on
// where it stopped. Any thread; progress is reported from several threads, one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/paired_set.h"

namespace lockstep::data {

struct PrepareShare {
  uint64_t part = 0, parts = 1;
  int threads = 1;
};
// Items done, of them found finished, and all.
using PrepareProgress = std::function<void(uint64_t done, uint64_t kept, uint64_t all)>;

struct SpikeAlignment {
  uint64_t files = 0;
  std::vector<std::string> missing;  // "clip/000047"
  std::vector<std::string> wrong;    // messages: of another size, too short
  int64_t least_steps = 0, most_steps = 0;
};
// Looks at the size of every spike file of the set.
SpikeAlignment AlignSpikes(const PairedSet& set, const PrepareShare& share);

// "clip frames (h,w,3) first" for each clip.
std::string MetaInfoOf(const PairedSet& set);

// The frames of one side, as they are, under keys clip/frame. An LMDB with all these keys and
// the frames' sizes is kept, one with others an error unless `overwrite`.
Status WriteFramesToLmdb(const PairedSet& set, bool target, const std::string& path, bool overwrite,
                         const PrepareProgress& progress);

// One array for each spike file of this share: CLIP/<form.Folder()>/FRAME.npy below `root`. Arrays older than their
// spikes are made again.
Status WriteArtefacts(const PairedSet& set, const SpikeForm& form, const std::string& root, const PrepareShare& share,
                      const PrepareProgress& progress);

struct GeneratedTree {
  std::string path;
  uint64_t clips = 4, frames = 12, seed = 0;
  int height = 128, width = 128, divisor = 2;
};
// GOPRO_Large/<split>_GT and <split>_GT_blurred, GOPRO_Large_spike_seq/<split> and its config.yaml, and
// meta_info_GoPro_<split>_GT.txt, for split train and test (a quarter of the clips, at least one). Clips that are there
// are kept; scenes.txt says their settings, and other ones are an error.
Status WriteGeneratedTree(const GeneratedTree& tree, const PrepareShare& share, const PrepareProgress& progress);

}  // namespace lockstep::data
