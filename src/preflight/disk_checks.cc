// Rows that touch file systems: each makes, syncs and removes a small file where the job will write, or reads where it
// will read. A hung mount holds up the row's own thread only.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "base/units.h"
#include "launch/auth.h"
#include "preflight/rows.h"

namespace lockstep::preflight {
namespace {

constexpr uint64_t kInodesWanted = 10000, kInodesNeeded = 100;
constexpr double kSlowSync = 1.0;  // seconds

struct Need {
  const char* flag;  // how to choose another folder
  uint64_t wanted, needed;
};

// The folder itself or the nearest above it that exists: there the job would make it.
std::string NearestFolder(std::string path) {
  struct stat info{};
  while (!path.empty() && path != "/" && stat(path.c_str(), &info) != 0 && errno == ENOENT) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    path = slash == 0 ? "/" : path.substr(0, slash);
  }
  return path;
}

Status TryWrite(const std::string& folder, double* sync) {
  // A random name, so that nodes on a shared file system do not use the same file.
  const std::string path = folder + "/.lockstep-preflight-" + launch::MakeNonce();
  const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) return FileError("create a file in", folder, errno);
  const std::string block(4096, 'p');
  Status status;
  const TimePoint start = Now();
  if (write(fd, block.data(), block.size()) != static_cast<ssize_t>(block.size())) {
    status = FileError("write a file in", folder, errno == 0 ? ENOSPC : errno);
  } else if (fsync(fd) != 0) {
    status = FileError("sync a file in", folder, errno);
  }
  *sync = SecondsSince(start);
  if (close(fd) != 0 && status.ok()) status = FileError("close a file in", folder, errno);
  if (unlink(path.c_str()) != 0 && status.ok()) status = FileError("remove a file in", folder, errno);
  return status;
}

CheckOutcome CheckFolder(const std::string& path, const Need& need) {
  CheckOutcome outcome;
  const std::string folder = NearestFolder(path);
  struct stat info{};
  if (stat(folder.c_str(), &info) != 0) {
    const Status status = FileError("look into", folder, errno);
    outcome.Fail(status.message(),
                 status.hint().empty() ? fmt::format("choose another with {}", need.flag) : status.hint());
    return outcome;
  }
  if (!S_ISDIR(info.st_mode)) {
    outcome.Fail(fmt::format("'{}' is a file, expected a folder", folder),
                 fmt::format("move it away, or choose another with {}", need.flag));
    return outcome;
  }
  struct statvfs space{};
  if (statvfs(folder.c_str(), &space) == 0) {
    const uint64_t free = static_cast<uint64_t>(space.f_bavail) * space.f_frsize;
    outcome.note = fmt::format("{} free", FormatSize(free));
    const std::string remedy = fmt::format("make room (du -xsh {}/*), or choose another with {}", folder, need.flag);
    if (free < need.needed) {
      outcome.Fail(
          fmt::format("{} free on {}, expected {} at least", FormatSize(free), folder, FormatSize(need.needed)),
          remedy);
    } else if (free < need.wanted) {
      outcome.Warn(
          fmt::format("{} free on {}, {} would be comfortable", FormatSize(free), folder, FormatSize(need.wanted)),
          remedy);
    }
    if (space.f_files > 0) {  // 0: the file system does not count them
      const auto inodes = static_cast<uint64_t>(space.f_favail);
      const std::string text = fmt::format("{} inodes free on {}", inodes, folder);
      if (inodes < kInodesNeeded) {
        outcome.Fail(text, "many small files fill it although there is space: remove some (df -i)");
      } else if (inodes < kInodesWanted) {
        outcome.Warn(text, "remove small files (df -i)");
      }
    }
  }
  double sync = 0;
  const Status written = TryWrite(folder, &sync);
  if (!written.ok()) {
    outcome.Fail(written.message(),
                 written.hint().empty() ? fmt::format("choose another folder with {}", need.flag) : written.hint());
  } else if (sync > kSlowSync) {
    outcome.Warn(fmt::format("a 4 KiB file took {:.1f} s to reach {}", sync, folder),
                 "the file system is overloaded: checkpoints will be slow");
  }
  return outcome;
}

}  // namespace

CheckOutcome CheckLogDir(const CheckInput& input) { return CheckFolder(input.log_dir, {"--log-dir", kGiB, 64 * kMiB}); }

CheckOutcome CheckCheckpointDir(const CheckInput& input) {
  if (input.checkpoint_dir.empty()) return CheckOutcome::Skip("no --checkpoint-dir given");
  return CheckFolder(input.checkpoint_dir, {"--checkpoint-dir", 20 * kGiB, kGiB});
}

CheckOutcome CheckTmp(const CheckInput& input) {
  const auto named = input.env.find("TMPDIR");
  const bool given = named != input.env.end() && !named->second.empty();
  struct stat info{};
  const bool there = given && stat(named->second.c_str(), &info) == 0;
  CheckOutcome outcome = CheckFolder(there ? named->second : "/tmp", {"TMPDIR", kGiB, 64 * kMiB});
  // Nobody makes it: Python quietly takes another, and others fail.
  if (given && !there) outcome.Warn(fmt::format("TMPDIR={} is not there", named->second), "make it, or unset TMPDIR");
  return outcome;
}

CheckOutcome CheckData(const CheckInput& input) {
  if (input.data.empty()) return CheckOutcome::Skip("no --data given");
  CheckOutcome outcome;
  for (const std::string& path : input.data) {
    struct stat info{};
    if (stat(path.c_str(), &info) != 0) {
      outcome.Fail(FileError("read", path, errno).message(),
                   "mount or copy the data on this node, under the same path as on the others");
      continue;
    }
    if (!S_ISDIR(info.st_mode)) {
      char byte = 0;
      const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
      const bool failed = fd < 0 || read(fd, &byte, 1) < 0;
      const int error = errno;
      if (fd >= 0) close(fd);
      if (failed) {
        outcome.Fail(FileError("read", path, error).message(), "give this user the right to read it");
      } else if (info.st_size == 0) {
        outcome.Fail(fmt::format("'{}' is empty", path), "the copy was cut off, or the path is wrong");
      }
      continue;
    }
    auto names = ListDir(path);
    if (!names.ok()) {
      outcome.Fail(names.status().message(), "give this user the right to read and enter the folder");
      continue;
    }
    if (names->empty()) {
      outcome.Fail(fmt::format("'{}' is empty", path),
                   "is the file system mounted here? (findmnt --target " + path + ")");
      continue;
    }
    // A few of the files themselves: rights often differ from those of their folder.
    int tried = 0;
    for (const std::string& name : *names) {
      const std::string file = path + "/" + name;
      if (stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
      if (access(file.c_str(), R_OK) != 0) {
        outcome.Fail(FileError("read", file, errno).message(), "give this user the right to read the data");
        break;
      }
      if (++tried == 16) break;
    }
  }
  outcome.note = fmt::format("{} readable", fmt::join(input.data, ", "));
  return outcome;
}

}  // namespace lockstep::preflight
