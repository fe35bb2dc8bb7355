// The files that a corpus is made of, and reading pieces of them. A file is opened for each read: folders may hold more
// files than a process may have open. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::data {

struct TextFile {
  std::string name;  // below the folder
  std::string path;
  uint64_t bytes = 0;
};

// What a folder is searched for.
struct FileNames {
  const char* text;  // for messages: "*.jsonl"
  bool (*accept)(std::string_view name);
};
extern const FileNames kAnyFile, kJsonLines, kTokenFiles;

// `path` itself, or the files of these names below it in natural order, hidden ones left out. An error where there is
// none.
Result<std::vector<TextFile>> ListTextFiles(const std::string& path, const FileNames& names);

// "xxh64:<16 hex digits>" over `more`, and names and sizes of files.
std::string DigestOfFiles(const std::vector<TextFile>& files, std::string_view more);

// Bytes [offset, offset + count) of a file; an error if it ends before.
Status ReadPart(const std::string& path, uint64_t offset, uint64_t count, char* out);

}  // namespace lockstep::data
