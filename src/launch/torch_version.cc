#include "launch/torch_version.h"

#include <filesystem>

#include "base/files.h"
#include "hardware/python_packages.h"
#include "tune/settings.h"

namespace lockstep::launch {
namespace {

std::optional<std::pair<int, int>> ReadVersion(const std::filesystem::path& packages) {
  auto text = ReadFile((packages / "torch" / "version.py").string(), 64 << 10);
  if (!text.ok()) return std::nullopt;
  return tune::MajorMinor(hardware::PythonText(*text, "__version__"));
}

}  // namespace

std::optional<std::pair<int, int>> TorchVersion(const std::string& interpreter) {
  namespace fs = std::filesystem;
  if (interpreter.find('/') == std::string::npos) return std::nullopt;
  // A virtual environment's python is a link, and its packages lie beside the link; but the name found in PATH may be a
  // link to that link. So every station of the way is looked at.
  fs::path python = interpreter;
  std::error_code error;
  for (int station = 0; station < 16; ++station) {
    const fs::path lib = python.parent_path().parent_path() / "lib";
    std::error_code none;
    for (fs::directory_iterator entry(lib, none), end; !none && entry != end; entry.increment(none)) {
      if (entry->path().filename().string().rfind("python3", 0) != 0) continue;
      for (const char* packages : {"site-packages", "dist-packages"}) {
        if (auto version = ReadVersion(entry->path() / packages)) return version;
      }
    }
    const fs::path target = fs::read_symlink(python, error);
    if (error) break;
    python = (python.parent_path() / target).lexically_normal();
  }
  return std::nullopt;
}

}  // namespace lockstep::launch
