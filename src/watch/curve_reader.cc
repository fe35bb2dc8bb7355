#include "watch/curve_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/fd.h"

namespace lockstep::watch {
namespace {

constexpr size_t kPlacesAtOnce = 128;
constexpr size_t kCurveBytesAtOnce = 4u << 20;

}  // namespace

void CurveReader::ReadPlace(size_t place, const std::function<void(const record::MetricLine&)>& each) const {
  UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd) return;
  const size_t begin = (size_ - limits_.place_bytes) / limits_.places * place;
  std::string text(limits_.place_bytes, '\0');
  const ssize_t n = ::pread(fd.get(), text.data(), text.size(), static_cast<off_t>(begin));
  if (n <= 0) return;
  std::string_view rest = std::string_view(text).substr(0, static_cast<size_t>(n));
  // It begins inside a line, unless it is the first.
  if (begin > 0) rest.remove_prefix(std::min(rest.size(), rest.find('\n')));
  for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
    if (end == 0) continue;
    if (const auto line = record::ParseMetricLine(rest.substr(0, end))) each(*line);
  }
}

bool CurveReader::Read(const std::function<void(const record::MetricLine&)>& each) {
  if (!begun_) {
    struct stat info{};
    if (::stat(path_.c_str(), &info) != 0) return false;
    begun_ = true;
    size_ = static_cast<size_t>(std::max<off_t>(0, info.st_size));
    whole_ = size_ <= limits_.whole_up_to;
    if (!whole_) tail_.SkipToLast(limits_.place_bytes);
  }
  if (!whole_ && place_ < limits_.places) {
    for (size_t i = 0; i < kPlacesAtOnce && place_ < limits_.places; ++i) ReadPlace(place_++, each);
    part_ = static_cast<double>(place_) / static_cast<double>(limits_.places);
    return true;
  }
  const bool more = tail_.Read(each, kCurveBytesAtOnce);
  ++pieces_;
  part_ = more ? std::min(0.99, static_cast<double>(pieces_ * kCurveBytesAtOnce) / static_cast<double>(size_ + 1)) : 1;
  return more;
}

}  // namespace lockstep::watch
