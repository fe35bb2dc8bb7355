#include "watch/web/pyramid_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/checksum.h"
#include "base/files.h"

namespace lockstep::watch {
namespace {

constexpr char kPyramidMagic[9] = "LKSTPYR1";
constexpr uint64_t kHeaderBytes = 16, kFrameBytes = 16;
constexpr uint32_t kSeriesFrame = 1, kBucketFrame = 2, kCutFrame = 3, kStateFrame = 4;
constexpr uint32_t kMostPayload = 64u << 20;
constexpr size_t kMostSeries = 2000, kLongestSeriesName = 4096;

struct FrameHead {
  uint32_t kind = 0, bytes = 0;
  uint64_t sum = 0;
};
static_assert(sizeof(FrameHead) == kFrameBytes);

bool ReadExact(int fd, void* data, size_t bytes, uint64_t place) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, to, bytes, static_cast<off_t>(place));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n;
    place += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

Status WriteExact(int fd, std::string_view data, uint64_t place) {
  while (!data.empty()) {
    const ssize_t n = ::pwrite(fd, data.data(), data.size(), static_cast<off_t>(place));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Status(Code::kEnvironment, "cannot write the pyramid: " + ErrnoText(errno));
    data.remove_prefix(static_cast<size_t>(n));
    place += static_cast<uint64_t>(n);
  }
  return Status::Ok();
}

UniqueFd UnnamedFile() {
  const char* folder = std::getenv("TMPDIR");
  if (folder == nullptr || *folder == 0) folder = "/tmp";
  UniqueFd fd(::open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd) return fd;
  std::string name = fmt::format("{}/lockstep-pyramid-XXXXXX", folder);
  fd.reset(::mkostemp(name.data(), O_CLOEXEC));
  if (fd) ::unlink(name.c_str());
  return fd;
}

void CopyAll(int from, int to) {
  std::vector<char> buffer(1u << 20);
  uint64_t place = 0;
  for (ssize_t n; (n = ::pread(from, buffer.data(), buffer.size(), static_cast<off_t>(place))) > 0;) {
    if (!WriteExact(to, {buffer.data(), static_cast<size_t>(n)}, place).ok()) return;
    place += static_cast<uint64_t>(n);
  }
}

}  // namespace

void Bucket::Join(const Bucket& next) {
  if (values() == 0) {
    *this = next;
    return;
  }
  if (next.count > 0) {
    low = count > 0 ? std::min(low, next.low) : next.low;
    high = count > 0 ? std::max(high, next.high) : next.high;
    sum += next.sum;
  }
  last_step = next.last_step;
  last_t = next.last_t;
  bytes = next.offset + next.bytes - offset;
  count += next.count;
  not_finite += next.not_finite;
}

void PyramidFile::Table::Cut(uint64_t to) {
  if (to >= count) return;
  const uint64_t in_file = count - pending.size();
  if (to > in_file) {
    pending.resize(to - in_file);
  } else {
    pending.clear();
    while (!extents.empty() && extents.back().first >= to) extents.pop_back();
    if (!extents.empty()) extents.back().count = std::min(extents.back().count, to - extents.back().first);
  }
  count = to;
}

Result<PyramidFile> PyramidFile::Open(const std::string& path, uint64_t sum, uint64_t size) {
  PyramidFile file;
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (::mkdir(folder.c_str(), 0755) != 0) errno = 0;  // there already, or not allowed: open says so
  file.fd_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file.fd_ || ::flock(file.fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    UniqueFd theirs(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    file.fd_ = UnnamedFile();
    if (!file.fd_) return FileError("make a temporary file beside", path, errno);
    file.shared_ = false;
    if (theirs) CopyAll(theirs.get(), file.fd_.get());
  }
  file.end_ = file.Scan(sum);
  if (file.end_ == 0 || !file.Consistent(size)) LOCKSTEP_RETURN_IF_ERROR(file.Begin(sum));
  if (::ftruncate(file.fd_.get(), static_cast<off_t>(file.end_)) != 0) return FileError("truncate", path, errno);
  return file;
}

bool PyramidFile::Consistent(uint64_t size) const {
  if (state_.offset > size) return false;
  for (const Levels& levels : tables_) {
    for (size_t level = 1; level < kMostLevels; ++level) {
      if (levels[level].count != levels[level - 1].count / kBucketFan) return false;
    }
  }
  return true;
}

Status PyramidFile::Begin(uint64_t sum) {
  state_ = PyramidState();
  names_.clear();
  tables_.clear();
  std::string head(kPyramidMagic, 8);
  head.append(reinterpret_cast<const char*>(&sum), sizeof sum);
  end_ = kHeaderBytes;
  if (::ftruncate(fd_.get(), 0) != 0) return Status(Code::kEnvironment, "cannot empty it: " + ErrnoText(errno));
  return WriteExact(fd_.get(), head, 0);
}

uint64_t PyramidFile::Scan(uint64_t sum) {
  struct stat info{};
  char head[kHeaderBytes];
  if (::fstat(fd_.get(), &info) != 0 || !ReadExact(fd_.get(), head, sizeof head, 0)) return 0;
  if (std::memcmp(head, kPyramidMagic, 8) != 0 || std::memcmp(head + 8, &sum, 8) != 0) return 0;
  // Frames behind the last state belong to a torn addition: then a second scan ends before them.
  uint64_t good = static_cast<uint64_t>(info.st_size);
  for (uint64_t limit = 0; limit != good;) {
    limit = good;
    good = ScanTo(limit);
  }
  return good;
}

uint64_t PyramidFile::ScanTo(uint64_t limit) {
  state_ = PyramidState();
  names_.clear();
  tables_.clear();
  uint64_t good = kHeaderBytes;
  std::string payload;
  for (uint64_t place = kHeaderBytes; place + kFrameBytes <= limit;) {
    FrameHead frame;
    if (!ReadExact(fd_.get(), &frame, sizeof frame, place)) break;
    if (frame.bytes > kMostPayload || frame.bytes > limit - place - kFrameBytes) break;
    payload.resize(frame.bytes);
    if (!ReadExact(fd_.get(), payload.data(), payload.size(), place + kFrameBytes)) break;
    if (Checksum64(payload.data(), payload.size(), frame.kind) != frame.sum) break;
    if (!Apply(frame.kind, payload, place + kFrameBytes)) break;
    place += kFrameBytes + frame.bytes;
    if (frame.kind == kStateFrame) good = place;
  }
  return good;
}

bool PyramidFile::Apply(uint32_t kind, std::string_view payload, uint64_t place) {
  if (kind == kSeriesFrame) {
    if (payload.empty() || payload.size() > kLongestSeriesName || names_.size() >= kMostSeries) return false;
    names_.emplace_back(payload);
    tables_.emplace_back();
    return true;
  }
  if (kind == kStateFrame) {
    if (payload.size() != sizeof(PyramidState)) return false;
    std::memcpy(&state_, payload.data(), sizeof state_);
    return true;
  }
  uint32_t which[2];
  if (payload.size() < sizeof which) return false;
  std::memcpy(which, payload.data(), sizeof which);
  if (which[0] >= tables_.size() || which[1] >= kMostLevels) return false;
  if (kind == kBucketFrame) {
    const uint64_t bytes = payload.size() - sizeof which;
    if (bytes % sizeof(Bucket) != 0) return false;
    Table& table = tables_[which[0]][which[1]];
    table.extents.push_back({table.count, bytes / sizeof(Bucket), place + sizeof which});
    table.count += bytes / sizeof(Bucket);
    return true;
  }
  if (kind != kCutFrame || payload.size() != 16) return false;
  uint64_t keep = 0;
  std::memcpy(&keep, payload.data() + 8, sizeof keep);
  CutTables(which[0], keep);
  return true;
}

void PyramidFile::CutTables(size_t series, uint64_t keep) {
  for (Table& table : tables_[series]) {
    table.Cut(keep);
    keep /= kBucketFan;
  }
}

Status PyramidFile::Read(size_t series, size_t level, uint64_t begin, uint64_t end, std::vector<Bucket>* out) const {
  const Table& table = tables_[series][level];
  end = std::min(end, table.count);
  auto extent = std::partition_point(table.extents.begin(), table.extents.end(),
                                     [&](const Extent& e) { return e.first + e.count <= begin; });
  for (; extent != table.extents.end() && begin < end && extent->first < end; ++extent) {
    const uint64_t count = std::min(end, extent->first + extent->count) - begin;
    const size_t before = out->size();
    out->resize(before + count);
    if (!ReadExact(fd_.get(), out->data() + before, count * sizeof(Bucket),
                   extent->place + (begin - extent->first) * sizeof(Bucket))) {
      out->resize(before);
      return Status(Code::kEnvironment, "the pyramid became shorter while it was read");
    }
    begin += count;
  }
  const uint64_t in_file = table.count - table.pending.size();
  for (; begin < end && begin >= in_file; ++begin) out->push_back(table.pending[begin - in_file]);
  return Status::Ok();
}

Bucket PyramidFile::At(size_t series, size_t level, uint64_t index) const {
  std::vector<Bucket> one;
  if (!Read(series, level, index, index + 1, &one).ok() || one.empty()) return Bucket();
  return one.front();
}

void PyramidFile::Frame(uint32_t kind, std::string_view payload) {
  const FrameHead head{kind, static_cast<uint32_t>(payload.size()), Checksum64(payload.data(), payload.size(), kind)};
  addition_.append(reinterpret_cast<const char*>(&head), sizeof head).append(payload);
}

size_t PyramidFile::AddSeries(std::string_view name) {
  names_.emplace_back(name.substr(0, kLongestSeriesName));
  tables_.emplace_back();
  Frame(kSeriesFrame, names_.back());
  return names_.size() - 1;
}

void PyramidFile::Append(size_t series, size_t level, const Bucket& bucket) {
  tables_[series][level].pending.push_back(bucket);
  ++tables_[series][level].count;
}

void PyramidFile::Cut(size_t series, uint64_t count) {
  if (tables_[series][0].count <= count) return;
  FlushPending();  // it stands before the cut in the file, too
  const uint32_t which[2] = {static_cast<uint32_t>(series), 0};
  std::string payload(reinterpret_cast<const char*>(which), sizeof which);
  payload.append(reinterpret_cast<const char*>(&count), sizeof count);
  Frame(kCutFrame, payload);
  CutTables(series, count);
}

void PyramidFile::FlushPending() {
  for (size_t series = 0; series < tables_.size(); ++series) {
    for (size_t level = 0; level < kMostLevels; ++level) {
      Table& table = tables_[series][level];
      if (table.pending.empty()) continue;
      const uint32_t which[2] = {static_cast<uint32_t>(series), static_cast<uint32_t>(level)};
      std::string payload(reinterpret_cast<const char*>(which), sizeof which);
      payload.append(reinterpret_cast<const char*>(table.pending.data()), table.pending.size() * sizeof(Bucket));
      const uint64_t count = table.pending.size();
      table.extents.push_back({table.count - count, count, end_ + addition_.size() + kFrameBytes + sizeof which});
      Frame(kBucketFrame, payload);
      table.pending.clear();
    }
  }
  if (!failed_.ok()) return;
  failed_ = WriteExact(fd_.get(), addition_, end_);
  end_ += addition_.size();
  addition_.clear();
}

Status PyramidFile::Commit(const PyramidState& state) {
  FlushPending();
  Frame(kStateFrame, {reinterpret_cast<const char*>(&state), sizeof state});
  FlushPending();
  state_ = state;
  return failed_;
}

}  // namespace lockstep::watch
