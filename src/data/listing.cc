#include "data/listing.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <map>
#include <set>

#include "base/digits.h"
#include "base/files.h"
#include "base/text.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array kImageEndings = {".png", ".jpg", ".jpeg"};
constexpr std::array kVideoEndings = {".mp4", ".mkv",  ".mov", ".avi", ".webm", ".m4v",
                                      ".mpg", ".mpeg", ".ts",  ".flv", ".wmv"};

// Lower case, with the dot; "" without one.
std::string Ending(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return "";
  std::string ending(name.substr(dot));
  for (char& c : ending) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return ending;
}

Status Walk(const std::string& root, const std::string& name, std::set<std::pair<dev_t, ino_t>>* seen,
            std::vector<Folder>* folders) {
  const std::string path = JoinPath(root, name);
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return FileError("read folder", path, errno);
  if (!S_ISDIR(info.st_mode)) return FileError("read folder", path, ENOTDIR);
  if (!seen->insert({info.st_dev, info.st_ino}).second) return Status::Ok();
  Result<std::vector<Entry>> entries = ListEntries(path);
  if (!entries.ok()) return entries.status();
  const size_t here = folders->size();
  folders->push_back({name, {}});
  for (const Entry& entry : *entries) {
    if (entry.is_folder) {
      LOCKSTEP_RETURN_IF_ERROR(Walk(root, name.empty() ? entry.name : name + "/" + entry.name, seen, folders));
    } else {
      (*folders)[here].files.push_back(entry.name);
    }
  }
  return Status::Ok();
}

}  // namespace

const char* const kImageNames = "*.png *.jpg *.jpeg";
const char* const kVideoNames = "*.mp4 *.mkv *.mov *.avi *.webm *.m4v *.mpg *.mpeg *.ts *.flv *.wmv";

bool NaturalLess(std::string_view a, std::string_view b) {
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (!IsDigit(a[i]) || !IsDigit(b[j])) {
      if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
      ++i, ++j;
      continue;
    }
    while (i < a.size() && a[i] == '0') ++i;
    while (j < b.size() && b[j] == '0') ++j;
    const size_t a_start = i;
    const size_t b_start = j;
    while (i < a.size() && IsDigit(a[i])) ++i;
    while (j < b.size() && IsDigit(b[j])) ++j;
    const std::string_view a_number = a.substr(a_start, i - a_start);
    const std::string_view b_number = b.substr(b_start, j - b_start);
    if (a_number.size() != b_number.size()) return a_number.size() < b_number.size();
    if (a_number != b_number) return a_number < b_number;
  }
  if (i < a.size() || j < b.size()) return j < b.size();
  return a < b;  // "7" and "07": equal numbers still have an order
}

Result<std::vector<Entry>> ListEntries(const std::string& path, bool hidden) {
  std::error_code error;
  fs::directory_iterator it(path, error);
  if (error) return FileError("read folder", path, error.value());
  std::vector<Entry> entries;
  while (it != fs::directory_iterator()) {
    std::string name = it->path().filename().string();
    if (hidden || !name.starts_with('.')) {
      std::error_code unknown;  // of a link to nowhere: it is listed as a file, and reading it says what is wrong
      const bool is_folder = it->is_directory(unknown);
      entries.push_back({std::move(name), is_folder});
    }
    it.increment(error);
    if (error) return FileError("read folder", path, error.value());
  }
  std::ranges::sort(entries, NaturalLess, &Entry::name);
  return entries;
}

Result<std::vector<Folder>> ListFolders(const std::string& root) {
  std::set<std::pair<dev_t, ino_t>> seen;
  std::vector<Folder> folders;
  LOCKSTEP_RETURN_IF_ERROR(Walk(root, "", &seen, &folders));
  std::ranges::sort(folders, NaturalLess, &Folder::name);
  return folders;
}

bool IsImageName(std::string_view name) {
  return std::ranges::find(kImageEndings, Ending(name)) != kImageEndings.end();
}
bool IsVideoName(std::string_view name) {
  return std::ranges::find(kVideoEndings, Ending(name)) != kVideoEndings.end();
}

std::string SummarizeFiles(const std::vector<Folder>& folders) {
  std::map<std::string, size_t> kinds;
  size_t files = 0;
  for (const Folder& folder : folders) {
    files += folder.files.size();
    for (const std::string& file : folder.files) ++kinds[Ending(file)];
  }
  if (files == 0) return "no files";
  std::vector<std::pair<size_t, std::string>> order;
  for (const auto& [ending, count] : kinds) order.emplace_back(count, ending.empty() ? "without ending" : ending);
  std::ranges::sort(order, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text = fmt::format("{} file{}: ", files, files == 1 ? "" : "s");
  for (size_t i = 0; i < order.size() && i < 5; ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", order[i].first, Printable(order[i].second, 24));
  }
  return order.size() > 5 ? text + ", ..." : text;
}

std::string JoinPath(const std::string& root, const std::string& name) {
  if (name.empty()) return root;
  if (root.empty() || name.starts_with('/')) return name;
  return root.ends_with('/') ? root + name : root + "/" + name;
}

}  // namespace lockstep::data
