// Many commands of `lockstep-train` for one start of LibTorch: each line of standard input is one command, run in a
// fork of this process, which has LibTorch loaded but has not used it yet.
//
//   {"args": ["reconstruct", ...], "cwd": DIR, "env": {NAME: VALUE}, "stdout": FILE, "stderr": FILE}
//
// For each, a line with its exit code, negative for a signal, on standard output. tests/integration/harness.py: Engine.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/train/program.h"

namespace {

void Redirect(const std::string& file, int to) {
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0 || dup2(fd, to) < 0) {
    std::perror(file.c_str());
    std::_Exit(125);
  }
  close(fd);
}

// As a fresh process would be: its own folder, environment and output, nothing to read.
int RunCommand(const nlohmann::json& command) {
  Redirect(command.at("stdout"), STDOUT_FILENO);
  Redirect(command.at("stderr"), STDERR_FILENO);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  close(nothing);
  const std::string folder = command.at("cwd");
  if (chdir(folder.c_str()) != 0) {
    std::perror(folder.c_str());
    return 125;
  }
  for (const auto& [name, value] : command.at("env").items()) setenv(name.c_str(), value.get<std::string>().c_str(), 1);
  std::vector<std::string> words = command.at("args");
  words.insert(words.begin(), "lockstep-train");
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return lockstep::TrainProgram(static_cast<int>(words.size()), argv.data());
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const nlohmann::json command = nlohmann::json::parse(line);
    const pid_t child = fork();
    if (child < 0) {
      std::perror("fork");
      return 1;
    }
    if (child == 0) {
      const int code = RunCommand(command);
      std::fflush(nullptr);
      std::_Exit(code);  // destructors of LibTorch would write to all the pages that are shared with this process
    }
    int status = 0;
    waitpid(child, &status, 0);
    fmt::print("{}\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    std::fflush(stdout);
  }
  return 0;
}
