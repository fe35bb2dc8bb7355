// Clips out of files: videos, and folders of pictures that are frames of a video. What belongs to the source is listed
// once, when it is opened; reading a sample opens only the files of that sample. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/source.h"
#include "data/sources.h"

namespace lockstep::data {

struct Picture {
  std::string name;     // in its folder or container
  uint64_t bytes = 0;   // of the encoded picture
  uint64_t offset = 0;  // in the container
};

// What clips are cut from: a video file, pictures in one folder, or either of them in a container (tar, LMDB).
struct Video {
  std::string origin;             // name below the root
  std::string path;               // of the video file, of the folder, or of the container
  std::vector<Picture> pictures;  // empty: a video
  bool packed = false;            // in a container: offsets and sizes say where
  uint64_t offset = 0;            // of a video in its container
  uint64_t bytes = 0;             // of a video
  int width = 0, height = 0;      // of its first picture; 0: not asked, or it cannot be read
  std::string keys;               // of a video: its key frames as text (key_frames.h); "": not asked, or it has none
};
constexpr uint64_t kMissing = ~0ull;  // size of a file that was listed and cannot be asked for its size

struct Inventory {
  std::vector<Video> videos;
  bool measured = false;  // videos have their widths and heights
  std::string notes;      // for Describe(): what was left out
  std::string
      digest;  // of what decided over the videos besides the files themselves; "": names and sizes of files decide
};

// What the configuration names, or an error that says what was looked for and what was found.
Result<Inventory> TakeInventory(const SourceConfig& config);

// Asks for the sizes of all files, many at once. Nothing to do for containers, whose listing has them, and for an
// inventory with a digest of its own, unless all files are to be compared.
void MeasureFiles(Inventory* inventory, const FileCheck& check = {});

// Width and height of one video, by the header of its first picture; and of every one, many at once, where they are not
// known. A file that cannot be read has none: it is an unreadable sample when its turn comes.
void MeasurePicture(Video* video);
void MeasurePictures(Inventory* inventory);

// One file that rank 0 listed, as it is here; rank 0's size 0: not known. `at_least`: a container may be longer.
Status LookAtFile(const std::string& path, uint64_t bytes, bool at_least);
// look(i) for those of `files` that the check asks for, many at once; the first error.
Status CheckFiles(size_t files, const FileCheck& check, const std::function<Status(size_t)>& look);

// What an index that is made ahead has to say about every video: sizes of files, and what `options` ask for. With a
// journal (SourceConfig::journal), what an earlier process found is taken from it, and what is found goes into it.
void MeasureForIndex(const SourceConfig& config, const IndexOptions& options, Inventory* inventory);

// Videos as text: a part of an index, and a record of its journal. False: damaged.
std::string WriteVideos(std::span<const Video> videos, const std::string& root);
bool ReadVideos(std::string_view text, const std::string& root, std::vector<Video>* videos);

// An inventory as text, for ranks that need not look for themselves (SourceConfig::index).
std::string WriteIndex(const Inventory& inventory, const SourceConfig& config);
// Refuses text that is cut or of another root, and a machine that misses files the writer had (SourceConfig::check).
Result<Inventory> ReadIndex(std::string_view text, const SourceConfig& config);

// The kinds tar and lmdb.
Result<Inventory> InventoryOfTar(const SourceConfig& config);
Result<Inventory> InventoryOfLmdb(const SourceConfig& config);

std::unique_ptr<Source> MakeFileSource(const SourceConfig& config, Inventory inventory);

}  // namespace lockstep::data
