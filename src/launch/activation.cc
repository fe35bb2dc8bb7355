#include "launch/activation.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/env_file.h"
#include "base/environment.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/own_program.h"
#include "base/text.h"
#include "launch/capture.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

bool IsDirectory(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string Absolute(const std::string& path, const Environment& env) {
  std::string full = path;
  if (full == "~" || full.starts_with("~/")) full = ValueOf(env, "HOME") + full.substr(1);
  std::error_code error;
  const fs::path absolute = fs::absolute(full, error).lexically_normal();
  std::string out = error ? full : absolute.string();
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

// PATH with `first` in front and without the folders in `dropped`.
std::string PathWith(const std::string& path, const std::string& first, const std::set<std::string>& dropped) {
  std::vector<std::string> parts = {first};
  for (const std::string& part : Split(path, ':')) {
    if (!part.empty() && part != first && !dropped.contains(part)) parts.push_back(part);
  }
  return Join(parts, ":");
}

// Variables a shell sets for itself, and functions it exports: not what a script meant to say.
bool OfTheShell(const std::string& name) {
  static const std::set<std::string> of_the_shell = {"_", "SHLVL", "PWD", "OLDPWD", "BASH_ENV", "PS1"};
  return of_the_shell.contains(name) || name.starts_with("BASH_FUNC_") || name.find('%') != std::string::npos;
}

EnvChanges Difference(const Environment& before, const Environment& after) {
  EnvChanges changes;
  for (const auto& [name, value] : after) {
    if (OfTheShell(name)) continue;
    const auto old = before.find(name);
    if (old == before.end() || old->second != value) changes[name] = value;
  }
  for (const auto& [name, value] : before) {
    if (!OfTheShell(name) && !after.contains(name)) changes[name] = std::nullopt;
  }
  return changes;
}

Environment ParseEnviron(const std::string& text) {
  Environment env;
  for (const std::string& entry : Split(text, '\0')) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos && equals > 0) env[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return env;
}

std::string LastLines(const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string& line : Split(text, '\n')) {
    if (!Trim(line).empty()) lines.emplace_back(Trim(line));
  }
  if (lines.size() > 4) lines.erase(lines.begin(), lines.end() - 4);
  return Printable(Join(lines, "; "), 600);
}

struct ShellRun {
  Environment env;
  std::string said;  // what it printed on both streams
  int code = 0;
};

// Runs `script` and takes the environment it leaves. Its own output goes to stderr; the environment is read from the
// kernel by a child that inherits it, because `env -0` is not everywhere.
Result<ShellRun> RunShell(std::vector<std::string> shell, const std::string& script, const Environment& env,
                          std::chrono::milliseconds limit) {
  shell.push_back("exec 3>&1 1>&2\n" + script +
                  "\nlockstep_code=$?\ncommand -p cat /proc/self/environ >&3\nexit $lockstep_code");
  const Result<Captured> captured = Capture(shell, ToStrings(env), limit);
  if (!captured.ok()) return captured.status();
  if (captured->out.empty()) {
    return Status(Code::kEnvironment, fmt::format("the shell ended before it could be asked ({}): {}",
                                                  DescribeExit(captured->exit), LastLines(captured->err)));
  }
  return ShellRun{ParseEnviron(captured->out), LastLines(captured->err),
                  captured->exit.signal ? ExitOfSignal(captured->exit.signal) : captured->exit.code};
}

// Folders conda may be installed in, best evidence first.
std::vector<std::string> CondaRoots(const Environment& env) {
  std::vector<std::string> roots;
  const auto add = [&](const std::string& path) {
    if (!path.empty() && std::find(roots.begin(), roots.end(), path) == roots.end()) roots.push_back(path);
  };
  for (const char* name : {"CONDA_EXE", "MAMBA_EXE"}) {
    const std::string exe = ValueOf(env, name);  // <root>/bin/conda
    if (!exe.empty()) add(fs::path(exe).parent_path().parent_path().string());
  }
  add(ValueOf(env, "MAMBA_ROOT_PREFIX"));
  for (const char* name : {"CONDA_PREFIX", "CONDA_PREFIX_1"}) {
    const fs::path prefix(ValueOf(env, name));
    if (prefix.empty()) continue;
    add(prefix.parent_path().filename() == "envs" ? prefix.parent_path().parent_path().string() : prefix.string());
  }
  const std::string home = ValueOf(env, "HOME");
  for (const char* name : {"miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda"}) {
    if (!home.empty()) add(home + "/" + name);
  }
  for (const char* path : {"/opt/conda", "/opt/miniconda3", "/opt/anaconda3", "/opt/miniforge3"}) add(path);
  return roots;
}

bool IsCondaEnvironment(const std::string& path) { return IsDirectory(path + "/conda-meta"); }

// Every environment that can be found, by name.
std::vector<std::pair<std::string, std::string>> CondaEnvironments(const Environment& env) {
  std::vector<std::pair<std::string, std::string>> found;
  const auto add = [&](const std::string& name, const std::string& path) {
    if (!name.empty() && IsCondaEnvironment(path)) found.emplace_back(name, path);
  };
  std::vector<std::string> folders;
  for (const std::string& folder : Split(ValueOf(env, "CONDA_ENVS_PATH"), ':')) {
    if (!folder.empty()) folders.push_back(folder);
  }
  for (const std::string& root : CondaRoots(env)) {
    add("base", root);
    folders.push_back(root + "/envs");
  }
  for (const std::string& folder : folders) {
    const Result<std::vector<std::string>> names = ListDir(folder);
    if (!names.ok()) continue;
    for (const std::string& name : *names) add(name, fmt::format("{}/{}", folder, name));
  }
  // conda writes every environment it ever made here.
  const Result<std::string> list = ReadFile(ValueOf(env, "HOME") + "/.conda/environments.txt", 1 << 20);
  if (list.ok()) {
    for (const std::string& line : Split(*list, '\n')) {
      const std::string path(Trim(line));
      if (!path.empty()) add(fs::path(path).filename().string(), path);
    }
  }
  return found;
}

Result<std::string> FindConda(const std::string& wanted, const Environment& env) {
  if (wanted.find('/') != std::string::npos || wanted.starts_with("~")) {
    const std::string path = Absolute(wanted, env);
    if (IsCondaEnvironment(path)) return path;
    return Status(Code::kEnvironment,
                  fmt::format("--conda {}: {}", Printable(wanted),
                              IsDirectory(path) ? "that folder is no conda environment (no conda-meta inside)"
                                                : "no such folder"),
                  "give the root folder of the environment, or its name");
  }
  const auto known = CondaEnvironments(env);
  std::vector<std::string> names;
  for (const auto& [name, path] : known) {
    if (name == wanted) return path;
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return Status(Code::kEnvironment,
                fmt::format("--conda {}: no environment of that name{}; found: {}", Printable(wanted),
                            DidYouMean(wanted, names), names.empty() ? "none" : Join(names, ", ")),
                "give the path of the environment, or set CONDA_EXE to the conda program");
}

// Variables kept by `conda env config vars set` and by packages.
Status AddCondaVariables(const std::string& prefix, EnvChanges* changes) {
  std::vector<std::string> files;
  const Result<std::vector<std::string>> packaged = ListDir(prefix + "/etc/conda/env_vars.d");
  if (packaged.ok()) {
    for (const std::string& name : *packaged) {
      if (name.ends_with(".json")) files.push_back(fmt::format("{}/etc/conda/env_vars.d/{}", prefix, name));
    }
  }
  files.push_back(prefix + "/conda-meta/state");
  for (const std::string& file : files) {
    const Result<std::string> text = ReadFile(file, 1 << 20);
    if (!text.ok()) continue;
    const nlohmann::json state = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!state.is_object()) return Status(Code::kEnvironment, file + ": expected a JSON object", "repair or remove it");
    const nlohmann::json& variables =
        file.ends_with("/state") ? state.value("env_vars", nlohmann::json::object()) : state;
    for (const auto& [name, value] : variables.items()) {
      if (!value.is_string()) continue;
      if (value == "***unset***") {  // conda's mark
        (*changes)[name] = std::nullopt;
      } else {
        (*changes)[name] = value.get<std::string>();
      }
    }
  }
  return Status::Ok();
}

}  // namespace

Environment Apply(Environment env, const EnvChanges& changes) {
  for (const auto& [name, value] : changes) {
    if (value) {
      env[name] = *value;
    } else {
      env.erase(name);
    }
  }
  return env;
}

Result<Activation> ActivateVenv(const std::string& path, const Environment& env) {
  Activation out;
  out.prefix = Absolute(path, env);
  const std::string python = out.prefix + "/bin/python";
  if (!IsExecutableFile(python)) {
    const bool exists = IsDirectory(out.prefix);
    std::string found = exists ? "it has no bin/python" : "no such folder";
    if (exists && IsExecutableFile(out.prefix + "/.venv/bin/python")) {
      return Status(Code::kEnvironment, fmt::format("--venv {}: {}", Printable(path), found),
                    fmt::format("did you mean --venv {}/.venv?", path));
    }
    // A link to an interpreter that was removed is the usual case of a copied environment.
    std::error_code error;
    if (fs::is_symlink(python, error)) {
      found = fmt::format("bin/python points to {}, which is not there", fs::read_symlink(python, error).string());
    }
    return Status(Code::kEnvironment, fmt::format("--venv {}: {}", Printable(path), found),
                  "make it with: python3 -m venv " + ShellQuote(path));
  }
  std::set<std::string> dropped;
  if (const std::string old = ValueOf(env, "VIRTUAL_ENV"); !old.empty()) dropped.insert(old + "/bin");
  out.env["VIRTUAL_ENV"] = out.prefix;
  out.env["PATH"] = PathWith(ValueOf(env, "PATH"), out.prefix + "/bin", dropped);
  if (env.contains("PYTHONHOME")) out.env["PYTHONHOME"] = std::nullopt;
  out.description = fmt::format("virtual environment {}", out.prefix);
  return out;
}

Result<Activation> ActivateConda(const std::string& name_or_path, const Environment& env,
                                 std::chrono::milliseconds limit) {
  const Result<std::string> prefix = FindConda(name_or_path, env);
  if (!prefix.ok()) return prefix.status();
  Activation out;
  out.prefix = *prefix;
  const fs::path path(out.prefix);
  std::string name = name_or_path == "base" ? "base" : path.filename().string();
  // conda calls an environment outside an envs folder by its path.
  if (name != "base" && path.parent_path().filename() != "envs") name = out.prefix;

  std::set<std::string> dropped;
  const std::string old = ValueOf(env, "CONDA_PREFIX");
  const std::string level_text = ValueOf(env, "CONDA_SHLVL");
  const int level = !old.empty() && level_text.size() == 1 ? std::clamp(level_text[0] - '0', 0, 8) : 0;
  if (!old.empty() && old != out.prefix) {
    dropped.insert(old + "/bin");
    out.env[fmt::format("CONDA_PREFIX_{}", std::max(1, level))] = old;
  }
  if (const std::string venv = ValueOf(env, "VIRTUAL_ENV"); !venv.empty()) {
    dropped.insert(venv + "/bin");
    out.env["VIRTUAL_ENV"] = std::nullopt;
  }
  if (env.contains("PYTHONHOME")) out.env["PYTHONHOME"] = std::nullopt;
  out.env["PATH"] = PathWith(ValueOf(env, "PATH"), out.prefix + "/bin", dropped);
  out.env["CONDA_PREFIX"] = out.prefix;
  out.env["CONDA_DEFAULT_ENV"] = name;
  out.env["CONDA_SHLVL"] = std::to_string(old == out.prefix ? std::max(1, level) : level + 1);
  out.env["CONDA_PROMPT_MODIFIER"] = fmt::format("({}) ", name);
  LOCKSTEP_RETURN_IF_ERROR(AddCondaVariables(out.prefix, &out.env));
  out.description =
      fmt::format("conda environment {}", name == out.prefix ? name : fmt::format("{} ({})", name, out.prefix));

  const Result<std::vector<std::string>> scripts = ListDir(out.prefix + "/etc/conda/activate.d");
  std::string source;
  if (scripts.ok()) {
    for (const std::string& script : *scripts) {
      if (script.ends_with(".sh")) source += ". " + ShellQuote(out.prefix + "/etc/conda/activate.d/" + script) + "\n";
    }
  }
  if (source.empty()) return out;
  const Environment before = Apply(env, out.env);
  // conda sources them in the user's shell, which is bash nearly everywhere.
  std::string shell = FindExecutable("bash", ValueOf(before, "PATH"));
  if (shell.empty()) shell = "/bin/sh";
  const Result<ShellRun> run = RunShell({shell, "-c"}, source, before, limit);
  if (!run.ok()) {
    return run.status()
        .Context(fmt::format("--conda {}: the scripts in {}/etc/conda/activate.d", name_or_path, out.prefix))
        .WithCode(Code::kEnvironment);
  }
  for (auto& [variable, value] : Difference(before, run->env)) out.env[variable] = std::move(value);
  return out;
}

Result<Activation> LoadModules(const std::vector<std::string>& names, const Environment& env,
                               std::chrono::milliseconds limit) {
  const std::string wanted = Join(names, ", ");
  const std::string bash = FindExecutable("bash", ValueOf(env, "PATH") + ":/bin:/usr/bin");
  if (bash.empty()) {
    return Status(Code::kEnvironment,
                  fmt::format("--module-load {}: environment modules need bash, and there is none", wanted),
                  "load them before the start");
  }
  // A login shell would reset PATH in many systems, so the usual places of the `module` function come first.
  const std::string find =
      "if ! type module >/dev/null 2>&1; then\n"
      "  for f in \"$MODULESHOME/init/bash\" \"$LMOD_PKG/init/bash\" /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh "
      "/etc/profile.d/modules.sh /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash "
      "/usr/share/Modules/init/bash; do\n"
      "    if [ -r \"$f\" ]; then . \"$f\"; type module >/dev/null 2>&1 && break; fi\n"
      "  done\n"
      "fi\n";
  constexpr int kNoModule = 97;
  const std::string load =
      fmt::format("type module >/dev/null 2>&1 || (exit {0}) && module load {1}", kNoModule, ShellQuote(names));
  Result<ShellRun> run = RunShell({bash, "-c"}, find + load, env, limit);
  if (run.ok() && run->code == kNoModule) run = RunShell({bash, "-lc"}, load, env, limit);
  const std::string where = fmt::format("--module-load {}", wanted);
  if (!run.ok()) return run.status().Context(where).WithCode(Code::kEnvironment);
  if (run->code == kNoModule) {
    return Status(Code::kEnvironment, where + ": this machine has no `module` command (looked in a login shell, too)",
                  "install environment-modules or lmod, set MODULESHOME, or drop the flag");
  }
  if (run->code != 0) {
    return Status(Code::kEnvironment, fmt::format("{}: the load failed: {}", where, run->said), "see: module avail");
  }
  // `module load` prints an error and returns 0 in old versions: what counts is what it says is loaded.
  const std::vector<std::string> loaded = Split(ValueOf(run->env, "LOADEDMODULES"), ':');
  for (const std::string& name : names) {
    const bool there = std::any_of(loaded.begin(), loaded.end(), [&](const std::string& entry) {
      return entry == name || entry.starts_with(name + "/") || entry.starts_with(name + "-");
    });
    if (!there) {
      return Status(Code::kEnvironment,
                    fmt::format("{}: {} is not among the loaded modules ({}){}", where, name,
                                loaded.empty() || loaded[0].empty() ? "none" : Join(loaded, ", "),
                                run->said.empty() ? "" : ": " + run->said),
                    "see: module avail");
    }
  }
  Activation out;
  out.env = Difference(env, run->env);
  out.description = "modules " + wanted;
  return out;
}

}  // namespace lockstep::launch
