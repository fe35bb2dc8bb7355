// The files of samples: appended to, thinned, followed.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/digits.h"
#include "base/files.h"
#include "record/samples.h"

namespace lockstep::record {
namespace {

constexpr size_t kAllSampleFiles = 128u << 20;
constexpr size_t kSmallestLimit = 1u << 20, kLargestLimit = 16u << 20;

}  // namespace

std::string TelemetryDir(const std::string& run_path) { return run_path + "/telemetry"; }

std::string SamplePath(const std::string& run_path, int node) {
  return fmt::format("{}/telemetry/node-{}.jsonl", run_path, node);
}

std::vector<int> SampledNodes(const std::string& run_path) {
  std::vector<int> nodes;
  const Result<std::vector<std::string>> names = ListDir(TelemetryDir(run_path));
  if (!names.ok()) return nodes;
  constexpr std::string_view kBegin = "node-", kEnd = ".jsonl";
  for (std::string_view name : *names) {
    if (!name.starts_with(kBegin) || !name.ends_with(kEnd) || name.size() <= kBegin.size() + kEnd.size()) continue;
    const std::string_view digits = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
    if (const auto number = ParseDigits(digits); number && *number < (1 << 24)) {
      nodes.push_back(*number);
    }
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

size_t SampleFileLimit(int nnodes) {
  return std::clamp(kAllSampleFiles / static_cast<size_t>(std::max(1, nnodes)), kSmallestLimit, kLargestLimit);
}

Status SampleWriter::Open(int node, File* file) {
  const std::string path = SamplePath(run_path_, node);
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(TelemetryDir(run_path_)));
  file->fd.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644));
  struct stat info{};
  if (!file->fd || ::fstat(file->fd.get(), &info) != 0) return FileError("open", path, errno);
  file->size = static_cast<size_t>(info.st_size);
  char last = '\n';
  if (info.st_size > 0 && ::pread(file->fd.get(), &last, 1, info.st_size - 1) != 1) last = 0;
  file->mid_line = last != '\n';
  return {};
}

// Of lines older than the last quarter every second one goes.
Status SampleWriter::Thin(int node, File* file) {
  const std::string path = SamplePath(run_path_, node);
  const Result<std::string> whole = ReadFile(path, 2 * limit_ + kLongestSampleLine);
  std::string kept;
  if (whole.ok()) {
    const size_t recent = whole->size() - whole->size() / 4;
    size_t number = 0;
    for (size_t at = 0; at < whole->size(); ++number) {
      const size_t end = whole->find('\n', at);
      if (end == std::string::npos) break;  // torn
      if (at >= recent || number % 2 == 0) kept.append(*whole, at, end + 1 - at);
      at = end + 1;
    }
  }  // else: it is not what we wrote; begin anew
  LOCKSTEP_RETURN_IF_ERROR(WriteFileAtomic(path, kept, 0644, Durability::kProcess));
  return Open(node, file);
}

void SampleWriter::Write(const NodeSample& sample) {
  File& file = files_[sample.node];
  line_.clear();
  AppendSampleLine(sample, &line_);
  Status status = file.fd ? Status() : Open(sample.node, &file);
  if (status.ok() && file.size + line_.size() > limit_) status = Thin(sample.node, &file);
  if (status.ok()) {
    if (file.mid_line) line_.insert(0, 1, '\n');
    const ssize_t n = ::write(file.fd.get(), line_.data(), line_.size());
    if (n > 0) file.size += static_cast<size_t>(n);
    const bool whole = n == static_cast<ssize_t>(line_.size());
    if (n > 0) file.mid_line = !whole;
    if (!whole) status = FileError("append to", SamplePath(run_path_, sample.node), n < 0 ? errno : ENOSPC);
  }
  if (status.ok()) return;
  ++lost_;
  error_ = status;
  files_.erase(sample.node);
}

bool SampleFollower::Read(const std::function<void(const NodeSample&)>& each, size_t max_bytes) {
  return lines_.Read(
      [&](std::string_view text) {
        const std::optional<NodeSample> sample = ParseSampleLine(text);
        if (!sample) return false;
        const auto [known, first] = newest_.try_emplace(sample->launcher, sample->n);
        if (!first && sample->n <= known->second) return true;  // of a file that was thinned and read anew
        known->second = sample->n;
        each(*sample);
        return true;
      },
      max_bytes);
}

bool SampleReader::Read(const std::function<void(const NodeSample&)>& each, std::optional<size_t> last_bytes) {
  for (const int node : SampledNodes(run_path_)) {
    const auto [file, first] = files_.try_emplace(node, SamplePath(run_path_, node));
    if (first && last_bytes) file->second.SkipToLast(*last_bytes);
  }
  bool more = false;
  for (auto& [node, file] : files_) more = file.Read(each) || more;
  return more;
}

uint64_t SampleReader::bad_lines() const {
  uint64_t sum = 0;
  for (const auto& [node, file] : files_) sum += file.bad_lines();
  return sum;
}

}  // namespace lockstep::record
