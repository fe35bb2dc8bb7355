#include "preflight/interpreter.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "hardware/python_packages.h"

namespace lockstep::preflight {
namespace {

constexpr char kQuestion[] =
    "import sys,json,importlib.util as u\n"
    "if len(sys.argv)>1 and sys.path[:1]==['']: sys.path[0]=sys.argv[1]\n"
    "try:\n s=u.find_spec('torch')\nexcept Exception:\n s=None\n"
    "print('\\n'+json.dumps({'version':'.'.join(map(str,sys.version_info[:3])),"
    "'torch':(s.origin or (list(s.submodule_search_locations or []) or [''])[0]) if s else ''}))\n";

}  // namespace

void ReadTorchVersion(const std::string& text, Python* python) {
  python->torch_version = hardware::PythonText(text, "__version__");
  python->torch_cuda = hardware::PythonText(text, "cuda");
}

InterpreterQuestion::InterpreterQuestion(const std::string& interpreter, const std::vector<std::string>& env,
                                         const std::string& workdir, const std::string& program_folder) {
  python_.path = interpreter;
  int ends[2];
  if (interpreter.empty() || pipe2(ends, O_CLOEXEC) != 0) {
    if (!interpreter.empty()) python_.trouble = ErrnoText(errno);
    return;
  }
  output_.reset(ends[0]);
  const UniqueFd input(ends[1]);
  const UniqueFd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  SpawnOptions options;
  options.argv = {interpreter, "-c", kQuestion};
  if (!program_folder.empty()) options.argv.push_back(program_folder);
  options.env = env;
  options.workdir = workdir;
  options.stdin_fd = nothing.get();
  options.stdout_fd = input.get();
  options.stderr_fd = input.get();
  auto process = Spawn(options);
  if (!process.ok()) {
    python_.trouble = process.status().message();
    return;
  }
  process_ = std::move(*process);
}

InterpreterQuestion::~InterpreterQuestion() {
  if (process_.pid <= 0) return;
  SignalGroup(process_, SIGKILL);
  (void)waitpid(process_.pid, nullptr, 0);
}

Python InterpreterQuestion::Answer(TimePoint deadline) {
  if (process_.pid <= 0) return python_;
  std::string text;
  while (text.size() < 1 << 20) {
    const auto left = std::chrono::duration_cast<Millis>(deadline - Now()).count();
    pollfd wait{output_.get(), POLLIN, 0};
    if (left <= 0 || poll(&wait, 1, static_cast<int>(left)) <= 0) {
      if (left > 0 && errno == EINTR) continue;
      python_.trouble = fmt::format("{} does not answer: is its file system slow?", python_.path);
      return python_;
    }
    char buffer[4096];
    const ssize_t got = read(output_.get(), buffer, sizeof buffer);
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  const size_t line = text.find("\n{\"version\"");
  auto answer = line == std::string::npos ? Result<Json>(Status(Code::kInternal, "no answer"))
                                          : ParseJson(Trim(std::string_view(text).substr(line)), "answer");
  if (!answer.ok()) {
    const std::string said(Trim(text));
    const size_t last = said.rfind('\n');
    python_.trouble = fmt::format(
        "{} does not start: {}", python_.path,
        said.empty() ? "it says nothing" : Printable(last == std::string::npos ? said : said.substr(last + 1)));
    return python_;
  }
  python_.version = GetString(*answer, "version");
  python_.torch_path = GetString(*answer, "torch");
  if (!python_.torch_path.empty()) {
    const std::string folder = python_.torch_path.substr(0, python_.torch_path.rfind('/'));
    if (auto version = ReadFile(folder + "/version.py", 1 << 16); version.ok()) ReadTorchVersion(*version, &python_);
  }
  return python_;
}

}  // namespace lockstep::preflight
