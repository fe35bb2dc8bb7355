#include "submit/client.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/columns.h"
#include "base/digits.h"
#include "base/env_file.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/own_program.h"
#include "base/process.h"
#include "base/text.h"

namespace lockstep::submit {
namespace {

constexpr int kPatienceMs = 3000;
constexpr size_t kLongestAnswer = 64u << 20;

// Waits for the script, passes a stop on to it alone (its ssh's must live to carry it), and keeps its exit code.
constexpr char kSshWrapper[] =
    "child= told=\n"
    "trap 'told=1 stopped=1; [ -z \"$child\" ] || kill -TERM \"$child\"' TERM\n"
    "bash \"$0\" & child=$!\n"
    "[ -z \"$told\" ] || kill -TERM \"$child\"\n"  // a stop that came before there was a child
    "stopped=1\n"
    // A trap ends "wait" with its signal's code, also when the child has just ended: its own code comes from another.
    "while [ $stopped -eq 1 ]; do stopped=0; wait \"$child\"; code=$?; done\n"
    "echo \"$code\" > \"$0.code\"\n";

// What holds the id in the answer of a client: "123", "123;cluster", "123[].server", or what follows `mark`, "Job <".
// Some sites print a greeting and what they have checked around it, also on stdout. Empty: it holds none.
std::string IdLine(const std::string& answer, std::string_view mark) {
  if (!mark.empty()) {
    const size_t at = answer.rfind(mark);
    return at == std::string::npos ? "" : answer.substr(at + mark.size());
  }
  std::string found;
  for (const std::string& line : Split(answer, '\n')) {
    const std::string_view word = Trim(line);
    const size_t behind = word.find_first_not_of("0123456789");
    const bool is_id = behind != 0 && (behind == word.npos || std::string_view(";[.").find(word[behind]) != word.npos);
    if (!word.empty() && is_id && word.find_first_of(" \t") == std::string_view::npos) found = word;
  }
  return found;
}

// The exit code of a child, 128 and more for a signal.
int WaitFor(const Process& process) {
  int status = 0;
  while (waitpid(process.pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The process that waits for a job over ssh still does. A dead one whose parent does not look is a zombie.
bool Waits(const JobRecord& record) {
  return record.boot == BootId() && record.start_time != 0 && ProcessStartTime(record.pid) == record.start_time &&
         ProcessState(record.pid) != 'Z';
}

}  // namespace

Result<std::string> Client::Program(const std::string& name) const {
  if (name.empty()) {
    return Status(Code::kUsage, fmt::format("{} has no client that Lockstep knows", platform_.what),
                  std::string(platform_.from));
  }
  const std::string path = FindExecutable(name, ValueOf(env_, "PATH"));
  if (!path.empty()) return path;
  return Status(Code::kEnvironment,
                fmt::format("{} needs the program '{}', and it is not in PATH", platform_.what, name),
                fmt::format("install it ({}), or run this where it is", platform_.from));
}

std::vector<std::string> Client::Words(const std::vector<std::string_view>& row,
                                       const std::map<std::string, std::string>& values) const {
  std::vector<std::string> words;
  for (const std::string_view form : row) {
    std::string word(form);
    bool empty = false;
    for (const auto& [name, value] : values) {
      const std::string mark = "{" + name + "}";
      for (size_t at; (at = word.find(mark)) != std::string::npos;) {
        empty = empty || value.empty();
        word.replace(at, mark.size(), value);
        if (value.find(mark) != std::string::npos) break;
      }
    }
    if (!empty) words.push_back(word);
  }
  return words;
}

std::map<std::string, std::string> Client::Values(const JobRecord& record) const {
  std::string kind(platform_.kind), user = ValueOf(env_, "USER");
  if (user.empty()) user = ValueOf(env_, "LOGNAME");
  return {{"file", record.file}, {"id", record.id},
          {"name", record.name}, {"cluster", record.cluster},
          {"since", ""},         {"namespace", record.name_space},
          {"kind", kind},        {"user", user.empty() ? std::to_string(getuid()) : user}};
}

Result<Client::Answer> Client::Ask(const std::vector<std::string>& words, const std::string& input) const {
  Result<std::string> program = Program(words[0]);
  if (!program.ok()) return program.status();
  // Files without a name: the input may hold a token, and Ctrl-C must leave nothing behind.
  std::array<UniqueFd, 3> files;
  for (UniqueFd& file : files) {
    file.reset(memfd_create("lockstep-client", MFD_CLOEXEC));
    if (!file) return Status(Code::kEnvironment, fmt::format("cannot make a file in memory: {}", ErrnoText(errno)));
  }
  const auto& [in, out, err] = files;
  const auto path = [](const UniqueFd& file) { return fmt::format("/proc/self/fd/{}", file.get()); };
  for (size_t at = 0; at < input.size();) {
    const ssize_t written = pwrite(in.get(), input.data() + at, input.size() - at, static_cast<off_t>(at));
    if (written < 0 && errno != EINTR) return FileError("write", path(in), errno);
    at += written < 0 ? 0 : static_cast<size_t>(written);
  }
  SpawnOptions options;
  options.argv = words;
  options.argv[0] = *program;
  options.env = ToStrings(env_);
  options.stdin_fd = in.get();
  options.stdout_fd = out.get();
  options.stderr_fd = err.get();
  options.new_session = false;
  Result<Process> process = Spawn(options);
  if (!process.ok()) return process.status();
  // A scheduler that does not answer is not to be guessed at: who waits is told for what.
  pollfd ended{process->pidfd.get(), POLLIN, 0};
  if (process->pidfd && poll(&ended, 1, kPatienceMs) == 0) {
    fmt::print(stderr, "lockstep: waiting for {} (Ctrl-C ends it)\n", Printable(ShellQuote(words), 400));
  }
  Answer answer;
  answer.code = WaitFor(*process);
  Result<std::string> output = ReadFile(path(out), kLongestAnswer);
  Result<std::string> errors = ReadFile(path(err), kLongestAnswer);
  if (!output.ok()) return output.status();
  answer.output = *output;
  answer.errors = errors.ok() ? *errors : "";
  return answer;
}

Status Client::Refused(const std::vector<std::string>& words, const Answer& answer) const {
  // Both: a warning in the one hides no reason in the other, and kubectl names there what it has made already.
  std::string said;
  for (const std::string* part : {&answer.errors, &answer.output}) {
    const std::string_view words_of = Trim(*part);
    if (!words_of.empty()) said += fmt::format("{}{}", said.empty() ? "" : "\n", words_of);
  }
  std::vector<std::string> lines;
  for (const std::string& line : Split(said.empty() ? "and said nothing" : said, '\n')) {
    lines.push_back("  " + OneLine(line, 400));
  }
  if (lines.size() > 12) lines.resize(12);
  // A job that is over keeps its name, as after its time limit, until it is deleted.
  const bool taken = !platform_.kind.empty() && said.find("already exists") != std::string::npos;
  return Status(
      Code::kEnvironment, fmt::format("{} ended with exit code {}\n{}", words[0], answer.code, Join(lines, "\n")),
      taken ? "lockstep cancel deletes the job of that name, also one that is over; or take another name"
            : fmt::format("the words are {}'s; it was called as: {}", words[0], Printable(ShellQuote(words), 400)));
}

Result<std::string> Client::Check(const JobRecord& record, const std::string& text) const {
  if (platform_.check.empty()) return std::string();
  std::vector<std::string> words = Words(platform_.check, Values(record));
  words.insert(words.begin(), std::string(platform_.client));
  Result<Answer> answer = Ask(words, platform_.file_as_input ? text : "");
  if (!answer.ok()) return answer.status();
  if (answer->code != 0) return Refused(words, *answer);
  return std::string(Trim(answer->output.empty() ? answer->errors : answer->output));
}

std::string Client::SyntaxErrors(const std::string& text) const {
  if (!text.starts_with("#!/bin/bash\n") || !Program("bash").ok()) return "";
  const Result<Answer> answer = Ask({"bash", "-n"}, text);
  return answer.ok() && answer->code != 0 ? std::string(Trim(answer->errors)) : "";
}

std::vector<std::string> Client::SubmitLines(const JobRecord& record) const {
  if (platform_.name == "ssh")
    return {fmt::format("bash {} > {} &", ShellQuote(record.file), ShellQuote(record.output))};
  std::vector<std::string> words = Words(platform_.submit, Values(record));
  words.insert(words.begin(), std::string(platform_.client));
  return {ShellQuote(words) + (platform_.file_as_input ? " < the job file" : "")};
}

Status Client::StartSsh(JobRecord* record) const {
  Result<std::string> ssh = Program();
  if (!ssh.ok()) return ssh.status();
  const UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd out(open(record->output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!out.valid()) return FileError("write", record->output, errno);
  SpawnOptions options;
  options.argv = {"bash", "-c", kSshWrapper, record->file};
  options.env = ToStrings(env_);
  options.workdir = record->folder;
  options.stdin_fd = nothing.get();
  options.stdout_fd = options.stderr_fd = out.get();
  options.die_with_parent = false;
  Result<Process> process = Spawn(options);
  if (!process.ok()) return process.status();
  record->pid = process->pid;
  record->start_time = ProcessStartTime(process->pid);
  record->boot = BootId();
  record->id = fmt::format("{}", process->pid);
  return Status::Ok();
}

Status Client::Submit(const std::string& text, JobRecord* record) const {
  if (platform_.name == "ssh") return StartSsh(record);
  std::vector<std::string> words = Words(platform_.submit, Values(*record));
  words.insert(words.begin(), std::string(platform_.client));
  Result<Answer> answer = Ask(words, platform_.file_as_input ? text : "");
  if (!answer.ok()) return answer.status();
  if (answer->code != 0) return Refused(words, *answer);
  if (!platform_.kind.empty()) {
    record->id = record->name;
    return Status::Ok();
  }
  const std::string said = IdLine(answer->output, platform_.id);
  record->id = said.substr(0, said.find_first_of(";> \n"));
  const std::string behind = said.substr(record->id.size());
  if (behind.starts_with(';')) record->cluster = behind.substr(1, behind.find_first_of(" \n") - 1);
  if (record->id.empty()) {
    return Status(Code::kEnvironment,
                  fmt::format("{} took the job and named no id; it said '{}'", words[0], OneLine(answer->output, 200)),
                  "look for the job with the platform's own commands");
  }
  return Status::Ok();
}

std::optional<std::string> Client::Here(const std::vector<std::string_view>& row) const {
  if (row.empty()) return std::nullopt;
  std::vector<std::string> words = Words(row, {});
  words.insert(words.begin(), std::string(platform_.client));
  const Result<Answer> answer = Ask(words);
  return answer.ok() && answer->code == 0 ? std::optional(std::string(Trim(answer->output))) : std::nullopt;
}

std::string Client::Cluster() const { return Here(platform_.here).value_or(""); }

std::string Client::NameSpace() const {
  const std::optional<std::string> said = Here(platform_.here_space);
  return said && said->empty() ? "default" : said.value_or("");
}

Result<std::vector<JobState>> Client::List(const std::string& cluster, const std::string& name_space) const {
  if (platform_.list.empty()) return std::vector<JobState>{};
  JobRecord nobody;
  nobody.cluster = cluster;
  nobody.name_space = name_space;
  std::vector<std::string> words = Words(platform_.list, Values(nobody));
  if (!platform_.kind.empty()) words.insert(words.begin(), std::string(platform_.client));
  Result<Answer> answer = Ask(words);
  if (!answer.ok()) return answer.status();
  if (answer->code != 0) {
    if (!platform_.nothing.empty() && answer->errors.find(platform_.nothing) != std::string::npos) {
      return std::vector<JobState>{};
    }
    return Refused(words, *answer);
  }
  Result<std::vector<JobState>> jobs = ReadList(platform_, answer->output);
  // qstat lists the jobs of everybody.
  const std::string user = Values(nobody)["user"];
  if (jobs.ok()) {
    std::erase_if(*jobs, [&](const JobState& job) { return !job.owner.empty() && job.owner != user; });
  }
  return jobs;
}

// From the platform's accounting, where it has one.
std::optional<JobState> Client::Past(const JobRecord& record) const {
  if (platform_.past.empty()) return std::nullopt;
  const Result<Answer> answer = Ask(Words(platform_.past, Values(record)));
  if (!answer.ok() || answer->code != 0) return std::nullopt;
  return ReadPast(platform_, record.id, answer->output);
}

std::string Client::OutputFile(const JobRecord& record) const {
  if (platform_.name != "slurm") return "";
  const Result<Answer> answer = Ask(Words(platform_.show, Values(record)));
  return answer.ok() && answer->code == 0 ? SlurmOutput(answer->output) : "";
}

JobState Client::Show(const JobRecord& record) const {
  JobState state;
  state.name = record.name;
  state.platform = record.platform;
  state.id = record.id;
  state.nodes = record.nodes;
  if (platform_.name == "ssh") {
    Result<std::string> code = ReadFile(record.file + ".code", 64);
    const std::optional<int> number = code.ok() ? ParseDigits(Trim(*code)) : std::nullopt;
    if (number) {
      state.exit_code = *number;
      state.state = *number == 0 ? "succeeded" : "failed";
      state.detail = *number == 75 ? "stopped, state saved" : fmt::format("exit code {}", *number);
    } else if (Waits(record)) {
      state.state = "running";
    } else {
      state.state = "ended";
      state.detail = record.boot == BootId() ? "its script was killed" : "this machine was started anew, or is another";
    }
    return state;
  }
  if (platform_.show.empty()) {
    Result<std::vector<JobState>> all = List(record.cluster, record.name_space);
    if (!all.ok()) {
      state.detail = OneLine(all.status().message(), 200);
      return state;
    }
    for (const JobState& one : *all) {
      if (one.id == record.id) return one;
    }
    state.state = "ended";
    state.detail = "the platform no longer knows it";
    return state;
  }
  Result<Answer> answer = Ask(Words(platform_.show, Values(record)));
  if (!answer.ok()) {
    state.detail = OneLine(answer.status().message(), 200);
    return state;
  }
  std::optional<JobState> found;
  if (answer->code == 0) found = ReadOne(platform_, record.id, answer->output);
  if (!found) found = Past(record);
  if (found) {
    found->name = record.name;
    if (found->nodes == 0) found->nodes = record.nodes;
    return *found;
  }
  // A client that fails for another reason has said nothing of the job.
  const std::string said(Trim(answer->errors));
  const bool forgotten = said.empty() ? answer->code == 0 : said.find(platform_.unknown_id) != std::string::npos;
  state.state = forgotten ? "ended" : "unknown";
  state.detail = forgotten ? "the platform no longer knows it" : OneLine(said, 200);
  return state;
}

Status Client::Cancel(const JobRecord& record) const {
  if (platform_.name == "ssh") {
    if (!Waits(record)) {
      return Status(Code::kUsage, fmt::format("job '{}' does not run on this machine", record.name),
                    fmt::format("it was submitted in {}; lockstep jobs shows how it ended", record.folder));
    }
    if (kill(record.pid, SIGTERM) != 0) {
      return Status(Code::kEnvironment, fmt::format("cannot stop process {}: {}", record.pid, ErrnoText(errno)));
    }
    return Status::Ok();
  }
  if (platform_.cancel.empty()) {
    return Status(Code::kUsage, fmt::format("{} has no client that Lockstep knows", platform_.what),
                  "stop the job in the platform's own page");
  }
  if (platform_.silent_cancel) {
    const JobState state = Show(record);
    if (state.ended()) {
      return Status(Code::kUsage,
                    fmt::format("job '{}' ({}) does not wait and does not run: {}{}", record.name, record.id,
                                state.state, state.detail.empty() ? "" : ", " + Printable(state.detail)),
                    "lockstep jobs lists those that do");
    }
  }
  std::vector<std::string> words = Words(platform_.cancel, Values(record));
  if (!platform_.kind.empty()) words.insert(words.begin(), std::string(platform_.client));
  Result<Answer> answer = Ask(words);
  if (!answer.ok()) return answer.status();
  if (answer->code != 0) return Refused(words, *answer);
  // kubectl names what it deletes, and takes nothing at all for a success.
  if (!platform_.kind.empty() && Trim(answer->output).find("deleted") == std::string::npos) {
    return Status(Code::kUsage,
                  fmt::format("the cluster has no job '{}' of Lockstep{}", record.name,
                              record.name_space.empty() ? "" : fmt::format(" in namespace {}", record.name_space)),
                  "it is over and deleted, or in another namespace or cluster: kubectl config current-context");
  }
  return Status::Ok();
}

Result<PodsState> Client::Pods(const JobRecord& record) const {
  std::vector<std::string> words = Words(platform_.pods, Values(record));
  words.insert(words.begin(), std::string(platform_.client));
  Result<Answer> answer = Ask(words);
  if (!answer.ok()) return answer.status();
  if (answer->code != 0) return Refused(words, *answer);
  return ReadPods(answer->output, record.nodes);
}

std::vector<std::string> Client::LogWords(const JobRecord& record, bool follow, std::optional<size_t> lines,
                                          const std::string& since) const {
  if (platform_.logs.empty()) return {};
  std::map<std::string, std::string> values = Values(record);
  values["follow"] = follow ? "--follow" : "";
  values["lines"] = lines ? std::to_string(*lines) : "-1";
  values["since"] = since;
  std::vector<std::string> words = Words(platform_.logs, values);
  words.insert(words.begin(), std::string(platform_.client));
  return words;
}

Result<int> Client::RunLogs(const std::vector<std::string>& words) const {
  Result<std::string> program = Program();
  if (!program.ok()) return program.status();
  SpawnOptions options;
  options.argv = words;
  options.argv[0] = *program;
  options.env = ToStrings(env_);
  options.new_session = false;
  Result<Process> process = Spawn(options);
  if (!process.ok()) return process.status();
  return WaitFor(*process);
}

}  // namespace lockstep::submit
