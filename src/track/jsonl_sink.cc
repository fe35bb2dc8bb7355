#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/fd.h"
#include "base/files.h"
#include "track/sink.h"
#include "track/whole_append.h"

namespace lockstep::track {
namespace {

constexpr size_t kMostRowBytes = 4u << 20;  // while a disk is full

class JsonlSink final : public Sink {
 public:
  JsonlSink(std::string path, UniqueFd fd, bool mid_line)
      : path_(std::move(path)), fd_(std::move(fd)), mid_line_(mid_line) {}

  void Scalars(const record::MetricLine& line) override {
    if (buffer_.size() > kMostRowBytes) {
      ++lost_;
      return;
    }
    record::AppendMetricLine(line, &buffer_);
    if (buffer_.size() >= record::kLongestMetricLine && !failed_) failed_ = !Send().ok();
  }

  Status Flush() override {
    Status sent = Send();
    failed_ = !sent.ok();
    if (sent.ok() && lost_ > 0) {
      sent = Status(Code::kEnvironment,
                    fmt::format("{} metric lines were lost while '{}' could not be written", lost_, path_));
      lost_ = 0;
    }
    return sent;
  }

 private:
  // Whole lines, as many as fit into one write.
  Status Send() {
    if (!buffer_.empty()) LOCKSTEP_RETURN_IF_ERROR(StillThere(fd_.get(), path_));
    while (!buffer_.empty()) {
      if (mid_line_) {
        // What stands there belongs to a killed writer or to a full disk; it must not swallow our first line.
        LOCKSTEP_RETURN_IF_ERROR(WriteSome("\n").second);
        mid_line_ = false;
      }
      size_t end = std::min(buffer_.size(), record::kLongestMetricLine);
      end = buffer_.rfind('\n', end - 1) + 1;
      auto [written, status] = WriteSome(std::string_view(buffer_).substr(0, end));
      // A torn line is written again as a whole.
      const size_t whole = written == 0 ? 0 : buffer_.rfind('\n', written - 1) + 1;
      mid_line_ = written != whole;
      buffer_.erase(0, whole);
      if (!status.ok()) return status;
    }
    return Status::Ok();
  }

  std::pair<size_t, Status> WriteSome(std::string_view data) const {
    size_t done = 0;
    while (done < data.size()) {
      const ssize_t n = ::write(fd_.get(), data.data() + done, data.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return {done, FileError("write", path_, errno)};
      done += static_cast<size_t>(n);
    }
    return {done, Status::Ok()};
  }

  std::string path_;
  UniqueFd fd_;
  bool mid_line_;
  bool failed_ = false;  // wait for the next Flush before trying again
  std::string buffer_;
  uint64_t lost_ = 0;
};

}  // namespace

Result<std::unique_ptr<Sink>> OpenJsonlSink(const std::string& path) {
  if (size_t slash = path.rfind('/'); slash != std::string::npos && slash > 0) {
    LOCKSTEP_RETURN_IF_ERROR(MakeDirs(path.substr(0, slash)).Context("metric lines"));
  }
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  // A pipe or a device cannot always be opened for reading; whether a line is open there does not matter.
  if (!fd) fd.reset(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!fd) return FileError("open", path, errno).Context("metric lines");
  struct stat info{};
  char last = '\n';
  if (::fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    if (::pread(fd.get(), &last, 1, info.st_size - 1) != 1) last = '\n';
  }
  return std::unique_ptr<Sink>(std::make_unique<JsonlSink>(path, std::move(fd), last != '\n'));
}

}  // namespace lockstep::track
