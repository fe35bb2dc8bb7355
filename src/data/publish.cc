#include "data/publish.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/fd.h"
#include "base/files.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

std::string Parent(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string Aside(const std::string& path, const char* what) {
  static std::atomic<uint32_t> counter{0};
  return fmt::format("{}.{}-{}-{}", path, what, ::getpid(), counter.fetch_add(1));
}

// "000001.png".
bool IsNumberedPicture(const std::string& name) {
  return name.size() > 4 && name.ends_with(".png") &&
         std::all_of(name.begin(), name.end() - 4, [](char c) { return c >= '0' && c <= '9'; });
}

Status SyncPath(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FileError("open", path, errno);
  // Some network file systems cannot sync a folder, which is no loss there.
  if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != EBADF) return FileError("sync", path, errno);
  return Status::Ok();
}

}  // namespace

Publication::Publication(std::string path, bool folder, bool overwrite)
    : path_(std::move(path)), folder_(folder), overwrite_(overwrite) {}

Publication::Publication(Publication&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, "")),
      folder_(other.folder_),
      overwrite_(other.overwrite_) {}

Publication::~Publication() {
  if (!temporary_.empty()) static_cast<void>(RemoveAll(temporary_));
}

Status Publication::CheckPlace() const {
  struct stat info{};
  if (::stat(path_.c_str(), &info) != 0) {
    if (errno == ENOENT) return Status::Ok();
    return FileError("write", path_, errno);
  }
  if (!overwrite_) {
    return Status(Code::kUsage, fmt::format("'{}' exists", path_), "choose another name, or add --overwrite");
  }
  if (!folder_) return S_ISDIR(info.st_mode) ? FileError("write", path_, EISDIR).WithCode(Code::kUsage) : Status::Ok();
  if (!S_ISDIR(info.st_mode)) return FileError("write", path_, ENOTDIR).WithCode(Code::kUsage);
  Result<std::vector<std::string>> names = ListDir(path_);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (IsNumberedPicture(name)) continue;
    return Status(Code::kUsage, fmt::format("'{}' holds more than numbered pictures ('{}'): not replaced", path_, name),
                  "choose another folder");
  }
  return Status::Ok();
}

Result<Publication> Publication::Make(const std::string& given, bool folder, bool overwrite) {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  Publication made(path, folder, overwrite);
  LOCKSTEP_RETURN_IF_ERROR(made.CheckPlace());
  const std::string temporary = Aside(path, "tmp");
  if (folder) {
    if (::mkdir(temporary.c_str(), 0755) != 0) return FileError("create", path, errno);
  } else {
    UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd) return FileError("create", path, errno);
  }
  made.temporary_ = temporary;
  return made;
}

Result<Publication> Publication::File(const std::string& path, bool overwrite) { return Make(path, false, overwrite); }
Result<Publication> Publication::Folder(const std::string& path, bool overwrite) { return Make(path, true, overwrite); }

Status Publication::Publish() {
  LOCKSTEP_RETURN_IF_ERROR(CheckPlace());
  LOCKSTEP_RETURN_IF_ERROR(SyncPath(temporary_));
  std::string old;
  if (folder_ && fs::exists(path_)) {
    old = Aside(path_, "replaced");
    if (::rename(path_.c_str(), old.c_str()) != 0) return FileError("replace", path_, errno);
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const Status failed = FileError("publish", path_, errno);
    if (!old.empty()) ::rename(old.c_str(), path_.c_str());
    return failed;
  }
  temporary_.clear();
  if (!old.empty()) LOCKSTEP_RETURN_IF_ERROR(RemoveAll(old));
  return SyncPath(Parent(path_));
}

}  // namespace lockstep::data
