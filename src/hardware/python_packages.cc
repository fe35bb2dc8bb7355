#include "hardware/python_packages.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/environment.h"
#include "base/text.h"
#include "hardware/python_shims.h"

namespace lockstep::hardware {
namespace {

std::string Parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

std::string JoinPath(const std::string& folder, const std::string& name) {
  return name.starts_with('/') ? name : (folder == "/" ? "" : folder) + "/" + name;
}

// Executable by anybody: whose permission it is does not matter for a name.
bool IsProgram(const SysTree& tree, const std::string& path) {
  const std::string real = tree.Real(path);
  struct stat info{};
  return !real.empty() && ::stat(tree.Path(real).c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         (info.st_mode & 0111) != 0;
}

// "python3.11" -> "python3.11"; anything without a minor version -> ""
std::string VersionedName(const std::string& name) {
  if (!name.starts_with("python3.")) return "";
  const std::string_view minor = std::string_view(name).substr(8);
  const size_t end = std::min(minor.find_first_not_of("0123456789"), minor.size());
  return end == 0 ? "" : name.substr(0, 8 + end);
}

// The name of the library folder, "python3.11": from the configuration, the program's name, or what is there.
std::string LibraryName(const SysTree& tree, const std::string& prefix, const std::string& configuration,
                        const std::string& interpreter) {
  std::string version = LineValue(configuration, "version", '=');
  if (version.empty()) version = LineValue(configuration, "version_info", '=');
  if (const std::string name = VersionedName("python" + version); !name.empty()) return name;
  const std::string real = tree.Real(interpreter);
  if (const std::string name = VersionedName(real.substr(real.rfind('/') + 1)); !name.empty()) return name;
  for (const std::string& name : tree.Names(prefix + "/lib"))
    if (!VersionedName(name).empty() && tree.IsFolder(prefix + "/lib/" + name)) return name;
  return "";
}

class Folders {
 public:
  explicit Folders(const SysTree& tree) : tree_(tree) {}

  void Add(const std::string& folder) {
    if (folder.empty() || !tree_.IsFolder(folder)) return;
    // lib64 is often a link to lib.
    const std::string real = tree_.Real(folder);
    if (std::find(seen_.begin(), seen_.end(), real) != seen_.end()) return;
    seen_.push_back(real);
    list.push_back(folder);
  }

  // With the folders named in its .pth files. A line that is no path is code, and code is not run here.
  void AddSite(const std::string& folder) {
    const size_t before = list.size();
    Add(folder);
    if (list.size() == before) return;
    for (const std::string& name : tree_.Names(folder)) {
      if (!name.ends_with(".pth")) continue;
      for (const std::string& raw : Split(tree_.Text(folder + "/" + name), '\n')) {
        const std::string line(Trim(raw));
        if (line.empty() || line.front() == '#' || line.starts_with("import ") || line.starts_with("import\t"))
          continue;
        Add(JoinPath(folder, line));
      }
    }
  }

  std::vector<std::string> list;

 private:
  const SysTree& tree_;
  std::vector<std::string> seen_;
};

void AddPrefix(const std::string& prefix, const std::string& library, Folders* folders) {
  if (library.empty()) return;
  // Debian keeps what pip installs for all apart from what it brings itself.
  if (prefix == "/usr") {
    folders->AddSite("/usr/local/lib/" + library + "/dist-packages");
    folders->AddSite("/usr/local/lib64/" + library + "/site-packages");
    folders->AddSite("/usr/local/lib/" + library + "/site-packages");
    folders->AddSite("/usr/lib/python3/dist-packages");
    folders->AddSite("/usr/lib/" + library + "/dist-packages");
  }
  folders->AddSite(prefix + "/lib/" + library + "/site-packages");
  folders->AddSite(prefix + "/lib64/" + library + "/site-packages");
}

void AddUser(const Environment& env, const std::string& library, Folders* folders) {
  if (!ValueOf(env, "PYTHONNOUSERSITE").empty() || library.empty()) return;
  const std::string base = !ValueOf(env, "PYTHONUSERBASE").empty() ? ValueOf(env, "PYTHONUSERBASE")
                           : ValueOf(env, "HOME").empty()          ? ""
                                                                   : ValueOf(env, "HOME") + "/.local";
  if (!base.empty()) folders->AddSite(base + "/lib/" + library + "/site-packages");
}

}  // namespace

std::string FindProgram(const SysTree& tree, const Environment& env, const std::string& name) {
  if (name.empty()) return "";
  if (name.find('/') != std::string::npos) return IsProgram(tree, name) ? name : "";
  for (const std::string& folder : Split(ValueOf(env, "PATH"), ':'))
    if (!folder.empty() && IsProgram(tree, folder + "/" + name)) return folder + "/" + name;
  return "";
}

std::vector<std::string> ActiveEnvironments(const Environment& env) {
  const std::vector<std::string> path = Split(ValueOf(env, "PATH"), ':');
  std::vector<std::pair<std::ptrdiff_t, std::string>> active;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string prefix = ValueOf(env, name);
    if (!prefix.empty()) active.emplace_back(std::find(path.begin(), path.end(), prefix + "/bin") - path.begin(), name);
  }
  if (active.size() == 2 && active[1].first < active[0].first) std::swap(active[0], active[1]);
  std::vector<std::string> names;
  for (const auto& [index, name] : active) names.push_back(name);
  return names;
}

std::string PythonText(const std::string& file, std::string_view name) {
  for (const std::string& line : Split(file, '\n')) {
    if (!line.starts_with(name) || line.size() == name.size() || std::isalnum(line[name.size()]) ||
        line[name.size()] == '_')
      continue;
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const size_t open = line.find_first_of("'\"", equals);
    const size_t close = open == std::string::npos ? open : line.find(line[open], open + 1);
    if (close != std::string::npos) return line.substr(open + 1, close - open - 1);
  }
  return "";
}

std::string FindPython(const SysTree& tree, const Environment& env) {
  if (const std::string named = ValueOf(env, "PYTHON_EXEC"); !named.empty()) return FindProgram(tree, env, named);
  for (const std::string& name : ActiveEnvironments(env)) {
    const std::string python = ValueOf(env, name) + "/bin/python";
    if (IsProgram(tree, python)) return python;
  }
  for (const char* name : {"python3", "python"})
    if (std::string found = FindProgram(tree, env, name); !found.empty()) return found;
  return "";
}

std::vector<std::string> ImportFolders(const SysTree& tree, const Environment& env, const std::string& interpreter) {
  Folders folders(tree);
  for (const std::string& folder : Split(ValueOf(env, "PYTHONPATH"), ':'))
    if (folder.starts_with('/')) folders.Add(folder);
  if (!interpreter.starts_with('/')) return folders.list;
  // A virtual environment's python is a link, and its packages lie beside the link; but the name found in PATH may be a
  // link to that link. So every station of the way is looked at.
  std::string python = BehindShim(tree, env, interpreter);
  for (int station = 0; station < 16 && !python.empty(); ++station) {
    const std::string prefix = Parent(Parent(python));
    std::string configuration = tree.Text(prefix + "/pyvenv.cfg");
    if (configuration.empty()) configuration = tree.Text(Parent(python) + "/pyvenv.cfg");
    const std::string library = LibraryName(tree, prefix, configuration, python);
    if (!configuration.empty()) {
      AddPrefix(prefix, library, &folders);
      if (LineValue(configuration, "include-system-site-packages", '=') == "true") {
        AddUser(env, library, &folders);
        AddPrefix(Parent(LineValue(configuration, "home", '=')), library, &folders);
      }
      return folders.list;
    }
    const std::string folder = Parent(python), name = python.substr(python.rfind('/') + 1);
    const std::string target = tree.LinkTarget(python);
    // /bin is a link to /usr/bin on most systems.
    const std::string real_prefix = Parent(Parent(tree.Real(folder) + "/" + name));
    if (tree.IsFolder(real_prefix + "/lib/" + library) || target.empty()) {
      AddUser(env, library, &folders);
      AddPrefix(real_prefix, library, &folders);
      return folders.list;
    }
    python = JoinPath(folder, target);
    // "../../base/bin/python3": the folder part decides the prefix, so it is made plain.
    const std::string plain = tree.Real(Parent(python));
    if (plain.empty()) break;
    python = JoinPath(plain, python.substr(python.rfind('/') + 1));
  }
  return folders.list;
}

}  // namespace lockstep::hardware
