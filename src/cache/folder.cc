#include "cache/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/fd.h"
#include "base/files.h"
#include "base/text.h"

namespace lockstep::cache {
namespace {

constexpr char kUnitEnding[] = ".safetensors";

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Status SyncFolderOf(const std::string& path) {
  const std::string parent = path.substr(0, path.find_last_of('/'));
  UniqueFd fd(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some network file systems cannot sync a folder; the name is durable there without.
  if (fd && ::fsync(fd.get()) != 0 && errno != EINVAL && errno != EBADF) {
    return FileError("sync folder", parent, errno);
  }
  return Status::Ok();
}

}  // namespace

Result<Folder> Folder::Create(const std::string& root, const Description& description) {
  LOCKSTEP_RETURN_IF_ERROR(description.Check());
  const std::string path = root + "/" + description.Id();
  const std::string file = path + "/namespace.json";
  struct stat info{};
  if (::stat(file.c_str(), &info) != 0) {
    for (const char* part : {"units", "leases", "plans"}) LOCKSTEP_RETURN_IF_ERROR(MakeDirs(path + "/" + part));
    // Two who come at once write the same bytes.
    LOCKSTEP_RETURN_IF_ERROR(WriteFileAtomic(file, description.Line()));
  }
  return Open(path);
}

Result<Folder> Folder::Open(const std::string& path) {
  Folder folder;
  folder.path_ = path;
  while (folder.path_.size() > 1 && folder.path_.back() == '/') folder.path_.pop_back();
  const std::string file = folder.path_ + "/namespace.json";
  Result<std::string> line = ReadFile(file);
  if (!line.ok())
    return line.status().WithHint("name a namespace of a feature cache: `lockstep cache ls ROOT` lists them");
  Result<Description> description = Description::Parse(*line, file);
  if (!description.ok()) return description.status();
  folder.id_ = Hex(DigestOf(*line)).substr(0, 32);
  const std::string name = folder.path_.substr(folder.path_.find_last_of('/') + 1);
  if (name != folder.id_ || description->Id() != folder.id_) {
    return Status(Code::kEnvironment,
                  fmt::format("'{}': its description has the digest {}, not the folder's name", file, folder.id_),
                  "the description was changed or damaged: restore it, or remove the folder and build again");
  }
  folder.description_ = std::move(*description);
  return folder;
}

Result<std::vector<UnitPlace>> Folder::UnitPlaces() const {
  const std::string path = path_ + "/units";
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
  if (!dir) return FileError("list folder", path, errno);
  std::vector<UnitPlace> units;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (!name.ends_with(kUnitEnding)) continue;
    units.push_back({std::string(name.substr(0, name.size() - (sizeof kUnitEnding - 1))), entry->d_ino});
  }
  if (errno != 0) return FileError("list folder", path, errno);
  std::ranges::sort(units, {}, &UnitPlace::name);
  return units;
}

Result<std::vector<std::string>> Folder::Units() const {
  Result<std::vector<UnitPlace>> places = UnitPlaces();
  if (!places.ok()) return places.status();
  std::vector<std::string> units;
  for (UnitPlace& place : *places) units.push_back(std::move(place.name));
  return units;
}

Status Folder::WritePlan(const Plan& plan) const {
  const std::string path = fmt::format("{}/plans/{}.json", path_, plan.Id());
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0) return Status::Ok();
  return WriteFileAtomic(path, plan.Line());
}

Result<std::vector<Plan>> Folder::Plans() const {
  Result<std::vector<std::string>> names = ListDir(path_ + "/plans");
  if (!names.ok()) return names.status();
  std::vector<Plan> plans;
  for (const std::string& name : *names) {
    if (!name.ends_with(".json")) continue;
    const std::string path = path_ + "/plans/" + name;
    const Result<std::string> line = ReadFile(path);
    if (!line.ok()) return line.status();
    Result<Plan> plan = Plan::Parse(*line, path);
    if (!plan.ok()) return plan.status();
    plans.push_back(std::move(*plan));
  }
  return plans;
}

Result<std::vector<std::string>> Namespaces(const std::string& root) {
  Result<std::vector<std::string>> names = ListDir(root);
  if (!names.ok()) return names.status().WithHint("name the root of a feature cache, a folder that you may read");
  std::vector<std::string> found;
  for (const std::string& name : *names) {
    struct stat info{};
    if (IsHex(name, 32) && ::stat((root + "/" + name + "/namespace.json").c_str(), &info) == 0) found.push_back(name);
  }
  return found;
}

Result<bool> PublishNew(const std::string& from, const std::string& to) {
  // glibc's renameat2 is younger than some that this must run on.
  if (::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
    LOCKSTEP_RETURN_IF_ERROR(SyncFolderOf(to));
    return true;
  }
  if (errno == EINVAL || errno == ENOSYS) {  // NFS and others: link fails too if the name is taken
    if (::link(from.c_str(), to.c_str()) == 0) {
      ::unlink(from.c_str());
      LOCKSTEP_RETURN_IF_ERROR(SyncFolderOf(to));
      return true;
    }
    if (errno == EPERM || errno == EOPNOTSUPP) {  // no links either; what is replaced has the same content
      if (::rename(from.c_str(), to.c_str()) == 0) return true;
    }
  }
  if (errno != EEXIST) return FileError("publish", to, errno);
  ::unlink(from.c_str());
  return false;
}

}  // namespace lockstep::cache
