#include "cli/job_logs.h"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <vector>

#include "base/clock.h"
#include "base/env_file.h"
#include "base/text.h"
#include "record/log_tail.h"
#include "submit/client.h"

namespace lockstep::cli {
namespace {

constexpr auto kAskAgain = std::chrono::seconds(3);
constexpr int kPodsAskedMs = 1000;
constexpr int kMostFailures = 5;  // of kubectl, one after the other

void SayEnded(const FoundJob& job, const submit::JobState& state) {
  fmt::print(stderr, "lockstep logs: job '{}' has ended: {}{}{}\n", Printable(job.record.name), state.state,
             state.detail.empty() ? "" : ", ", Printable(state.detail));
}

// Everything there is now. False: whoever read us has gone.
bool PumpFile(record::LogTail* tail) {
  std::string data;
  while (tail->Read(&data)) {
    std::fwrite(data.data(), 1, data.size(), stdout);
    data.clear();
    if (std::ferror(stdout) != 0) return false;
  }
  return std::fflush(stdout) == 0;
}

Status FollowFile(FoundJob job, const submit::Client& client, const Environment& env, bool follow,
                  std::optional<size_t> lines) {
  const std::string path = job.record.output;
  if (!follow && access(path.c_str(), R_OK) != 0) {
    return Status(Code::kEnvironment, fmt::format("cannot read '{}': {}", path, ErrnoText(errno)),
                  "a job that waits has no output yet: lockstep jobs says its state; -f waits for it");
  }
  std::optional<record::LogTail> tail(path);
  if (lines) tail->SkipToLast(*lines);
  submit::JobState state;
  auto asked = Now() - kAskAgain;
  for (;;) {
    // The state first: what was written before the end is then read below.
    if (follow && Now() - asked >= kAskAgain) {
      state = client.Show(job.record);
      asked = Now();
    }
    if (!PumpFile(&*tail) || !follow) return Status::Ok();
    if (state.ended()) {
      const std::optional<submit::JobRecord> next = submit::Successor(job.record, env);
      if (!next) break;
      if (next->output != job.record.output) tail.emplace(next->output);
      job.record = *next;
      state = {};
      asked = Now() - kAskAgain;
    }
    ::poll(nullptr, 0, 200);
  }
  SayEnded(job, state);
  return Status::Ok();
}

// kubectl follows the pods that have started, and ends at once where there are none. False: the job has ended without.
Result<bool> WaitForPods(const FoundJob& job, const submit::Client& client) {
  for (bool told = false;;) {
    // The state first: the pods of a job that has ended do not come any more.
    const submit::JobState state = client.Show(job.record);
    if (state.state == "unknown") return Status(Code::kEnvironment, state.detail);
    Result<submit::PodsState> pods = client.Pods(job.record);
    if (!pods.ok()) return pods.status();
    if (pods->started) return true;
    if (state.ended()) {
      SayEnded(job, state);
      return false;
    }
    if (!told) fmt::print(stderr, "lockstep logs: waiting for the pods of job '{}'\n", Printable(job.record.name));
    told = true;
    ::poll(nullptr, 0, kPodsAskedMs);
  }
}

// kubectl ends with the pods; a job whose pods are started again goes on.
Status FollowPods(const FoundJob& job, const submit::Client& client, std::optional<size_t> lines) {
  std::string since;
  for (int failures = 0;;) {
    Result<bool> pods = WaitForPods(job, client);
    if (!pods.ok() || !*pods) return pods.status();
    std::fflush(stdout);
    Result<int> code = client.RunLogs(client.LogWords(job.record, true, lines, since));
    if (!code.ok()) return code.status();
    if (*code == 128 + SIGPIPE) return Status::Ok();  // whoever read us has gone
    // A pod that goes while kubectl asks for its log is a failure, too; its words have been printed.
    failures = *code == 0 ? 0 : failures + 1;
    if (failures == kMostFailures) {
      return Status(Code::kEnvironment, fmt::format("{} ended with exit code {}", job.platform->client, *code));
    }
    const submit::JobState state = client.Show(job.record);
    if (state.state == "unknown") return Status(Code::kEnvironment, state.detail);
    if (state.ended()) {
      SayEnded(job, state);
      return Status::Ok();
    }
    if (*code == 0) {
      // What was printed is not printed again: pods that have ended are there still. Where none has, kubectl lost them.
      Result<submit::PodsState> now = client.Pods(job.record);
      if (!now.ok()) return now.status();
      since = now->last_end;
      lines = since.empty() ? std::optional<size_t>(0) : std::nullopt;
    }
    ::poll(nullptr, 0, kPodsAskedMs);
  }
}

}  // namespace

Status ShowJobLogs(const FoundJob& job, bool follow, std::optional<size_t> lines, const Environment& env) {
  const submit::Client client(*job.platform, env);
  std::vector<std::string> words = client.LogWords(job.record, follow, lines);
  if (words.empty()) {
    FoundJob found = job;
    const bool here = job.record.submitted > 0;
    // The platform knows best: %A, %u and a job that was changed after its submission.
    if (const std::string output = client.OutputFile(job.record); !output.empty()) found.record.output = output;
    if (!found.record.output.empty()) return FollowFile(found, client, env, follow, lines);
    return Status(Code::kUsage, fmt::format("where job '{}' writes its output is not known here", job.record.name),
                  here ? "the elements of an array have a file each, beside where it was submitted"
                       : "it was not submitted from this account, and the platform does not say; look where it was");
  }
  Result<std::string> program = client.Program();
  if (!program.ok()) return program.status();
  if (follow) return FollowPods(job, client, lines);
  std::vector<char*> argv;
  words[0] = *program;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(stdout);
  execv(words[0].c_str(), argv.data());
  return Status(Code::kEnvironment, fmt::format("cannot start {}: {}", words[0], ErrnoText(errno)));
}

}  // namespace lockstep::cli
