#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>

#include "base/digits.h"
#include "base/fd.h"
#include "base/files.h"
#include "track/sink.h"
#include "track/whole_append.h"

namespace lockstep::track {
namespace {

constexpr char kCsvHeader[] = "step,attempt,t,name,value\n";
constexpr size_t kMostCsvBytes = 4u << 20;  // while a disk is full

// Of RFC 4180: quotes only where they are needed.
std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

// The header and the whole rows up to this step, in a file that replaces the one that is there.
Status KeepUpTo(const std::string& path, uint64_t step) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Status::Ok();  // the first attempt
  const std::string temporary = path + ".new";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << kCsvHeader;
  std::string row;
  for (std::string line; std::getline(in, line);) {
    row += line;
    row += '\n';
    if (std::count(row.begin(), row.end(), '"') % 2 != 0) continue;  // it goes on: a name with a newline
    const auto of = LeadingDigits<uint64_t>(row);
    if (!in.eof() && of && *of <= step) out << row;
    row.clear();
  }
  out.close();
  if (!out) return FileError("write", temporary, errno);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return FileError("rename", temporary, errno);
  return Status::Ok();
}

class CsvSink final : public Sink {
 public:
  CsvSink(std::string path, UniqueFd fd, off_t size) : path_(std::move(path)), fd_(std::move(fd)), size_(size) {
    if (size_ == 0) buffer_ = kCsvHeader;
  }

  void Scalars(const record::MetricLine& line) override {
    for (const auto& [name, value] : line.scalars) {
      if (buffer_.size() > kMostCsvBytes) {
        ++lost_;
        continue;
      }
      buffer_ +=
          fmt::format("{},{},{:.3f},{},{}\n", line.step.value_or(0), line.attempt, line.t, CsvField(name), value);
    }
  }

  void Rewind(double /*t*/, uint64_t step) override {
    if (!Send().ok() || !KeepUpTo(path_, step > 0 ? step - 1 : 0).ok()) return;
    fd_.reset(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    struct stat info{};
    size_ = fd_ && ::fstat(fd_.get(), &info) == 0 ? info.st_size : 0;
  }

  Status Flush() override {
    Status sent = Send();
    if (sent.ok() && lost_ > 0) {
      sent =
          Status(Code::kEnvironment, fmt::format("{} values were lost while '{}' could not be written", lost_, path_));
      lost_ = 0;
    }
    return sent;
  }

 private:
  // All or nothing, so that a full disk leaves no half of a row.
  Status Send() { return AppendWhole(fd_.get(), path_, &buffer_, &size_); }

  std::string path_;
  UniqueFd fd_;
  off_t size_;  // whole rows in the file
  std::string buffer_;
  uint64_t lost_ = 0;
};

}  // namespace

Result<std::unique_ptr<Sink>> OpenCsvSink(const std::string& path, uint64_t first_step) {
  if (const size_t slash = path.rfind('/'); slash != std::string::npos && slash > 0) {
    LOCKSTEP_RETURN_IF_ERROR(MakeDirs(path.substr(0, slash)).Context("CSV"));
  }
  LOCKSTEP_RETURN_IF_ERROR(KeepUpTo(path, first_step).Context("CSV"));
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  struct stat info{};
  if (!fd || ::fstat(fd.get(), &info) != 0) return FileError("open", path, errno).Context("CSV");
  return std::unique_ptr<Sink>(std::make_unique<CsvSink>(path, std::move(fd), info.st_size));
}

}  // namespace lockstep::track
