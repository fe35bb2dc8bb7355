#include "track/wandb_live.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/text.h"
#include "track/wandb_fragments.h"

namespace lockstep::track {
namespace {

constexpr char kUploader[] = "wandb";
const std::pair<const char*, std::vector<std::string>> kForbidden[] = {
    {"WANDB_MODE", {"offline", "disabled", "dryrun"}}, {"WANDB_DISABLED", {"true", "True", "TRUE", "1"}}};
// What is meant for wandb.init of a program: here the files say it.
constexpr std::string_view kOfAProgram[] = {"WANDB_DIR", "WANDB_RESUME", "WANDB_RUN_ID"};

bool OnPath(const Environment& env, const std::string& program) {
  for (const std::string& folder : Split(ValueOf(env, "PATH"), ':')) {
    if (!folder.empty() && ::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// "https://api.wandb.ai/x" -> "api.wandb.ai".
std::string HostOfUrl(const std::string& url) {
  const size_t scheme = url.find("://");
  const size_t begin = scheme == std::string::npos ? 0 : scheme + 3;
  return url.substr(begin, url.find_first_of("/:", begin) - begin);
}

// Whether a netrc file has an entry for the host; what it says is wandb's to read.
bool NetrcNames(const std::string& path, const std::string& host) {
  const Result<std::string> text = ReadFile(path, 1u << 20);
  if (!text.ok()) return false;
  std::string before;
  std::string word;
  for (const char c : *text + "\n") {
    if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
      word.push_back(c);
      continue;
    }
    if (word.empty()) continue;
    if (word == "default" || (before == "machine" && word == host)) return true;
    before = std::exchange(word, "");
  }
  return false;
}

bool HasKey(const Environment& env) {
  for (const char* name : {"WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"}) {
    if (!ValueOf(env, name).empty()) return true;
  }
  const std::string url = ValueOf(env, "WANDB_BASE_URL");
  const std::string host = HostOfUrl(url.empty() ? "https://api.wandb.ai" : url);
  const std::string home = ValueOf(env, "HOME"), given = ValueOf(env, "NETRC");
  if (!given.empty()) return NetrcNames(given, host);
  return !home.empty() && (NetrcNames(home + "/.netrc", host) || NetrcNames(home + "/_netrc", host));
}

// What it said last, which is why it ended.
std::string LastLine(const std::string& path) {
  std::string last;
  const Result<std::string> text = ReadFile(path, 16u << 20);
  if (!text.ok()) return last;
  for (const std::string& line : Split(*text, '\n')) {
    if (!Trim(line).empty()) last = Printable(Trim(line), 200);
  }
  return last;
}

}  // namespace

Status CanUploadToWandb(const Environment& env) {
  // wandb's sync does not look at them, but they say what is wanted.
  for (const auto& [name, values] : kForbidden) {
    const std::string value = ValueOf(env, name);
    if (std::find(values.begin(), values.end(), value) == values.end()) continue;
    return Status(Code::kEnvironment, fmt::format("{} is '{}'", name, value));
  }
  if (!OnPath(env, kUploader)) {
    return Status(Code::kEnvironment, "there is no program 'wandb' in PATH", "pip install wandb");
  }
  if (!HasKey(env)) {
    return Status(Code::kEnvironment, "no key: neither WANDB_API_KEY nor an entry of ~/.netrc", "wandb login");
  }
  return Status::Ok();
}

Result<WandbLive> WandbLive::Start(const std::string& dir, const Environment& env) {
  LOCKSTEP_RETURN_IF_ERROR(CanUploadToWandb(env));
  const std::string log = dir + "/sync.log";
  const UniqueFd out(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  const UniqueFd in(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!out || !in) return FileError("open", log, errno);
  SpawnOptions options;
  options.argv = {kUploader, "beta", "sync", "--live"};
  for (const std::string& fragment : WandbFragments(dir)) options.argv.push_back(fragment);
  for (const auto& [name, value] : env) {
    if (std::find(std::begin(kOfAProgram), std::end(kOfAProgram), name) == std::end(kOfAProgram)) {
      options.env.push_back(name + "=" + value);
    }
  }
  options.env.push_back("WANDB_DIR=" + dir.substr(0, dir.rfind('/')));  // its own logs: <run>/wandb/logs
  options.stdin_fd = in.get();
  options.stdout_fd = options.stderr_fd = out.get();
  Result<Process> process = Spawn(options);
  if (!process.ok()) return process.status();
  return WandbLive(dir, log, std::move(*process));
}

// It also ends with exit code 0 where the server refused the key. A fragment that is uploaded has a mark.
bool WandbLive::Uploaded(const ExitStatus& status) const {
  if (!status.success()) return false;
  for (const std::string& folder : WandbFragments(dir_)) {
    const std::string id = folder.substr(folder.rfind('-') + 1);
    if (::access((WandbFragmentFile(folder, id) + ".synced").c_str(), F_OK) != 0) return false;
  }
  return true;
}

std::string WandbLive::Ended(const ExitStatus& status) const {
  if (Uploaded(status)) return "uploaded";
  const std::string last = LastLine(log_);
  return fmt::format(
      "not uploaded: wandb's sync ended with {}{}{} (see {}); the files stay: wandb sync {}/offline-run-*",
      DescribeExit(status), last.empty() ? "" : ", ", last, log_, ShellQuote(dir_));
}

std::optional<std::string> WandbLive::Poll() {
  if (ended_) return std::nullopt;
  ended_ = TryWait(process_.pid);
  if (!ended_) return std::nullopt;
  return Uploaded(*ended_)
             ? fmt::format("wandb's sync ended before the run (see {}); later: wandb sync {}/offline-run-*", log_,
                           ShellQuote(dir_))
             : Ended(*ended_);
}

std::string WandbLive::Finish(Millis patience, Millis hurried, const std::function<bool()>& hurry) {
  if (ended_) return "";
  const TimePoint begin = Now();
  TimePoint until = begin + patience;
  for (bool late = false; !(ended_ = TryWait(process_.pid)) && Now() < until;) {
    if (!late && hurry()) {
      late = true;
      until = std::min(until, Now() + hurried);
    }
    std::this_thread::sleep_for(Millis(20));
  }
  if (ended_) return Ended(*ended_);
  SignalGroup(process_, SIGTERM);
  for (const TimePoint hard = Now() + Millis(2000); !ended_ && Now() < hard;) {
    std::this_thread::sleep_for(Millis(20));
    ended_ = TryWait(process_.pid);
  }
  if (!ended_) SignalGroup(process_, SIGKILL);
  return fmt::format("wandb's sync was not done after {} s; what is missing: wandb sync {}/offline-run-*",
                     std::chrono::duration_cast<std::chrono::seconds>(until - begin).count(), ShellQuote(dir_));
}

}  // namespace lockstep::track
