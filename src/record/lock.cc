#include "record/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/process.h"
#include "base/text.h"
#include "base/units.h"

namespace lockstep::record {
namespace {

std::string PidNamespace() {
  char target[128] = {};
  ssize_t n = ::readlink("/proc/self/ns/pid", target, sizeof target - 1);
  return n > 0 ? std::string(target, static_cast<size_t>(n)) : "";
}

double Seconds(const timespec& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::string TimeText(double seconds) {
  time_t whole = static_cast<time_t>(seconds);
  tm local{};
  char text[32] = {};
  if (::localtime_r(&whole, &local) == nullptr) return "an unknown time";
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

std::optional<LockOwner> ReadOwner(int fd) {
  char buffer[4096];
  ssize_t n = ::pread(fd, buffer, sizeof buffer, 0);
  if (n <= 0) return std::nullopt;
  nlohmann::json json = nlohmann::json::parse(std::string_view(buffer, static_cast<size_t>(n)), nullptr, false);
  return LockOwner::FromJson(json);
}

// The clock of a network file system's server can be minutes off ours; a fresh file there shows its time.
double FileSystemNow(const std::string& lock_path) {
  std::string probe = fmt::format("{}.probe-{}", lock_path, ::getpid());
  UniqueFd fd(::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  struct stat info{};
  double now = UnixSeconds();
  if (fd && ::fstat(fd.get(), &info) == 0) now = Seconds(info.st_mtim);
  if (fd) ::unlink(probe.c_str());
  return now;
}

Status Refuse(const std::string& path, const LockView& view) {
  std::string who = view.owner ? view.owner->ToString() : fmt::format("an unknown process ({})", view.why);
  std::string hint = "give this run another --name, or end that one with `lockstep stop`";
  if (view.owner && !view.owner->IsHere()) {
    hint += fmt::format(" on {}; if it is dead already, its lock lapses {:.0f} s after its last sign of life",
                        view.owner->host, kHeartbeatLimitSeconds);
  }
  return Status(Code::kEnvironment, fmt::format("the run is already running: '{}' is held by {}", path, who), hint);
}

}  // namespace

LockOwner LockOwner::Self() {
  LockOwner self;
  self.pid = ::getpid();
  self.host = HostName();
  self.boot_id = BootId();
  self.pid_ns = PidNamespace();
  self.start_time = ProcessStartTime(self.pid);
  self.since = UnixSeconds();
  return self;
}

nlohmann::json LockOwner::ToJson() const {
  return {{"pid", pid},    {"host", host}, {"boot_id", boot_id}, {"pid_ns", pid_ns}, {"start_time", start_time},
          {"since", since}};
}

std::optional<LockOwner> LockOwner::FromJson(const nlohmann::json& json) {
  LockOwner owner;
  int64_t pid = GetInt(json, "pid");
  if (pid <= 0 || pid > INT32_MAX) return std::nullopt;
  owner.pid = static_cast<pid_t>(pid);
  owner.host = GetString(json, "host");
  owner.boot_id = GetString(json, "boot_id");
  owner.pid_ns = GetString(json, "pid_ns");
  owner.start_time = static_cast<uint64_t>(GetInt(json, "start_time"));
  owner.since = GetNumber(json, "since");
  if (owner.host.empty()) return std::nullopt;
  return owner;
}

std::string LockOwner::ToString() const {
  return fmt::format("pid {} on {}, since {}", pid, Printable(host), TimeText(since));
}

bool LockOwner::IsHere() const {
  return host == HostName() && !boot_id.empty() && boot_id == BootId() && pid_ns == PidNamespace();
}

LockView Judge(const std::optional<LockOwner>& owner, double heartbeat, double now) {
  LockView view;
  view.owner = owner;
  view.heartbeat = heartbeat;
  if (owner && owner->IsHere()) {
    uint64_t start = ProcessStartTime(owner->pid);
    char state = ProcessState(owner->pid);
    bool gone = start == 0 || state == 0 || state == 'Z' || state == 'X';
    bool alive = !gone && start == owner->start_time;
    view.state = alive ? LockState::kLive : LockState::kStale;
    view.why = alive  ? "its process is alive"
               : gone ? fmt::format("its process {} is gone", owner->pid)
                      : fmt::format("pid {} now belongs to another process", owner->pid);
    return view;
  }
  double age = now - heartbeat;
  auto ms = std::chrono::milliseconds(static_cast<int64_t>(std::max(0.0, age) * 1000));
  std::string torn = owner ? "" : "its content is unreadable and ";
  if (age > kHeartbeatLimitSeconds) {
    view.state = LockState::kStale;
    view.why = fmt::format("{}there was no sign of life for {}", torn, FormatDuration(ms));
  } else {
    view.state = LockState::kLive;
    view.why = fmt::format("{}it showed a sign of life {} ago", torn, FormatDuration(ms));
  }
  return view;
}

LockView ReadLock(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (!fd || ::fstat(fd.get(), &info) != 0) {
    LockView view;
    // A lock we may not read is still a lock.
    if (errno == ENOENT || errno == ENOTDIR) return view;
    struct stat outside{};
    bool seen = ::stat(path.c_str(), &outside) == 0;
    return Judge(std::nullopt, seen ? Seconds(outside.st_mtim) : UnixSeconds(), UnixSeconds());
  }
  std::optional<LockOwner> owner = ReadOwner(fd.get());
  return Judge(owner, Seconds(info.st_mtim), UnixSeconds());
}

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  if (this != &other) {
    Release();
    fd_ = std::move(other.fd_);
    path_ = std::move(other.path_);
    self_ = std::move(other.self_);
    taken_over_ = std::move(other.taken_over_);
    has_flock_ = other.has_flock_;
  }
  return *this;
}

Result<RunLock> RunLock::Acquire(const std::string& path) {
  RunLock lock;
  lock.path_ = path;
  bool fresh = false;
  for (int tries = 0;; ++tries) {
    lock.fd_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    fresh = lock.fd_.valid();
    if (!fresh) {
      if (errno != EEXIST) return FileError("create", path, errno);
      lock.fd_.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));
      if (!lock.fd_) {
        if (errno == ENOENT && tries < 100) continue;  // released in between
        return FileError("open", path, errno);
      }
    }
    if (::flock(lock.fd_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno == EWOULDBLOCK) {
        // The owner writes its name right after taking the lock, and a dying launcher's children may hold it a little
        // longer than it lives: look again before refusing on that ground.
        LockView view = ReadLock(path);
        if (tries < 40 && (!view.owner || view.state == LockState::kStale)) {
          std::this_thread::sleep_for(std::chrono::milliseconds(25));
          continue;
        }
        if (view.state == LockState::kStale) {
          return Status(
              Code::kEnvironment,
              fmt::format("the run is still ending: '{}' belongs to {}; {}, but a process it left holds the lock", path,
                          view.owner ? view.owner->ToString() : "an unknown process", view.why),
              "try again in a moment, or give this run another --name");
        }
        return Refuse(path, view);
      }
      if (errno != ENOLCK && errno != ENOSYS && errno != EOPNOTSUPP && errno != EINVAL) {
        return FileError("lock", path, errno);
      }
      lock.has_flock_ = false;
    }
    // Somebody may have released (unlinked) the file between our open and our lock: then we hold a lock nobody sees.
    struct stat ours{}, there{};
    if (::fstat(lock.fd_.get(), &ours) == 0 && ::stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
        ours.st_dev == there.st_dev) {
      if (!fresh) {
        // A leftover: nobody holds it (or the file system cannot tell), so its content decides.
        LockView view = Judge(ReadOwner(lock.fd_.get()), Seconds(ours.st_mtim), FileSystemNow(path));
        bool empty = ours.st_size == 0 && lock.has_flock_;
        if (view.state == LockState::kLive && !empty) {
          lock.fd_.reset();
          return Refuse(path, view);
        }
        if (!empty) lock.taken_over_ = std::move(view);
      }
      break;
    }
    lock.fd_.reset();
    if (tries >= 100) return FileError("lock", path, EAGAIN);
  }

  lock.self_ = LockOwner::Self();
  std::string text = lock.self_.ToJson().dump() + "\n";
  ssize_t n = ::pwrite(lock.fd_.get(), text.data(), text.size(), 0);
  if (n != static_cast<ssize_t>(text.size()) || ::ftruncate(lock.fd_.get(), n) != 0) {
    Status status = FileError("write", path, n < 0 ? errno : ENOSPC);
    if (fresh) ::unlink(path.c_str());
    lock.fd_.reset();
    return status;
  }
  return lock;
}

Status RunLock::Touch() {
  if (!held()) return Status(Code::kInternal, "the lock of the run is not held");
  struct stat ours{}, there{};
  if (::fstat(fd_.get(), &ours) != 0) return FileError("read", path_, errno);
  if (::stat(path_.c_str(), &there) != 0 || there.st_ino != ours.st_ino) {
    return Status(Code::kEnvironment,
                  fmt::format("the lock '{}' was removed or replaced while this run holds it", path_),
                  "do not delete the lock of a running run; use `lockstep stop`");
  }
  if (::futimens(fd_.get(), nullptr) != 0) return FileError("refresh", path_, errno);
  return Status::Ok();
}

void RunLock::Release() {
  if (!held()) return;
  // A forked child that ends through destructors holds a copy of this object, not the run.
  if (::getpid() != self_.pid) {
    fd_.reset();
    return;
  }
  // Unlink while still holding it, and only our own: after a removal the path may belong to somebody else.
  struct stat ours{}, there{};
  if (::fstat(fd_.get(), &ours) == 0 && ::stat(path_.c_str(), &there) == 0 && ours.st_ino == there.st_ino) {
    ::unlink(path_.c_str());
  }
  fd_.reset();
}

}  // namespace lockstep::record
