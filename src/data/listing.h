// What lies in a folder and below it, in an order that does not depend on the file system: natural order of names (2
// before 10). Hidden files are passed over, links to folders are followed, a folder reached twice counts once. Any
// thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::data {

// Runs of digits by their value, everything else by bytes.
bool NaturalLess(std::string_view a, std::string_view b);

struct Folder {
  std::string name;                // below the root; "" is the root itself
  std::vector<std::string> files;  // names, in natural order
};

// The root and every folder below it, in natural order of their names. A folder that cannot be read is an error.
Result<std::vector<Folder>> ListFolders(const std::string& root);

// The entries of one folder: name and whether it is a folder. In natural order.
struct Entry {
  std::string name;
  bool is_folder = false;
};
Result<std::vector<Entry>> ListEntries(const std::string& path, bool hidden = false);

bool IsImageName(std::string_view name);
bool IsVideoName(std::string_view name);
extern const char* const kImageNames;  // "*.png *.jpg *.jpeg", for messages
extern const char* const kVideoNames;

// "12 files: 10 .txt, 2 .mp4" or "no files".
std::string SummarizeFiles(const std::vector<Folder>& folders);

// root/name, also for an empty name and an absolute one.
std::string JoinPath(const std::string& root, const std::string& name);

}  // namespace lockstep::data
