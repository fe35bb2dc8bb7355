#include "base/own_program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "base/text.h"

namespace lockstep {

bool IsExecutableFile(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

std::string FindExecutable(const std::string& name, const std::string& path) {
  if (name.find('/') != std::string::npos) return IsExecutableFile(name) ? name : "";
  for (const std::string& folder : Split(path, ':')) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (IsExecutableFile(candidate)) return candidate;
  }
  return "";
}

std::string OwnExecutable(const std::string& otherwise) {
  char path[4096] = {};
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : otherwise;
}

Result<std::string> FindEngine() {
  std::vector<std::string> looked;
  const auto try_path = [&](const std::string& path) {
    looked.push_back(path);
    return IsExecutableFile(path);
  };
  if (const std::string self = OwnExecutable(""); !self.empty()) {
    const std::string beside = self.substr(0, self.rfind('/') + 1) + kEngineName;
    if (try_path(beside)) return beside;
  }
  if (const char* named = std::getenv("LOCKSTEP_TRAIN"); named != nullptr && *named != '\0') {
    if (try_path(named)) return std::string(named);
  }
  if (const char* path = std::getenv("PATH")) {
    if (const std::string found = FindExecutable(kEngineName, path); !found.empty()) return found;
    looked.emplace_back("the folders of PATH");
  }
  return Status(Code::kEnvironment,
                fmt::format("the training engine {} was not found; looked at {}", kEngineName, Join(looked, ", ")),
                "put it beside lockstep, or name it in LOCKSTEP_TRAIN");
}

}  // namespace lockstep
