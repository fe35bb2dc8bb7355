// What the log tests share: a folder of their own, pipes, real child processes, and waiting for a condition.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fd.h"

namespace lockstep::logs {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

class Folder {
 public:
  Folder() {
    std::string name = testing::TempDir() + "lockstep-log-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) abort();
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

struct Pipe {
  UniqueFd read, write;
  Pipe() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) abort();
    read.reset(fds[0]);
    write.reset(fds[1]);
  }
};

inline UniqueFd OpenForWriting(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
}

inline void WriteAll(int fd, std::string_view data) {
  while (!data.empty()) {
    ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return;
    }
    data.remove_prefix(static_cast<size_t>(n));
  }
}

// A real process whose stdout and stderr are pipes. `body` runs in the child, which then exits with its result.
class Child {
 public:
  explicit Child(const std::function<int()>& body) {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(out_.write.get(), 1);
      ::dup2(err_.write.get(), 2);
      // An exec would do this; without it the child would keep its own pipes' read ends open.
      out_.read.reset();
      err_.read.reset();
      ::_exit(body());
    }
    out_.write.reset();
    err_.write.reset();
  }
  ~Child() {
    if (pid_ > 0) Wait();
  }
  UniqueFd TakeOut() { return std::move(out_.read); }
  UniqueFd TakeErr() { return std::move(err_.read); }
  // Exit code, or minus the signal.
  int Wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  Pipe out_, err_;
  pid_t pid_ = -1;
};

// Waits for something that must come true; the test fails, not hangs, when it does not.
inline testing::AssertionResult Eventually(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + seconds(60);
  while (!condition()) {
    if (Clock::now() > deadline) return testing::AssertionFailure() << "did not come true within a minute";
    ::poll(nullptr, 0, 2);
  }
  return testing::AssertionSuccess();
}

}  // namespace lockstep::logs
