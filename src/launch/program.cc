#include "launch/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/env_file.h"
#include "base/environment.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/own_program.h"
#include "base/text.h"
#include "hardware/python_packages.h"
#include "launch/activation.h"
#include "launch/capture.h"
#include "launch/worker_env.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

// torchrun's run_script_path, in an interpreter of its own: the program sees itself as argv[0] and as __main__.
constexpr char kRunPath[] =
    "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')";

enum class Kind { kMissing, kFolder, kElf, kShebang, kPythonShebang, kOther };

// The first line, at most 250 bytes: as much as the kernel reads of it.
Result<std::string> FirstLine(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  char head[251] = {};
  const ssize_t size = fd.valid() ? ::read(fd.get(), head, sizeof head - 1) : -1;
  if (size < 0) return FileError("read", path, errno);
  const std::string text(head, static_cast<size_t>(size));
  return text.substr(0, text.find('\n'));
}

// What a file is by its first bytes.
Kind KindOf(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return Kind::kMissing;
  if (S_ISDIR(info.st_mode)) return Kind::kFolder;
  const Result<std::string> line = FirstLine(path);
  // An executable need not be readable to be run.
  if (!line.ok()) return ::access(path.c_str(), X_OK) == 0 ? Kind::kElf : Kind::kOther;
  if (line->starts_with("\177ELF")) return Kind::kElf;
  if (!line->starts_with("#!")) return Kind::kOther;
  return line->find("python") != std::string::npos ? Kind::kPythonShebang : Kind::kShebang;
}

bool IsPythonFile(const std::string& path) {
  return path.ends_with(".py") || path.ends_with(".pyc") || path.ends_with(".pyz") || path.ends_with(".zip");
}

bool RunsDirectly(const std::string& path) {
  if (IsPythonFile(path) || ::access(path.c_str(), X_OK) != 0) return false;
  const Kind kind = KindOf(path);
  return kind == Kind::kElf || kind == Kind::kShebang;
}

// A path as the worker will see it: from --workdir, else from here.
std::string FromWorkdir(const std::string& path, const std::string& workdir) {
  return workdir.empty() || path.starts_with('/') ? path : workdir + "/" + path;
}

std::string NearFile(const std::string& path) {
  const fs::path wanted(path);
  const std::string folder = wanted.has_parent_path() ? wanted.parent_path().string() : ".";
  const Result<std::vector<std::string>> names = ListDir(folder);
  if (!names.ok()) return fmt::format("the folder '{}' is not there either", Printable(folder));
  if (const auto near = Nearest(wanted.filename().string(), *names)) {
    return fmt::format("did you mean {}?",
                       (wanted.has_parent_path() ? wanted.parent_path() / *near : fs::path(*near)).string());
  }
  return "check the path";
}

Status MissingScript(const std::string& path, const RunOptions& options) {
  std::string hint = NearFile(path);
  const bool looks_like_module = options.program.find('/') == std::string::npos && !IsPythonFile(options.program) &&
                                 options.program.find('.') != std::string::npos;
  if (looks_like_module) hint += fmt::format(" (for a Python module: -m {})", Printable(options.program));
  const std::string in_path = options.program.find('/') == std::string::npos && !IsPythonFile(options.program)
                                  ? ", and no executable of that name is in PATH"
                                  : "";
  return Status(Code::kEnvironment,
                fmt::format("the program '{}' is not there{}{}", Printable(options.program),
                            options.workdir.empty() ? "" : fmt::format(" (in {})", options.workdir), in_path),
                hint);
}

Status CheckReadable(const std::string& path, const RunOptions& options) {
  const Kind kind = KindOf(path);
  if (kind == Kind::kMissing) return MissingScript(path, options);
  if (kind == Kind::kFolder && KindOf(path + "/__main__.py") == Kind::kMissing) {
    return Status(Code::kEnvironment, fmt::format("the program '{}' is a folder without __main__.py", Printable(path)),
                  "name the script inside");
  }
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return FileError("read the program", path, errno);
  if (kind == Kind::kElf) {
    return Status(Code::kEnvironment,
                  fmt::format("the program '{}' is a binary without permission to execute", Printable(path)),
                  "chmod +x " + ShellQuote(path));
  }
  return Status::Ok();
}

// `python -m pkg.py` runs module `py` of package `pkg`, if there is one.
bool IsModuleHere(const std::string& name, const std::string& workdir, const Environment& env) {
  std::string path = name;
  std::replace(path.begin(), path.end(), '.', '/');
  std::vector<std::string> folders = Split(ValueOf(env, "PYTHONPATH"), ':');
  folders.emplace_back();
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
    const std::string module = FromWorkdir(folder.empty() ? path : folder + "/" + path, workdir);
    return KindOf(module + ".py") != Kind::kMissing || KindOf(module) == Kind::kFolder;
  });
}

Status CheckModule(const RunOptions& options, const std::string& workdir, const Environment& env) {
  const Kind kind = KindOf(FromWorkdir(options.program, workdir));
  if (!options.program.ends_with(".py") || kind == Kind::kMissing || kind == Kind::kFolder) return Status::Ok();
  if (IsModuleHere(options.program, workdir, env)) return Status::Ok();
  // The same command line without -m. Written in another way (-mr 3, PET_MODULE) it is left to the reader.
  std::vector<std::string> command = {"lockstep", "run"};
  const size_t flags = options.argv.size() - std::min(options.argv.size(), options.args.size() + 1);
  for (size_t i = 0; i < options.argv.size(); ++i) {
    const std::string& word = options.argv[i];
    if (i >= flags || (word != "-m" && word != "--module")) command.push_back(word);
  }
  const bool dropped = command.size() < options.argv.size() + 2;
  return Status(Code::kUsage, fmt::format("{} is a file, -m takes a module: drop -m", Printable(options.program)),
                dropped ? ShellQuote(command) : "lockstep run [flags without -m] " + ShellQuote(options.program));
}

struct Interpreter {
  std::string path;
  std::string source;  // where it comes from, in words
};

Result<Interpreter> FindInterpreter(const Environment& env, const Activation* activation, Program* program) {
  const std::string path = ValueOf(env, "PATH");
  if (activation != nullptr) {
    for (const char* name : {"/bin/python", "/bin/python3"}) {
      const std::string python = FindExecutable(activation->prefix + name, "");
      if (!python.empty()) return Interpreter{python, activation->description};
    }
    return Status(Code::kEnvironment, fmt::format("{} has no bin/python", activation->description),
                  "install Python into it, or use --no-python");
  }
  if (const std::string named = ValueOf(env, "PYTHON_EXEC"); !named.empty()) {
    const std::string python = FindExecutable(named, path);
    if (!python.empty()) return Interpreter{python, "PYTHON_EXEC"};
    return Status(Code::kEnvironment, fmt::format("PYTHON_EXEC={}: no such executable", Printable(named)),
                  "correct or unset PYTHON_EXEC");
  }
  for (const std::string& name : hardware::ActiveEnvironments(env)) {
    const std::string python = FindExecutable(ValueOf(env, name) + "/bin/python", "");
    if (!python.empty()) return Interpreter{python, name};
    program->notes.push_back(fmt::format("{}={} has no bin/python: ignored", name, Printable(ValueOf(env, name))));
  }
  for (const char* name : {"python3", "python"}) {
    const std::string python = FindExecutable(name, path);
    if (!python.empty()) return Interpreter{python, "PATH"};
  }
  return Status(Code::kEnvironment, "no Python: neither python3 nor python is in PATH",
                "activate an environment, or use --venv, --conda, or --no-python for an executable");
}

// A copied or half-removed environment has a python that does not start: say so before 8 ranks do.
Status CheckRuns(const Interpreter& interpreter, const Environment& env) {
  const Result<Captured> result = Capture({interpreter.path, "-I", "-S", "-c", ""}, ToStrings(env), kShellLimit);
  if (!result.ok()) {
    return result.status()
        .Context(fmt::format("the interpreter {} does not start", interpreter.path))
        .WithCode(Code::kEnvironment);
  }
  if (!result->exit.success()) {
    return Status(Code::kEnvironment,
                  fmt::format("the interpreter {} does not run: {}: {}", interpreter.path, DescribeExit(result->exit),
                              Printable(Trim(result->err), 400)),
                  "make the environment again");
  }
  return Status::Ok();
}

Status CheckWorkdir(const RunOptions& options, Program* program) {
  if (options.workdir.empty()) return Status::Ok();
  struct stat info{};
  if (::stat(options.workdir.c_str(), &info) != 0) return FileError("use --workdir", options.workdir, errno);
  if (!S_ISDIR(info.st_mode)) return FileError("use --workdir", options.workdir, ENOTDIR);
  if (::access(options.workdir.c_str(), X_OK) != 0) return FileError("use --workdir", options.workdir, errno);
  std::error_code error;
  program->workdir = fs::absolute(options.workdir, error).lexically_normal().string();
  return Status::Ok();
}

// execve of a script whose interpreter is missing fails with "no such file", naming the wrong one of the two.
Status CheckFirstLine(const std::string& path) {
  const Result<std::string> line = FirstLine(path);
  if (!line.ok() || !line->starts_with("#!")) return Status::Ok();
  const std::string_view command = Trim(std::string_view(*line).substr(2));
  const std::string interpreter(command.substr(0, command.find_first_of(" \t\r")));
  if (interpreter.starts_with('/') && ::access(interpreter.c_str(), X_OK) != 0) {
    return Status(Code::kEnvironment,
                  fmt::format("the program '{}' asks for the interpreter {} in its first line: {}", Printable(path),
                              Printable(interpreter), ErrnoText(errno)),
                  "install it, or correct the first line");
  }
  return Status::Ok();
}

Status ResolveDirect(const RunOptions& options, const Environment& env, Program* program) {
  const bool named = options.program.find('/') == std::string::npos;
  const std::string found = named ? FindExecutable(options.program, ValueOf(env, "PATH"))
                                  : FindExecutable(FromWorkdir(options.program, program->workdir), "");
  if (found.empty()) {
    const std::string path = FromWorkdir(options.program, program->workdir);
    if (named) {
      const bool here = KindOf(path) != Kind::kMissing;
      return Status(Code::kEnvironment,
                    fmt::format("the program '{}' is no executable in PATH", Printable(options.program)),
                    here ? fmt::format("a file of that name is here: write ./{}", options.program)
                         : "check the name, or give a path");
    }
    if (KindOf(path) == Kind::kMissing) return MissingScript(path, options);
    return Status(Code::kEnvironment, fmt::format("the program '{}' may not be executed", Printable(options.program)),
                  KindOf(path) == Kind::kFolder ? "it is a folder" : "chmod +x " + ShellQuote(path));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckFirstLine(found));
  program->argv = {found};
  program->description = fmt::format("{} directly (--no-python)", found);
  return Status::Ok();
}

}  // namespace

Result<Program> ResolveProgram(const RunOptions& options, const Environment& env) {
  Program program;
  LOCKSTEP_RETURN_IF_ERROR(CheckWorkdir(options, &program));

  Environment worker = env;
  std::optional<Activation> activation;
  if (!options.modules.empty()) {
    Result<Activation> modules = LoadModules(options.modules, worker);
    if (!modules.ok()) return modules.status();
    program.env = modules->env;
    program.notes.push_back(modules->description + " loaded");
    worker = Apply(worker, program.env);
  }
  if (!options.venv.empty() || !options.conda.empty()) {
    Result<Activation> made =
        options.venv.empty() ? ActivateConda(options.conda, worker) : ActivateVenv(options.venv, worker);
    if (!made.ok()) return made.status();
    activation = std::move(*made);
    for (const auto& [name, value] : activation->env) program.env[name] = value;
    worker = Apply(worker, activation->env);
  }
  // --env may change what is found, too.
  worker = RankEnvironment(env, program.env, options);

  const bool named = !options.program.empty();
  if (named && options.no_python && !options.run_path) {
    LOCKSTEP_RETURN_IF_ERROR(ResolveDirect(options, worker, &program));
    program.argv.insert(program.argv.end(), options.args.begin(), options.args.end());
    return program;
  }
  if (named && !options.module && !options.run_path) {
    const std::string file = FromWorkdir(options.program, program.workdir);
    std::string direct;
    if (RunsDirectly(file)) {
      // Without a slash execve would search PATH.
      direct = file.find('/') == std::string::npos ? "./" + file : file;
    } else if (KindOf(file) == Kind::kMissing && options.program.find('/') == std::string::npos) {
      const std::string found = FindExecutable(options.program, ValueOf(worker, "PATH"));
      if (!found.empty() && RunsDirectly(found)) direct = found;
    }
    if (!direct.empty()) {
      LOCKSTEP_RETURN_IF_ERROR(CheckFirstLine(direct));
      const bool elf = KindOf(direct) == Kind::kElf;
      program.argv = {direct};
      program.argv.insert(program.argv.end(), options.args.begin(), options.args.end());
      program.description =
          fmt::format("{} directly ({})", direct, elf ? "it is a binary" : "its first line names its interpreter");
      return program;
    }
  }
  if (named) {
    LOCKSTEP_RETURN_IF_ERROR(options.module && !options.run_path
                                 ? CheckModule(options, program.workdir, worker)
                                 : CheckReadable(FromWorkdir(options.program, program.workdir), options));
  }

  Result<Interpreter> interpreter = FindInterpreter(worker, activation ? &*activation : nullptr, &program);
  if (!interpreter.ok()) return interpreter.status();
  if (activation) LOCKSTEP_RETURN_IF_ERROR(CheckRuns(*interpreter, worker));
  program.interpreter = interpreter->path;
  program.argv = {interpreter->path, "-u"};
  if (!named) {
    program.description = fmt::format("{} (Python of {})", interpreter->path, interpreter->source);
    return program;
  }
  if (options.run_path) {
    program.argv.insert(program.argv.end(), {"-c", kRunPath});
  } else if (options.module) {
    program.argv.push_back("-m");
  }
  program.argv.push_back(options.program);
  program.argv.insert(program.argv.end(), options.args.begin(), options.args.end());
  program.description = fmt::format("{} -u {}{} (Python of {})", interpreter->path,
                                    options.run_path ? "runpy "
                                    : options.module ? "-m "
                                                     : "",
                                    options.program, interpreter->source);
  return program;
}

}  // namespace lockstep::launch
