#include "hardware/python_shims.h"

#include <algorithm>
#include <vector>

#include "base/environment.h"
#include "base/text.h"

namespace lockstep::hardware {
namespace {

std::string ParentOrNone(const std::string& path) { return path.substr(0, path.rfind('/')); }

// The first line of `name` that `choose` takes something from, in the working folder or the nearest above it.
template <typename Choose>
std::string Above(const SysTree& tree, const Environment& env, const std::string& name, Choose choose) {
  std::string folder = ValueOf(env, "PWD");
  while (folder.starts_with('/')) {
    for (const std::string& raw : Split(tree.Text(folder + "/" + name), '\n')) {
      const std::string line(Trim(raw.substr(0, raw.find('#'))));
      if (const std::string choice = line.empty() ? "" : choose(line); !choice.empty()) return choice;
    }
    folder = ParentOrNone(folder);
  }
  return "";
}

// The folder of this version; a part of a version ("3.11") means the newest that begins with it.
std::string Installed(const SysTree& tree, const std::string& versions, const std::string& version) {
  if (version.empty() || version == "system" || version.find('/') != std::string::npos) return "";
  if (tree.IsFolder(versions + "/" + version)) return versions + "/" + version;
  std::string newest;
  for (const std::string& name : tree.Names(versions))  // in the order of numbers
    if (name.starts_with(version + ".")) newest = name;
  return newest.empty() ? "" : versions + "/" + newest;
}

std::string FirstWord(const std::string& line) { return line.substr(0, line.find_first_of(": \t")); }

// PYENV_VERSION, .python-version, the global choice.
std::string PyenvChoice(const SysTree& tree, const Environment& env, const std::string& root) {
  if (const std::string said = ValueOf(env, "PYENV_VERSION"); !said.empty()) return FirstWord(said);
  if (const std::string said = Above(tree, env, ".python-version", FirstWord); !said.empty()) return said;
  return FirstWord(tree.Text(root + "/version").substr(0, tree.Text(root + "/version").find('\n')));
}

// ASDF_PYTHON_VERSION, .tool-versions here or above, that of the home folder.
std::string ToolChoice(const SysTree& tree, const Environment& env) {
  for (const char* name : {"ASDF_PYTHON_VERSION", "MISE_PYTHON_VERSION"})
    if (const std::string said = ValueOf(env, name); !said.empty()) return FirstWord(said);
  auto python = [](const std::string& line) {
    const std::vector<std::string> words = Words(line);
    return words.size() >= 2 && words[0] == "python" ? words[1] : std::string();
  };
  if (const std::string said = Above(tree, env, ".tool-versions", python); !said.empty()) return said;
  return Above(tree, {{"PWD", ValueOf(env, "HOME")}}, ".tool-versions", python);
}

}  // namespace

std::string BehindShim(const SysTree& tree, const Environment& env, const std::string& python) {
  if (!ParentOrNone(python).ends_with("/shims")) return python;
  const std::string root = ParentOrNone(ParentOrNone(python)), name = python.substr(python.rfind('/') + 1);
  std::string prefix;
  if (tree.IsFolder(root + "/versions")) {
    prefix = Installed(tree, root + "/versions", PyenvChoice(tree, env, root));
  } else if (tree.IsFolder(root + "/installs/python")) {
    prefix = Installed(tree, root + "/installs/python", ToolChoice(tree, env));
  }
  if (prefix.empty()) return python;
  for (const std::string& program : {name, std::string("python3"), std::string("python")})
    if (!tree.Real(prefix + "/bin/" + program).empty()) return prefix + "/bin/" + program;
  return python;
}

}  // namespace lockstep::hardware
