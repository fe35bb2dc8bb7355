#include "track/wandb_fragments.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/fd.h"
#include "base/files.h"
#include "track/wandb_log.h"
#include "track/wandb_records.h"

namespace lockstep::track {
namespace {

constexpr size_t kStampSize = 15;          // YYYYMMDD_HHMMSS
constexpr size_t kLargestRow = 64u << 20;  // bytes of an open row

std::string IdOf(const std::string& folder) {
  const size_t before = kFragmentPrefix.size() + kStampSize + 1;
  return folder.size() > before ? folder.substr(before) : "";
}

Result<WandbFragment> ReadFragmentFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (!fd || ::fstat(fd.get(), &info) != 0) return FileError("read", path, errno);
  if (info.st_size == 0) return WandbFragment();
  const auto size = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return FileError("read", path, errno);
  const WandbFragment fragment = ReadWandbFragment({static_cast<const char*>(data), size});
  ::munmap(data, size);
  return fragment;
}

// An attempt that was killed left no exit record: a live `wandb sync` would wait for it forever. The row of its last
// step comes before it, unless it had become complete.
Status CloseFragment(const std::string& folder, const std::string& id, WandbFragment* fragment) {
  const std::string path = WandbFragmentFile(folder, id), row = WandbOpenRowFile(folder, id);
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return FileError("open", path, errno);
  std::string end;
  uint64_t at = fragment->whole;
  const Result<std::string> left = ReadFile(row, kLargestRow);
  const WandbFragment open = left.ok() ? ReadWandbFragment(*left) : WandbFragment();
  if (open.last_step && (!fragment->last_step || *open.last_step > *fragment->last_step)) {
    ScanWandbFile(*left, [&](std::string_view record) { at = FrameWandbRecord(record, at, &end); });
    fragment->last_step = open.last_step;
    fragment->runtime = std::max(fragment->runtime, open.runtime);
  }
  at = FrameWandbRecord(WandbExitRecord(1, fragment->runtime), at, &end);
  FrameWandbRecord(WandbFinalRecord(), at, &end);
  if (::ftruncate(fd.get(), static_cast<off_t>(fragment->whole)) != 0) return FileError("truncate", path, errno);
  for (size_t done = 0; done < end.size();) {
    const ssize_t n =
        ::pwrite(fd.get(), end.data() + done, end.size() - done, static_cast<off_t>(fragment->whole + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return FileError("write", path, errno);
    done += static_cast<size_t>(n);
  }
  ::unlink(row.c_str());
  return Status::Ok();
}

}  // namespace

std::vector<std::string> WandbFragments(const std::string& dir) {
  std::vector<std::string> found;
  const Result<std::vector<std::string>> names = ListDir(dir);
  if (!names.ok()) return found;
  for (const std::string& name : *names) {
    if (name.starts_with(kFragmentPrefix) && !IdOf(name).empty()) found.push_back(dir + "/" + name);
  }
  return found;
}

std::string WandbFragmentFile(const std::string& folder, const std::string& id) {
  return fmt::format("{}/run-{}.wandb", folder, id);
}

std::string WandbOpenRowFile(const std::string& folder, const std::string& id) {
  return fmt::format("{}/run-{}.row", folder, id);
}

Result<WandbBefore> TakeUpWandbRun(const std::string& dir) {
  WandbBefore before;
  const std::vector<std::string> folders = WandbFragments(dir);
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
    const std::string name = folder->substr(folder->rfind('/') + 1), id = IdOf(name);
    Result<WandbFragment> fragment = ReadFragmentFile(WandbFragmentFile(*folder, id));
    if (!fragment.ok() || !fragment->run) {
      LOCKSTEP_RETURN_IF_ERROR(RemoveAll(*folder));  // killed before its first record was whole
      continue;
    }
    if (before.newest.empty()) {
      before.id = id;
      before.newest = name;
    }
    if (id != before.id) break;  // a run that began again from nothing
    if (!fragment->ended) LOCKSTEP_RETURN_IF_ERROR(CloseFragment(*folder, id, &*fragment));
    if (!fragment->last_step) continue;
    before.last_step = fragment->last_step;
    before.runtime = fragment->runtime;
    break;
  }
  return before;
}

}  // namespace lockstep::track
