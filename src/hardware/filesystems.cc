// File systems a job writes to: mount and type from mountinfo, room from statvfs. Below a root the room is read from
// /statvfs.json of the tree: {"/dev/shm": {"total": ..., "free": ..., "inodes": ..., "inodes_free": ...}} by mount.
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <future>
#include <thread>

#include "base/json.h"
#include "base/text.h"
#include "hardware/hardware_parts.h"

namespace lockstep::hardware {
namespace {

// A dead file server holds its callers in the kernel for as long as it is dead.
constexpr std::chrono::seconds kPatience{2};

struct Mount {
  std::string path, type;
  bool read_only = false;
};

// Blanks and backslashes in mount points are written \040.
std::string Unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    auto octal = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool HasOption(const std::string& options, const std::string& option) {
  const std::vector<std::string> all = Split(options, ',');
  return std::find(all.begin(), all.end(), option) != all.end();
}

std::vector<Mount> ReadMounts(const SysTree& tree) {
  std::vector<Mount> mounts;
  // "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue"
  for (const std::string& line : Split(tree.Text("/proc/self/mountinfo"), '\n')) {
    const std::vector<std::string> words = Words(line);
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 2) continue;
    mounts.push_back({Unescape(words[4]), dash[1],
                      HasOption(words[5], "ro") || (words.end() - dash > 3 && HasOption(dash[3], "ro"))});
  }
  if (!mounts.empty()) return mounts;
  std::string text = tree.Text("/proc/self/mounts");
  if (text.empty()) text = tree.Text("/proc/mounts");
  for (const std::string& line : Split(text, '\n')) {
    const std::vector<std::string> words = Words(line);
    if (words.size() >= 4) mounts.push_back({Unescape(words[1]), words[2], HasOption(words[3], "ro")});
  }
  return mounts;
}

bool IsBelow(const std::string& path, const std::string& mount) {
  return mount == "/" || (path.starts_with(mount) && (path.size() == mount.size() || path[mount.size()] == '/'));
}

bool IsRemote(const std::string& type) {
  for (const char* name : {"nfs", "lustre", "ceph", "fuse", "cifs", "smb", "gpfs", "beegfs", "glusterfs", "9p",
                           "wekafs", "pvfs2", "afs", "virtiofs"})
    if (type.starts_with(name)) return true;
  return false;
}

struct Room {
  bool known = false;
  int error = 0;
  struct statvfs info{};
};

Room Ask(const std::string& path) {
  Room room;
  room.known = ::statvfs(path.c_str(), &room.info) == 0;
  room.error = room.known ? 0 : errno;
  return room;
}

// nullopt: no answer in time. The thread is left behind; it ends when the server answers or with the process.
std::optional<Room> AskPatiently(const std::string& path) {
  auto promise = std::make_shared<std::promise<Room>>();
  std::future<Room> answer = promise->get_future();
  std::thread([promise, path] { promise->set_value(Ask(path)); }).detach();
  if (answer.wait_for(kPatience) != std::future_status::ready) return std::nullopt;
  return answer.get();
}

void FillFromDisk(Filesystem* fs, Hardware* here) {
  const std::optional<Room> room = IsRemote(fs->type) ? AskPatiently(fs->path) : Ask(fs->path);
  if (!room) {
    here->notes.push_back(
        fmt::format("{} ({} at {}) does not answer within {} s", fs->path, fs->type, fs->mount, kPatience.count()));
    return;
  }
  if (!room->known) {
    here->notes.push_back(fmt::format("{}: room unknown ({})", fs->path, ErrnoText(room->error)));
    return;
  }
  const struct statvfs& info = room->info;
  const uint64_t block = info.f_frsize ? info.f_frsize : info.f_bsize;
  fs->total = info.f_blocks * block;
  fs->free = info.f_bavail * block;  // what an ordinary user may take
  // Some file systems make inodes as needed and say 0.
  if (info.f_files > 0) {
    fs->inodes = info.f_files;
    fs->inodes_free = info.f_favail;
  }
  fs->read_only = fs->read_only || (info.f_flag & ST_RDONLY);
}

void FillFromTree(const nlohmann::json& all, Filesystem* fs) {
  const nlohmann::json* row = nullptr;
  for (const std::string& key : {fs->path, fs->mount})
    if (!row && all.is_object() && all.contains(key) && all[key].is_object()) row = &all[key];
  if (!row) return;
  auto number = [&](const char* name) -> std::optional<uint64_t> {
    const auto it = row->find(name);
    return it != row->end() && it->is_number_unsigned() ? std::optional<uint64_t>(it->get<uint64_t>()) : std::nullopt;
  };
  fs->total = number("total");
  fs->free = number("free");
  fs->inodes = number("inodes");
  fs->inodes_free = number("inodes_free");
}

}  // namespace

void ScanFilesystems(const SysTree& tree, const std::vector<std::string>& folders, Hardware* here) {
  std::vector<std::string> paths = {"/dev/shm", "/tmp"};
  char cwd[PATH_MAX];
  if (tree.real() && ::getcwd(cwd, sizeof cwd)) paths.emplace_back(cwd);
  for (const std::string& folder : folders) {
    if (folder.empty()) continue;
    paths.push_back(folder.front() == '/' || !tree.real() ? folder : std::string(cwd) + "/" + folder);
  }
  const std::vector<Mount> mounts = ReadMounts(tree);
  const nlohmann::json rooms =
      tree.real() ? nlohmann::json() : nlohmann::json::parse(tree.Text("/statvfs.json"), nullptr, false);
  std::vector<std::string> seen;
  for (const std::string& path : paths) {
    if (std::find(seen.begin(), seen.end(), path) != seen.end()) continue;
    seen.push_back(path);
    Filesystem fs;
    fs.path = path;
    // Links lead to other file systems; asking for the real path of a folder on a dead server would hang, so links are
    // followed only through what is not remote.
    std::string real = path;
    auto mount_of = [&](const std::string& of) {
      const Mount* best = nullptr;
      for (const Mount& mount : mounts)
        if (IsBelow(of, mount.path) && (!best || mount.path.size() >= best->path.size())) best = &mount;
      return best;
    };
    const Mount* mount = mount_of(path);
    if (!mount || !IsRemote(mount->type)) {
      real = tree.Real(path);
      if (real.empty()) {
        if (tree.real()) here->notes.push_back(fmt::format("{}: not there", path));
        if (tree.real() || !mount || mount->path == "/") continue;
        real = path;
      }
      mount = mount_of(real);
    }
    if (mount) {
      fs.mount = mount->path;
      fs.type = mount->type;
      fs.read_only = mount->read_only;
    }
    if (tree.real())
      FillFromDisk(&fs, here);
    else
      FillFromTree(rooms, &fs);
    here->filesystems.push_back(fs);
  }
}

}  // namespace lockstep::hardware
