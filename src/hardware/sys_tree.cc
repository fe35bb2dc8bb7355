#include "hardware/sys_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdlib>

#include "base/digits.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/text.h"

namespace lockstep::hardware {
namespace {

// Numbers inside names compare by value.
bool NaturalLess(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (IsDigit(a[i]) && IsDigit(b[j])) {
      const size_t from_a = i, from_b = j;
      while (i < a.size() && IsDigit(a[i])) ++i;
      while (j < b.size() && IsDigit(b[j])) ++j;
      std::string_view x(a.data() + from_a, i - from_a), y(b.data() + from_b, j - from_b);
      while (x.size() > 1 && x.front() == '0') x.remove_prefix(1);
      while (y.size() > 1 && y.front() == '0') y.remove_prefix(1);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      continue;
    }
    if (a[i] != b[j]) return a[i] < b[j];
    ++i, ++j;
  }
  if (i < a.size() || j < b.size()) return i == a.size();
  return a < b;  // "01" and "1"
}

// "0000:1a:00.0"
bool IsPciAddress(std::string_view name) {
  if (name.size() < 12 || name[name.size() - 2] != '.' || name[name.size() - 5] != ':' || name[name.size() - 8] != ':')
    return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || c == ':' || c == '.'; });
}

}  // namespace

std::string SysTree::Text(const std::string& path) const {
  // Not ReadFile: its errors are long sentences, and most of what is asked for here is absent.
  const UniqueFd fd(::open(Path(path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return "";
  std::string text;
  char block[4096];
  while (text.size() < (1u << 20)) {
    const ssize_t size = ::read(fd.get(), block, sizeof block);
    if (size <= 0) break;
    text.append(block, static_cast<size_t>(size));
  }
  return std::string(Trim(text));
}

std::optional<int64_t> SysTree::Number(const std::string& path) const { return ToNumber(Text(path)); }

std::vector<std::string> SysTree::Names(const std::string& folder) const {
  Result<std::vector<std::string>> names = ListDir(Path(folder));
  if (!names.ok()) return {};
  std::sort(names->begin(), names->end(), NaturalLess);
  return *names;
}

bool SysTree::Exists(const std::string& path) const {
  struct stat info{};
  return ::stat(Path(path).c_str(), &info) == 0;
}

bool SysTree::IsFolder(const std::string& path) const {
  struct stat info{};
  return ::stat(Path(path).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string SysTree::Real(const std::string& path) const {
  std::vector<std::string> ahead = Split(path, '/'), done;
  std::reverse(ahead.begin(), ahead.end());
  auto joined = [&] {
    std::string text;
    for (const std::string& part : done) text += "/" + part;
    return text;
  };
  for (int links = 0; !ahead.empty();) {
    const std::string part = ahead.back();
    ahead.pop_back();
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (!done.empty()) done.pop_back();
      continue;
    }
    done.push_back(part);
    const std::string here = Path(joined());
    struct stat info{};
    if (::lstat(here.c_str(), &info) != 0) return "";
    if (!S_ISLNK(info.st_mode)) continue;
    char target[PATH_MAX];
    const ssize_t size = ::readlink(here.c_str(), target, sizeof target);
    if (size <= 0 || ++links > 40) return "";
    const std::string_view text(target, static_cast<size_t>(size));
    done.pop_back();
    if (text.front() == '/') done.clear();
    std::vector<std::string> parts = Split(text, '/');
    ahead.insert(ahead.end(), parts.rbegin(), parts.rend());
  }
  return done.empty() ? "/" : joined();
}

std::string SysTree::LinkTarget(const std::string& path) const {
  char target[PATH_MAX];
  const ssize_t size = ::readlink(Path(path).c_str(), target, sizeof target);
  return size <= 0 ? "" : std::string(target, static_cast<size_t>(size));
}

std::string SysTree::LinkName(const std::string& path) const {
  const std::string target = LinkTarget(path);
  return target.substr(target.rfind('/') + 1);
}

std::optional<int64_t> ToNumber(std::string_view text) {
  text = Trim(text);
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (!hex) return ParseInteger<int64_t>(text);
  text.remove_prefix(2);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  for (size_t at = 0; (at = text.find_first_not_of(" \t\r\n", at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(" \t\r\n", at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

std::string LineValue(std::string_view text, std::string_view name, char separator) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t at = line.find(separator);
    if (at != std::string_view::npos && Trim(line.substr(0, at)) == name) return std::string(Trim(line.substr(at + 1)));
  }
  return "";
}

std::optional<int> CountList(std::string_view list) {
  int count = 0;
  list = Trim(list);
  if (list.empty()) return std::nullopt;
  for (const std::string& part : Split(list, ',')) {
    const size_t dash = part.find('-');
    const auto first = ToNumber(part.substr(0, dash));
    const auto last = dash == std::string::npos ? first : ToNumber(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last - *first > (1 << 20)) return std::nullopt;
    count += static_cast<int>(*last - *first) + 1;
  }
  return count;
}

PciPlace PciOf(const SysTree& tree, const std::string& device_folder) {
  PciPlace place;
  const std::string real = tree.Real(device_folder);
  const std::vector<std::string> parts = Split(real, '/');
  // A virtio or auxiliary device lies below its PCI function: the last address on the way is the one.
  std::string below;
  for (const std::string& part : parts) {
    if (part.starts_with("pci")) {
      below = part;
    } else if (IsPciAddress(part)) {
      below += (below.empty() ? "" : "/") + part;
      place.address = part;
      place.path = below;
    }
  }
  if (place.address.empty()) place.address = LineValue(tree.Text(device_folder + "/uevent"), "PCI_SLOT_NAME", '=');
  std::optional<int64_t> numa = tree.Number(device_folder + "/numa_node");
  if (!numa && !place.address.empty()) numa = tree.Number("/sys/bus/pci/devices/" + place.address + "/numa_node");
  if (numa && *numa >= 0) place.numa = static_cast<int>(*numa);  // -1: the firmware does not say
  return place;
}

}  // namespace lockstep::hardware
