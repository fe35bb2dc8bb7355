// A file system that misbehaves as network file systems do: a folder seen through the kernel's FUSE interface, served
// by a process that gives errors now and then, also after it has done what was asked, and shows files of others late.
// Two mounts of one folder are two clients of one server. No library is needed: the protocol is <linux/fuse.h>.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep::cache {

enum FaultAt : uint32_t { kAtLookup = 1, kAtStat = 2, kAtOpen = 4, kAtRead = 8, kAtWrite = 16, kAtName = 32 };

// Shared by the test and the servers.
struct Faults {
  std::atomic<uint32_t> at{0};      // FaultAt
  std::atomic<uint32_t> every{0};   // one request of so many fails
  std::atomic<bool> stale{false};   // with ESTALE, else EIO
  std::atomic<int64_t> late_ms{0};  // files of others are seen so long after they were asked for first
  std::atomic<uint64_t> asked{0}, given{0};

  void Set(uint32_t where, uint32_t one_of, bool with_stale = false) {
    every = 0;
    at = where;
    stale = with_stale;
    every = one_of;
  }
  static Faults* Create() {
    void* memory = ::mmap(nullptr, sizeof(Faults), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return new (memory) Faults();
  }
};

// Serves one mount until it is gone.
class FlakyServer {
 public:
  FlakyServer(int fd, std::string root, Faults* faults) : fd_(fd), faults_(*faults), paths_{"", std::move(root)} {
    started_ = Wall();
  }

  void Run() {
    std::vector<char> buffer(1 << 20);
    while (true) {
      const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
      if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT)) continue;
      if (n < static_cast<ssize_t>(sizeof(fuse_in_header))) return;
      fuse_in_header header{};
      std::memcpy(&header, buffer.data(), sizeof header);
      buffer[static_cast<size_t>(n)] = '\0';
      Answer(header, buffer.data() + sizeof header);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double Wall() {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }

  void Reply(uint64_t unique, int error, const void* data = nullptr, size_t bytes = 0) {
    std::vector<char> out(sizeof(fuse_out_header) + bytes);
    const fuse_out_header header{static_cast<uint32_t>(out.size()), -error, unique};
    std::memcpy(out.data(), &header, sizeof header);
    if (bytes > 0) std::memcpy(out.data() + sizeof header, data, bytes);
    static_cast<void>(!::write(fd_, out.data(), out.size()));
  }
  template <typename T>
  void Reply(uint64_t unique, const T& value) {
    Reply(unique, 0, &value, sizeof value);
  }

  bool Fails(FaultAt where) {
    const uint32_t every = faults_.every;
    if (every == 0 || (faults_.at & where) == 0 || ++faults_.asked % every != 0) return false;
    ++faults_.given;
    return true;
  }
  int Error() const { return faults_.stale ? ESTALE : EIO; }

  uint64_t NodeOf(const std::string& path) {
    const auto [found, added] = nodes_.emplace(path, paths_.size());
    if (added) paths_.push_back(path);
    return found->second;
  }
  void Gone(const std::string& path) {
    const auto found = nodes_.find(path);
    if (found == nodes_.end()) return;
    paths_[found->second].clear();
    nodes_.erase(found);
  }

  // Whether this client sees the file yet.
  bool Sees(const std::string& path, const struct stat& info) {
    if (faults_.late_ms == 0 || !S_ISREG(info.st_mode) || own_.contains(path)) return true;
    if (static_cast<double>(info.st_ctim.tv_sec) < started_ - 1) return true;
    const auto [first, added] = seen_.emplace(path, Clock::now());
    return !added && Clock::now() - first->second >= std::chrono::milliseconds(faults_.late_ms);
  }

  static fuse_attr Attributes(const struct stat& info) {
    fuse_attr attr{};
    attr.ino = info.st_ino;
    attr.size = static_cast<uint64_t>(info.st_size);
    attr.blocks = static_cast<uint64_t>(info.st_blocks);
    attr.mtime = static_cast<uint64_t>(info.st_mtim.tv_sec);
    attr.mtimensec = static_cast<uint32_t>(info.st_mtim.tv_nsec);
    attr.ctime = static_cast<uint64_t>(info.st_ctim.tv_sec);
    attr.mode = info.st_mode;
    attr.nlink = static_cast<uint32_t>(info.st_nlink);
    attr.uid = info.st_uid;
    attr.gid = info.st_gid;
    attr.blksize = 4096;
    return attr;
  }
  // 0, or why there is none.
  int Entry(const std::string& path, fuse_entry_out* out) {
    struct stat info{};
    if (::lstat(path.c_str(), &info) != 0) return errno;
    if (!Sees(path, info)) return ENOENT;
    *out = {};
    out->nodeid = NodeOf(path);
    out->attr = Attributes(info);
    return 0;
  }
  void ReplyEntry(uint64_t unique, const std::string& path) {
    fuse_entry_out entry{};
    const int error = Entry(path, &entry);
    error != 0 ? Reply(unique, error) : Reply(unique, entry);
  }

  void Answer(const fuse_in_header& in, const char* body) {
    const std::string here = in.nodeid < paths_.size() ? paths_[in.nodeid] : "";
    const auto child = [&](const char* name) { return here + "/" + name; };
    const auto whole = [&](auto* to) { std::memcpy(to, body, sizeof *to); };
    switch (in.opcode) {
      case FUSE_INIT: {
        fuse_init_out out{};
        out.major = FUSE_KERNEL_VERSION;
        out.minor = 31;
        out.max_write = 128 << 10;
        out.max_background = 16;
        out.time_gran = 1;
        return Reply(in.unique, out);
      }
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
      case FUSE_INTERRUPT:
        return;
      case FUSE_LOOKUP:
        if (Fails(kAtLookup)) return Reply(in.unique, Error());
        return ReplyEntry(in.unique, child(body));
      case FUSE_GETATTR: {
        struct stat info{};
        if (Fails(kAtStat)) return Reply(in.unique, Error());
        fuse_getattr_in asked{};
        whole(&asked);
        const bool open = (asked.getattr_flags & FUSE_GETATTR_FH) != 0;
        if ((open ? ::fstat(static_cast<int>(asked.fh), &info) : ::lstat(here.c_str(), &info)) != 0) {
          return Reply(in.unique, here.empty() ? ESTALE : errno);
        }
        fuse_attr_out out{};
        out.attr = Attributes(info);
        return Reply(in.unique, out);
      }
      case FUSE_SETATTR: {
        fuse_setattr_in asked{};
        whole(&asked);
        if (Fails(kAtStat)) return Reply(in.unique, Error());
        struct stat info{};
        int error = 0;
        if ((asked.valid & FATTR_SIZE) != 0 && ::truncate(here.c_str(), static_cast<off_t>(asked.size)) != 0)
          error = errno;
        if ((asked.valid & FATTR_MODE) != 0 && ::chmod(here.c_str(), asked.mode) != 0) error = errno;
        if ((asked.valid & (FATTR_MTIME | FATTR_MTIME_NOW)) != 0) {
          const timespec now{0, UTIME_NOW};
          const timespec given{static_cast<time_t>(asked.mtime), static_cast<long>(asked.mtimensec)};
          const timespec times[2] = {now, (asked.valid & FATTR_MTIME_NOW) != 0 ? now : given};
          if (::utimensat(AT_FDCWD, here.c_str(), times, 0) != 0) error = errno;
        }
        if (error == 0 && ::lstat(here.c_str(), &info) != 0) error = errno;
        if (error != 0) return Reply(in.unique, error);
        fuse_attr_out out{};
        out.attr = Attributes(info);
        return Reply(in.unique, out);
      }
      case FUSE_OPEN: {
        fuse_open_in asked{};
        whole(&asked);
        if (Fails(kAtOpen)) return Reply(in.unique, Error());
        const int fd = ::open(here.c_str(), static_cast<int>(asked.flags) & ~(O_DIRECT | O_CREAT | O_EXCL));
        if (fd < 0) return Reply(in.unique, here.empty() ? ESTALE : errno);
        return Reply(in.unique, fuse_open_out{static_cast<uint64_t>(fd), FOPEN_DIRECT_IO, 0});
      }
      case FUSE_CREATE: {
        fuse_create_in asked{};
        whole(&asked);
        const std::string path = child(body + sizeof asked);
        if (Fails(kAtName)) return Reply(in.unique, Error());
        const int fd = ::open(path.c_str(), (static_cast<int>(asked.flags) & ~O_DIRECT) | O_CREAT, asked.mode);
        if (fd < 0) return Reply(in.unique, errno);
        own_.insert(path);
        struct {
          fuse_entry_out entry;
          fuse_open_out open;
        } out{};
        static_cast<void>(Entry(path, &out.entry));
        out.open = {static_cast<uint64_t>(fd), FOPEN_DIRECT_IO, 0};
        return Reply(in.unique, out);
      }
      case FUSE_READ: {
        fuse_read_in asked{};
        whole(&asked);
        if (Fails(kAtRead)) return Reply(in.unique, Error());
        std::vector<char> data(asked.size);
        const ssize_t n =
            ::pread(static_cast<int>(asked.fh), data.data(), data.size(), static_cast<off_t>(asked.offset));
        return n < 0 ? Reply(in.unique, errno) : Reply(in.unique, 0, data.data(), static_cast<size_t>(n));
      }
      case FUSE_WRITE: {
        fuse_write_in asked{};
        whole(&asked);
        if (Fails(kAtWrite)) return Reply(in.unique, Error());
        const ssize_t n =
            ::pwrite(static_cast<int>(asked.fh), body + sizeof asked, asked.size, static_cast<off_t>(asked.offset));
        return n < 0 ? Reply(in.unique, errno) : Reply(in.unique, fuse_write_out{static_cast<uint32_t>(n), 0});
      }
      case FUSE_RELEASE: {
        fuse_release_in asked{};
        whole(&asked);
        ::close(static_cast<int>(asked.fh));
        return Reply(in.unique, 0);
      }
      case FUSE_OPENDIR: {
        if (Fails(kAtOpen)) return Reply(in.unique, Error());
        listings_[++listing_] = List(here);
        return Reply(in.unique, fuse_open_out{listing_, 0, 0});
      }
      case FUSE_READDIR: {
        fuse_read_in asked{};
        whole(&asked);
        if (Fails(kAtRead)) return Reply(in.unique, Error());
        const std::string part = Part(listings_[asked.fh], asked.offset, asked.size);
        return Reply(in.unique, 0, part.data(), part.size());
      }
      case FUSE_RELEASEDIR: {
        fuse_release_in asked{};
        whole(&asked);
        listings_.erase(asked.fh);
        return Reply(in.unique, 0);
      }
      case FUSE_FSYNC:
        return Reply(in.unique, Fails(kAtWrite) ? Error() : 0);
      case FUSE_FLUSH:
      case FUSE_FSYNCDIR:
        return Reply(in.unique, 0);
      case FUSE_STATFS: {
        struct statvfs space{};
        ::statvfs(paths_[1].c_str(), &space);
        fuse_statfs_out out{};
        out.st = {space.f_blocks,
                  space.f_bfree,
                  space.f_bavail,
                  space.f_files,
                  space.f_ffree,
                  static_cast<uint32_t>(space.f_bsize),
                  255,
                  static_cast<uint32_t>(space.f_frsize),
                  0,
                  {}};
        return Reply(in.unique, out);
      }
      default:
        return ChangeName(in, body, here);
    }
  }

  // An error here may come before or after the change: the client cannot know.
  void ChangeName(const fuse_in_header& in, const char* body, const std::string& here) {
    const auto child = [&](const char* name) { return here + "/" + name; };
    const bool fails = Fails(kAtName);
    if (fails && faults_.given % 2 == 0) return Reply(in.unique, Error());
    int error = 0;
    std::string made;
    switch (in.opcode) {
      case FUSE_MKDIR: {
        made = child(body + sizeof(fuse_mkdir_in));
        if (::mkdir(made.c_str(), 0755) != 0) error = errno;
        break;
      }
      case FUSE_UNLINK:
      case FUSE_RMDIR: {
        const std::string path = child(body);
        if ((in.opcode == FUSE_UNLINK ? ::unlink(path.c_str()) : ::rmdir(path.c_str())) != 0) error = errno;
        if (error == 0) Gone(path);
        own_.erase(path);
        seen_.erase(path);
        break;
      }
      case FUSE_LINK: {
        fuse_link_in asked{};
        std::memcpy(&asked, body, sizeof asked);
        made = child(body + sizeof asked);
        if (::link(paths_[asked.oldnodeid].c_str(), made.c_str()) != 0) error = errno;
        break;
      }
      case FUSE_RENAME:
      case FUSE_RENAME2: {
        fuse_rename2_in asked{};
        const size_t bytes = in.opcode == FUSE_RENAME ? sizeof(fuse_rename_in) : sizeof asked;
        std::memcpy(&asked, body, bytes);
        const std::string from = child(body + bytes);
        const std::string to = paths_[asked.newdir] + "/" + (body + bytes + std::strlen(body + bytes) + 1);
        if (::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), asked.flags) != 0) {
          error = errno;
          break;
        }
        Gone(to);
        if (const auto node = nodes_.find(from); node != nodes_.end()) {
          paths_[node->second] = to;
          nodes_[to] = node->second;
          nodes_.erase(from);
        }
        own_.insert(to);
        break;
      }
      default:
        return Reply(in.unique, ENOSYS);
    }
    if (error == 0 && !made.empty()) own_.insert(made);
    if (error == 0 && fails) error = Error();
    if (error != 0 || made.empty()) return Reply(in.unique, error);
    ReplyEntry(in.unique, made);
  }

  struct Listed {
    std::string name;
    uint64_t inode;
    uint32_t type;
  };
  std::vector<Listed> List(const std::string& path) {
    std::vector<Listed> found;
    DIR* dir = ::opendir(path.c_str());
    while (const dirent* entry = dir == nullptr ? nullptr : ::readdir(dir)) {
      struct stat info{};
      const std::string file = path + "/" + entry->d_name;
      if (::lstat(file.c_str(), &info) == 0 && Sees(file, info))
        found.push_back({entry->d_name, entry->d_ino, entry->d_type});
    }
    if (dir != nullptr) ::closedir(dir);
    return found;
  }
  static std::string Part(const std::vector<Listed>& all, uint64_t offset, size_t room) {
    std::string part;
    for (uint64_t i = offset; i < all.size(); ++i) {
      const fuse_dirent head{all[i].inode, i + 1, static_cast<uint32_t>(all[i].name.size()), all[i].type};
      std::string one(reinterpret_cast<const char*>(&head), FUSE_NAME_OFFSET);
      one += all[i].name;
      one.resize(FUSE_DIRENT_ALIGN(one.size()), '\0');
      if (part.size() + one.size() > room) break;
      part += one;
    }
    return part;
  }

  int fd_;
  Faults& faults_;
  double started_;
  std::vector<std::string> paths_;  // of each node; empty: gone
  std::map<std::string, uint64_t> nodes_;
  std::set<std::string> own_;  // made through this mount
  std::map<std::string, Clock::time_point> seen_;
  std::map<uint64_t, std::vector<Listed>> listings_;
  uint64_t listing_ = 0;
};

// Mounts `root` at `at` with a server process of its own; false where that is not allowed. In a namespace of this
// process (OwnMounts): the mount and its server end with it.
inline bool MountFlaky(const std::string& root, const std::string& at, Faults* faults) {
  const int fd = ::open("/dev/fuse", O_RDWR);
  if (fd < 0) return false;
  const std::string options = "fd=" + std::to_string(fd) + ",rootmode=40000,user_id=0,group_id=0";
  if (::mount("flaky", at.c_str(), "fuse", 0, options.c_str()) != 0) return false;
  if (::fork() == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    FlakyServer(fd, root, faults).Run();
    ::_exit(0);
  }
  ::close(fd);
  return true;
}

}  // namespace lockstep::cache
