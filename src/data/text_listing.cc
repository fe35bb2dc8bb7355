#include "data/text_listing.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>

#include "base/fd.h"
#include "base/files.h"
#include "data/listing.h"

namespace lockstep::data {
namespace {

Status AddFile(const std::string& name, const std::string& path, std::vector<TextFile>* files) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return FileError("read", path, errno);
  if (!S_ISREG(info.st_mode)) {
    return Status(Code::kUsage, fmt::format("'{}' is neither a file nor a folder", path), "give a file or a folder");
  }
  files->push_back({name, path, static_cast<uint64_t>(info.st_size)});
  return Status::Ok();
}

}  // namespace

const FileNames kAnyFile = {"any name", [](std::string_view) { return true; }};
const FileNames kJsonLines = {
    "*.jsonl *.ndjson", [](std::string_view name) { return name.ends_with(".jsonl") || name.ends_with(".ndjson"); }};
const FileNames kTokenFiles = {"*.tokens", [](std::string_view name) { return name.ends_with(".tokens"); }};

Result<std::vector<TextFile>> ListTextFiles(const std::string& path, const FileNames& names) {
  std::vector<TextFile> files;
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return FileError("read", path, errno);
  if (!S_ISDIR(info.st_mode)) {
    const size_t slash = path.rfind('/');
    LOCKSTEP_RETURN_IF_ERROR(AddFile(slash == std::string::npos ? path : path.substr(slash + 1), path, &files));
    return files;
  }
  Result<std::vector<Folder>> folders = ListFolders(path);
  if (!folders.ok()) return folders.status();
  for (const Folder& folder : *folders) {
    for (const std::string& file : folder.files) {
      const std::string name = JoinPath(folder.name, file);
      if (names.accept(name)) LOCKSTEP_RETURN_IF_ERROR(AddFile(name, JoinPath(path, name), &files));
    }
  }
  if (files.empty()) {
    return Status(Code::kUsage,
                  fmt::format("no files of the data in '{}': looked for {}, found {}", path, names.text,
                              SummarizeFiles(*folders)),
                  "check the path of the data");
  }
  return files;
}

std::string DigestOfFiles(const std::vector<TextFile>& files, std::string_view more) {
  uint64_t digest = XXH64(more.data(), more.size(), 0);
  for (const TextFile& file : files) {
    digest = XXH64(file.name.data(), file.name.size(), digest);
    digest = XXH64(&file.bytes, sizeof file.bytes, digest);
  }
  return fmt::format("xxh64:{:016x}", digest);
}

Status ReadPart(const std::string& path, uint64_t offset, uint64_t count, char* out) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FileError("open", path, errno);
  while (count > 0) {
    const ssize_t n = ::pread(fd.get(), out, std::min<uint64_t>(count, 1u << 30), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("read", path, errno);
    if (n == 0) {
      return Status(Code::kEnvironment,
                    fmt::format("'{}' ends at byte {}, {} bytes early: it became shorter since it was listed", path,
                                offset, count),
                    "let nothing write to the data while they are trained on");
    }
    out += n;
    offset += static_cast<uint64_t>(n);
    count -= static_cast<uint64_t>(n);
  }
  return Status::Ok();
}

}  // namespace lockstep::data
