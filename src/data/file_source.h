// Clips out of files: videos, and folders of pictures that are frames of a video. What belongs to the source is listed
// once, when it is opened; reading a sample opens only the files of that sample. Any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/source.h"
#include "data/sources.h"

namespace lockstep::data {

// What clips are cut from: a video file, or pictures in one folder.
struct Video {
  std::string origin;                 // name below the root
  std::string path;                   // of the video file, or of the folder
  std::vector<std::string> pictures;  // names in the folder; empty: a video file
};

struct Inventory {
  std::vector<Video> videos;
  std::string notes;  // for Describe(): what was left out
  std::string
      digest;  // of what decided over the videos besides the files themselves; "": names and sizes of files decide
};

// What the configuration names, or an error that says what was looked for and what was found.
Result<Inventory> TakeInventory(const SourceConfig& config);

// An inventory as text, for ranks that need not look for themselves (SourceConfig::index).
std::string WriteIndex(const Inventory& inventory, const SourceConfig& config);
// Refuses text that is cut or of another root, and a machine that misses files the writer had: a few are looked at.
Result<Inventory> ReadIndex(std::string_view text, const SourceConfig& config);

std::unique_ptr<Source> MakeFileSource(const SourceConfig& config, Inventory inventory);

}  // namespace lockstep::data
