#include "cli/train_program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/env_file.h"
#include "base/environment.h"
#include "base/own_program.h"
#include "base/text.h"
#include "base/version.h"
#include "launch/capture.h"

namespace lockstep::cli {
namespace {

// A cold file cache on a network disk takes its time to load LibTorch.
constexpr std::chrono::seconds kAnswerWithin{60};

// A train program finds LibTorch by its run path, then in LOCKSTEP_LIBTORCH. Said here, once, instead of by every rank.
Status CheckLibraries(const std::string& program) {
  if (const char* libtorch = std::getenv("LOCKSTEP_LIBTORCH"); libtorch != nullptr && *libtorch != '\0') {
    const char* old = std::getenv("LD_LIBRARY_PATH");
    const std::string path = old == nullptr || *old == '\0' ? libtorch : fmt::format("{}:{}", libtorch, old);
    setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  }
  // The loader itself says which libraries it misses; the program does not run.
  const std::string command = fmt::format("LD_TRACE_LOADED_OBJECTS=1 {} 2>&1", ShellQuote(program));
  FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return Status::Ok();
  std::string text;
  char block[4096];
  for (size_t n = 0; (n = fread(block, 1, sizeof block, pipe)) > 0;) text.append(block, n);
  pclose(pipe);
  std::vector<std::string> missing;
  for (const std::string& line : Split(text, '\n')) {
    const size_t mark = line.find("=> not found");
    if (mark != std::string::npos) missing.emplace_back(Trim(std::string_view(line).substr(0, mark)));
  }
  if (missing.empty()) return Status::Ok();
  const bool torch = std::any_of(missing.begin(), missing.end(), [](const std::string& name) {
    return name.find("torch") != std::string::npos || name.find("c10") != std::string::npos;
  });
  return Status(Code::kEnvironment, fmt::format("{} misses {}", program, Join(missing, ", ")),
                torch ? "set LOCKSTEP_LIBTORCH to the lib folder of a torch package (python -c 'import torch; "
                        "print(torch.__path__[0] + \"/lib\")')"
                      : "install the packages these libraries belong to");
}

// The file that --program names: a path, or without a slash a name in PATH, as a shell has it.
Result<std::string> FindNamed(const std::string& named) {
  std::string found = named;
  if (named.find('/') == std::string::npos) {
    const char* path = std::getenv("PATH");
    found = FindExecutable(named, path == nullptr ? "" : path);
    if (found.empty()) {
      const bool here = access(named.c_str(), F_OK) == 0;
      return Status(Code::kUsage, fmt::format("--program {}: no folder of PATH has it", Printable(named)),
                    here ? fmt::format("write --program ./{}", Printable(named)) : "name its file: --program PATH");
    }
  }
  struct stat info{};
  if (stat(found.c_str(), &info) != 0) {
    return Status(Code::kUsage, fmt::format("--program {}: {}", Printable(named), ErrnoText(errno)),
                  "build it first (docs/write-a-recipe.md), or correct the path");
  }
  if (S_ISDIR(info.st_mode)) {
    return Status(Code::kUsage, fmt::format("--program {}: expected a program, found a folder", Printable(named)),
                  "name the program's file in it");
  }
  if (access(found.c_str(), X_OK) != 0) {
    return Status(Code::kUsage, fmt::format("--program {}: is not executable", Printable(named)),
                  "name the program that was built, or chmod +x it");
  }
  return std::filesystem::absolute(found).lexically_normal().string();
}

// What is wrong with its answer to --identify, or where it comes from.
Status CheckAnswer(const std::string& named, const std::string& path) {
  const std::string what = "--program " + Printable(named);
  constexpr const char* kHint =
      "its main() must call lockstep::TrainProgram (docs/write-a-recipe.md); `lockstep run` starts any other program";
  const auto told = launch::Capture({path, kIdentifyFlag}, ToStrings(CurrentEnvironment()), kAnswerWithin);
  if (!told.ok()) return Status(Code::kUsage, fmt::format("{}: {}", what, told.status().message()), kHint);
  const auto said = nlohmann::json::parse(told->out, nullptr, /*allow_exceptions=*/false);
  if (told->exit.code != 0 || !said.is_object() || !said.contains(kTrainProgramKey)) {
    const std::string output = told->out.empty() ? told->err : told->out;
    return Status(
        Code::kUsage,
        fmt::format("{}: not a train program of Lockstep: asked {}, it answered {}", what, kIdentifyFlag,
                    output.empty() ? "nothing" : "'" + Printable(output.substr(0, output.find('\n')), 80) + "'"),
        kHint);
  }
  const std::string version = said[kTrainProgramKey].value("version", "?");
  if (version != ThisBuild().version) {
    return Status(
        Code::kUsage,
        fmt::format("{}: built with Lockstep {}, and this is {}", what, Printable(version), ThisBuild().version),
        "build it against the installation of this version, or start it with that version's lockstep");
  }
  return Status::Ok();
}

}  // namespace

Result<std::string> FindTrainProgram(const std::string& named) {
  Result<std::string> path = named.empty() ? FindEngine() : FindNamed(named);
  if (!path.ok()) return path;
  LOCKSTEP_RETURN_IF_ERROR(CheckLibraries(*path));
  if (!named.empty()) LOCKSTEP_RETURN_IF_ERROR(CheckAnswer(named, *path));
  return path;
}

Result<std::string> TakeProgramFlag(std::vector<std::string>* words) {
  constexpr std::string_view kFlag = "--program";
  std::string named;
  for (auto word = words->begin(); word != words->end();) {
    if (*word == kFlag) {
      if (word + 1 == words->end()) return Status(Code::kUsage, "--program: expected a value", "--program PATH");
      named = word[1];
      word = words->erase(word, word + 2);
    } else if (word->starts_with("--program=")) {
      named = word->substr(kFlag.size() + 1);
      word = words->erase(word);
    } else {
      ++word;
      continue;
    }
    if (named.empty()) return Status(Code::kUsage, "--program: expected a value", "--program PATH");
  }
  return named;
}

}  // namespace lockstep::cli
