#include "preflight/digest.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <deque>
#include <vector>

#include "base/checksum.h"
#include "base/files.h"
#include "base/text.h"

namespace lockstep::preflight {
namespace {

constexpr std::array kSource = {".py",   ".pyx", ".cu",   ".cuh",  ".cc",  ".cpp", ".c",  ".h",  ".hpp",
                                ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".sh", ".txt"};
constexpr uint64_t kLargestSource = 4 << 20;  // beyond that it is data

bool LooksLikeSource(const std::string& name) {
  for (const char* suffix : kSource) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

// Folders that hold no source of the program, or another copy of it.
bool Passed(const std::string& path, const std::string& name) {
  if (name.starts_with(".") || name == "__pycache__" || name == "node_modules" || name == "runs" || name == "wandb" ||
      name == "checkpoints" || name == "outputs" || name == "logs") {
    return true;
  }
  struct stat info{};
  return stat((path + "/pyvenv.cfg").c_str(), &info) == 0 || stat((path + "/conda-meta").c_str(), &info) == 0;
}

}  // namespace

Result<TreeDigest> DigestTree(const std::string& root, const TreeOptions& options) {
  struct stat info{};
  if (stat(root.c_str(), &info) != 0) return FileError("read", root, errno);
  TreeDigest tree;
  uint64_t read = 0;
  const auto add = [&](const std::string& path, const std::string& name, uint64_t size) -> Status {
    if (tree.files >= options.max_files || (options.content && read + size > options.max_bytes)) {
      tree.cut = true;
      return {};
    }
    ++tree.files;
    tree.bytes += size;
    if (!options.content) {
      tree.entries[name] = std::to_string(size);
      return {};
    }
    auto text = ReadFile(path, size + (1 << 20));
    if (!text.ok()) return text.status();
    read += text->size();
    tree.entries[name] = ChecksumText(*text);
    return {};
  };
  if (!S_ISDIR(info.st_mode)) {
    const std::string name = root.substr(root.rfind('/') + 1);
    LOCKSTEP_RETURN_IF_ERROR(add(root, name, static_cast<uint64_t>(info.st_size)));
  } else {
    std::deque<std::string> folders{""};
    while (!folders.empty() && !tree.cut) {
      const std::string folder = std::move(folders.front());
      folders.pop_front();
      auto names = ListDir(folder.empty() ? root : root + "/" + folder);
      if (!names.ok()) {
        if (folder.empty()) return names.status();
        tree.entries[folder + "/"] = "unreadable";
        continue;
      }
      for (const std::string& name : *names) {
        const std::string below = folder.empty() ? name : folder + "/" + name;
        const std::string path = root + "/" + below;
        // Of links only the target's size counts: data is often a farm of links.
        if (lstat(path.c_str(), &info) != 0) continue;
        const bool link = S_ISLNK(info.st_mode);
        if (link && stat(path.c_str(), &info) != 0) {
          tree.entries[below] = "broken link";
          continue;
        }
        if (S_ISDIR(info.st_mode)) {
          if (!link && !(options.code && Passed(path, name))) folders.push_back(below);
          continue;
        }
        if (!S_ISREG(info.st_mode)) continue;
        const auto size = static_cast<uint64_t>(info.st_size);
        if (options.code && (!LooksLikeSource(name) || size > kLargestSource)) continue;
        const Status added = add(path, below, size);
        if (!added.ok()) tree.entries[below] = "unreadable";
        if (tree.cut) break;
      }
    }
  }
  Checksum sum;
  for (const auto& [name, value] : tree.entries) {
    sum.Update(name.data(), name.size() + 1);
    sum.Update(value.data(), value.size() + 1);
  }
  tree.digest = sum.Text();
  return tree;
}

std::string GitCommit(std::string folder) {
  while (!folder.empty()) {
    std::string git = folder + "/.git";
    if (auto link = ReadFile(git, 4096); link.ok() && link->starts_with("gitdir: ")) {  // a worktree or submodule
      const std::string target(Trim(link->substr(8)));
      git = target.starts_with("/") ? target : folder + "/" + target;
    }
    if (auto head = ReadFile(git + "/HEAD", 4096); head.ok()) {
      std::string text(Trim(*head));
      if (!text.starts_with("ref: ")) return text;
      std::string common = git;
      if (auto shared = ReadFile(git + "/commondir", 4096); shared.ok())
        common = git + "/" + std::string(Trim(*shared));
      for (const std::string& place : {git, common}) {
        if (auto commit = ReadFile(place + "/" + text.substr(5), 4096); commit.ok()) return std::string(Trim(*commit));
      }
      if (auto packed = ReadFile(common + "/packed-refs", 4 << 20); packed.ok()) {
        for (const std::string& line : Split(*packed, '\n')) {
          if (line.ends_with(" " + text.substr(5))) return line.substr(0, line.find(' '));
        }
      }
      return "";
    }
    const size_t slash = folder.rfind('/');
    if (slash == std::string::npos || folder == "/") break;
    folder = slash == 0 ? "/" : folder.substr(0, slash);
    if (folder == "/") break;
  }
  return "";
}

}  // namespace lockstep::preflight
