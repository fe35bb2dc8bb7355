#include "cache/lease.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/fd.h"
#include "base/files.h"
#include "base/json.h"
#include "base/quiet_thread.h"
#include "record/lock.h"

namespace lockstep::cache {
namespace {

std::string Nonce() {
  uint64_t words[2] = {};
  if (::getrandom(words, sizeof words, 0) != sizeof words) words[0] = static_cast<uint64_t>(::getpid());
  return fmt::format("{:016x}{:016x}", words[0], words[1]);
}

constexpr int kLooks = 3;  // a stale handle is a matter of opening the file again

struct LeaseFile {
  int error = 0;  // why nothing is known about it; ENOENT: there is none
  std::string content;
  int64_t stamp = 0;
};

// Opened, not only looked up: that is when network file systems ask the server.
LeaseFile ReadLease(const std::string& path) {
  LeaseFile file;
  for (int i = 0; i < kLooks; ++i) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info{};
    char buffer[4096];
    const ssize_t n = fd && ::fstat(fd.get(), &info) == 0 ? ::pread(fd.get(), buffer, sizeof buffer, 0) : -1;
    file.error = n < 0 ? errno : 0;
    if (n >= 0) {
      file.content.assign(buffer, static_cast<size_t>(n));
      file.stamp = static_cast<int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
    }
    if (file.error == 0 || file.error == ENOENT) break;
  }
  return file;
}

// A file system that answers with an error says nothing about who has the lease: it stays with its holder. If another
// process has taken it meanwhile, both do the same work.
bool MayBeOurs(const LeaseFile& file, const std::string& content) {
  return file.error == 0 ? file.content == content : file.error != ENOENT;
}

bool OwnerIsGone(const std::string& content) {
  const nlohmann::json json = nlohmann::json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("owner")) return false;
  const std::optional<record::LockOwner> owner = record::LockOwner::FromJson(json["owner"]);
  if (!owner || !owner->IsHere()) return false;
  return record::Judge(owner, 0, 0).state == record::LockState::kStale;
}

}  // namespace

struct Leases::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> held;  // path -> content
  bool ending = false;
  std::thread thread;

  void Touch() {
    const std::lock_guard<std::mutex> hold(mutex);
    for (auto it = held.begin(); it != held.end();) {
      if (MayBeOurs(ReadLease(it->first), it->second)) {
        // UTIME_NOW: the time of the file system's server, not of this machine.
        ::utimensat(AT_FDCWD, it->first.c_str(), nullptr, 0);
        ++it;
      } else {
        it = held.erase(it);
      }
    }
  }
};

Leases::Leases(LeaseTiming timing) : timing_(std::move(timing)), shared_(std::make_shared<Shared>()) {
  shared_->thread = StartQuietThread([shared = shared_.get(), every = timing_.heartbeat] {
    while (true) {
      {
        std::unique_lock<std::mutex> hold(shared->mutex);
        if (shared->changed.wait_for(hold, every, [&] { return shared->ending; })) return;
      }
      shared->Touch();
    }
  });
}

Leases::~Leases() {
  {
    const std::lock_guard<std::mutex> hold(shared_->mutex);
    shared_->ending = true;
  }
  shared_->changed.notify_all();
  shared_->thread.join();
  while (!shared_->held.empty()) Release(std::string(shared_->held.begin()->first));
}

Result<Leases::Taken> Leases::Take(const std::string& path) {
  const std::string content = ToJsonLine({{"owner", record::LockOwner::Self().ToJson()}, {"nonce", Nonce()}});
  const auto hold_it = [&] {
    const std::lock_guard<std::mutex> hold(shared_->mutex);
    shared_->held[path] = content;
    seen_.erase(path);
  };
  // Complete before it is there: a reader never sees half an owner. link fails if the name is taken, on every file
  // system that has links; O_EXCL is for the others.
  const std::string temporary = fmt::format("{}.tmp-{}-{}", path, ::getpid(), Nonce().substr(0, 8));
  LOCKSTEP_RETURN_IF_ERROR(WriteFileAtomic(temporary, content, 0644, Durability::kProcess));
  int error = ::link(temporary.c_str(), path.c_str()) == 0 ? 0 : errno;
  if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS) {
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    error = fd ? 0 : errno;
    if (fd && ::write(fd.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) error = EIO;
  }
  if (error != EEXIST) {
    ::unlink(temporary.c_str());
    if (error != 0) return FileError("create", path, error);
    hold_it();
    return Taken::kNew;
  }
  const LeaseFile file = ReadLease(path);
  bool expired = false;
  if (file.error == 0) {
    Seen& seen = seen_[path];
    if (seen.content != file.content || seen.stamp != file.stamp) seen = {file.content, file.stamp, timing_.now()};
    expired = OwnerIsGone(file.content) || timing_.now() - seen.since >= timing_.expiry;
  }
  if (!expired) {  // or it was given back just now: the next try has it
    ::unlink(temporary.c_str());
    return Taken::kHeldByOther;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int failed = errno;
    ::unlink(temporary.c_str());
    return FileError("take over", path, failed);
  }
  hold_it();
  return Holds(path) ? Taken::kTakenOver : Taken::kHeldByOther;
}

bool Leases::Holds(const std::string& path) {
  const std::lock_guard<std::mutex> hold(shared_->mutex);
  const auto found = shared_->held.find(path);
  if (found == shared_->held.end()) return false;
  if (MayBeOurs(ReadLease(path), found->second)) return true;
  shared_->held.erase(found);
  return false;
}

void Leases::Release(const std::string& path) {
  const bool ours = Holds(path);
  const std::lock_guard<std::mutex> hold(shared_->mutex);
  shared_->held.erase(path);
  if (ours) ::unlink(path.c_str());
}

void Leases::Touch() { shared_->Touch(); }

}  // namespace lockstep::cache
