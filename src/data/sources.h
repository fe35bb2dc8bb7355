// The sources that come with Lockstep, by name. All have the field "frames": U8 [T, 3, H, W], RGB. A sample is one
// clip of one video. With Draw::augment: random start and stride, random crop, flip and colour, the same for all frames
// of a clip; without: centre crop, and the start is a function of the sample's number alone. What is looked for in a
// folder is listed once, at OpenSource, sorted by name; the order of the file system plays no part. Any thread.
//
//   kind          what `path` is
//   clips         not used: scenes drawn from a seed, no file needed
//   frames        a folder with one folder of PNG/JPEG frames per video, or the frames of one video themselves
//   images        a folder (searched with its subfolders) of PNG/JPEG images; every image is a clip of one frame
//   videos        a folder (searched with its subfolders) of video files, or one file; needs a build with FFmpeg
//   annotations   the root of the paths in the file `annotations` (docs/formats/annotations.md)
//   tar           tar files in WebDataset's layout, a folder of them or one; a sample holds pictures, or one video
//   hdf5          an HDF5 file, or a folder of them; each row of the data set `field` is a video (rows.h)
//   episodes      a folder of navigation episodes, or a JSON or JSONL file of their steps (episodes.h); also "action"
//   safetensors   the same with tensors of safetensors files
//   lmdb          a folder with data.mdb as KAIR writes it: keys clip/frame, values encoded pictures
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/parallel.h"
#include "data/source.h"

namespace lockstep::data {

// What is looked at where an index says what there is: names and sizes of 64 files, spread over all, or of every file,
// divided over the ranks of a node.
struct FileCheck {
  bool all = false;
  uint64_t part = 0, parts = 1;
};

class IndexJournal;

// What an index that is made ahead holds beside names, places and sizes of files.
struct IndexOptions {
  bool sizes = false;       // widths and heights, for buckets: opens every file
  bool key_frames = false;  // of videos: reads every file
};

struct SourceConfig {
  std::string kind = "clips";
  std::string path;
  std::string annotations;       // the annotation file
  std::string field = "frames";  // the array of kinds hdf5 and safetensors
  int frames = 12;               // T
  int height = 64;
  int width = 64;
  // Several sizes, "288x512" (height x width), instead of one: every sample has that of its bucket
  // (bucketed_source.h). Of the kinds whose files are listed, and of clips (clip i has size i mod n).
  std::vector<std::string> buckets;
  // Distance of neighbouring frames of a clip in frames of the video, drawn from [min_stride, max_stride]. Reduced for
  // a video that is too short; one that is too short at stride 1 is an unreadable sample.
  int min_stride = 1;
  int max_stride = 1;
  std::string resize = "bilinear";  // of a crop: kResizeNames of clip_transform.h
  std::string decode = "exact";     // scaled: JPEG is reduced while it is decoded where the crop stays large enough
  bool flip = true, colour = true;  // whether augmentation mirrors clips and changes their colours
  uint64_t clips = 1024;            // samples of kind `clips`
  uint64_t clips_per_video = 1;     // samples taken from each video of the other kinds
  uint64_t seed = 0;                // of kind `clips`: what the scenes are drawn from
  std::vector<std::string> names;   // only these videos (names below `path`), in this order; empty: all
  // What IndexSource found on another rank: nothing is looked up again but a few files, to see that they are here too.
  std::shared_ptr<const std::string> index;
  FileCheck check;
  IndexJournal* journal = nullptr;  // of an index that is being made; outlives the call
  WorkProgress index_progress;      // likewise: files or shards that were looked at
};

Result<std::unique_ptr<Source>> OpenSource(const SourceConfig& config);

// Every kind, in the order of the table.
const std::vector<std::string>& SourceKinds();

// What there is, with sizes and places, as text that one rank makes and the others put into `index`: none but one lists
// folders and asks for the sizes of files. Empty for kind clips, which has no files, and for hdf5 and safetensors,
// which have few.
Result<std::string> IndexSource(const SourceConfig& config, const IndexOptions& options = {});

// Such text with the sizes of pictures that buckets need, for ranks that are not to look themselves. The same text
// where it has them, or config.buckets is empty.
Result<std::string> IndexForBuckets(std::string index, const SourceConfig& config);

// Such text as a file with a checksum, for trainings of every later day (`lockstep data index`, `data.index`). Opening
// with it looks at a few files; a data set that has changed since is refused where they show it.
Status WriteIndexFile(const std::string& path, std::string_view index);
Result<std::string> ReadIndexFile(const std::string& path);

// Whether this build reads video files.
bool HasVideo();

}  // namespace lockstep::data
