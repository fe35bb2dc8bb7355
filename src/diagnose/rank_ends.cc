#include "diagnose/rank_ends.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <csignal>

#include "base/digits.h"
#include "base/text.h"
#include "diagnose/line_text.h"
#include "record/time_stamp.h"

namespace lockstep::diagnose {

const char* const kEndLines =
    R"((\bexitcode\s*:|\(exitcode|exit code|return code|exit status|exited on signal|: tasks? [\d,-]+: |^\s*(rank|host|time)\s+: )"
    R"(|Root Cause \(first observed|-- Process \d+ terminated|Process name: |Exit code: |non-zero exit|exited with|core dumped|terminated by signal))";

namespace {

constexpr int kStrongEnd = 4;  // as the judge's own errors weigh

struct SignalRow {
  int number;
  const char* name;
  const char* text;  // as strsignal and the shells say it
  const char* meaning;
};

constexpr SignalRow kSignals[] = {
    {SIGHUP, "SIGHUP", "Hangup", "its terminal or session was closed"},
    {SIGINT, "SIGINT", "Interrupt", "somebody pressed Ctrl-C"},
    {SIGQUIT, "SIGQUIT", "Quit", "somebody asked for a core dump"},
    {SIGILL, "SIGILL", "Illegal instruction", "a library is built for a newer processor"},
    {SIGTRAP, "SIGTRAP", "Trace/breakpoint trap", "native code hit a trap"},
    {SIGABRT, "SIGABRT", "Aborted", "native code gave up: an assertion, an uncaught C++ exception or NCCL's watchdog"},
    {SIGBUS, "SIGBUS", "Bus error", "memory behind a mapping is missing: /dev/shm is full, or a mapped file was cut"},
    {SIGFPE, "SIGFPE", "Floating point exception", "native code divided by zero"},
    {SIGKILL, "SIGKILL", "Killed", "killed from outside; most often the kernel, for lack of memory"},
    {SIGSEGV, "SIGSEGV", "Segmentation fault", "native code read or wrote memory that is not there"},
    {SIGPIPE, "SIGPIPE", "Broken pipe", "it wrote to a pipe nobody reads"},
    {SIGTERM, "SIGTERM", "Terminated", "it was asked to end: by a launcher, a scheduler or a person"},
    {SIGUSR1, "SIGUSR1", "User defined signal 1", "a scheduler's warning it did not handle"},
    {SIGUSR2, "SIGUSR2", "User defined signal 2", "a scheduler's warning it did not handle"},
    {SIGXCPU, "SIGXCPU", "CPU time limit exceeded", "it used more processor time than allowed"},
    {SIGXFSZ, "SIGXFSZ", "File size limit exceeded", "it wrote a larger file than allowed"},
    {SIGSYS, "SIGSYS", "Bad system call", "a sandbox forbids a system call"},
};

re2::StringPiece Piece(std::string_view text) { return {text.data(), text.size()}; }

// An exit code above 128 is a shell's word for a signal.
void SetCode(RankEnd* end, int code) {
  if (code < 0) {
    end->signal = -code;
  } else if (code > 128 && code <= 128 + 64 && SignalName(code - 128)[0] != '?') {
    end->signal = code - 128;
  } else {
    end->code = code;
  }
  end->after_stop = end->after_stop || end->signal == SIGTERM;
}

constexpr SignalAdvice kSignalAdvice[] = {
    {SIGKILL, 3, Policy::kOnce,
     "look at memory.events of the job's cgroup, dmesg or the pod's status; fewer loader workers or more memory"},
    {SIGSEGV, 3, Policy::kOnce,
     "PYTHONFAULTHANDLER=1 shows the Python stack; suspect extensions built for another torch or CUDA"},
    {SIGBUS, 3, Policy::kFix, "enlarge /dev/shm; make sure no file that is mapped gets overwritten"},
    {SIGILL, 3, Policy::kStop, "use a build for this processor, or nodes of one kind"},
    {SIGABRT, 2, Policy::kOnce, "look at the last lines of that rank"},
    {0, 3, Policy::kOnce, "look at the last lines of that rank"},
};

}  // namespace

const SignalAdvice& AdviceFor(int signal) {
  for (const SignalAdvice& advice : kSignalAdvice) {
    if (advice.signal == signal || advice.signal == 0) return advice;
  }
  return kSignalAdvice[0];
}

std::string SignalId(int signal) {
  std::string name = SignalName(signal);
  if (name == "?") return fmt::format("signal-{}", signal);
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return "exit-" + name;
}

std::string EndWords(const RankEnd& end) {
  if (end.signal != 0) return fmt::format("was ended by {}: {}", SignalName(end.signal), SignalMeaning(end.signal));
  return fmt::format("ended with code {}", end.code.value_or(0));
}

LogFinding EndFinding(const RankEnd& end, bool explained) {
  LogFinding finding;
  finding.source = end.source;
  finding.line = end.line;
  finding.source_marks = end.source_marks;
  finding.rank = end.rank;
  finding.node = end.node;
  finding.time = end.time;
  finding.role = end.after_stop ? Role::kTrigger : Role::kRoot;
  finding.cause = fmt::format("{} {}", end.rank >= 0 ? fmt::format("rank {}", end.rank) : "a rank", EndWords(end));
  if (end.signal != 0) {
    const SignalAdvice& advice = AdviceFor(end.signal);
    finding.id = SignalId(end.signal);
    finding.weight = advice.weight;
    finding.policy = advice.policy;
    finding.remedy = advice.remedy;
    if (end.after_stop || ((end.signal == SIGTERM || end.signal == SIGINT) && end.line > 0)) {
      finding.weight = 1;
      finding.role = Role::kTrigger;  // in a log nobody knows who asked for the end
    }
    if (end.first && finding.weight == 3) finding.weight = kStrongEnd;
    // An abort is how a process ends that has just said why.
    if (end.signal == SIGABRT && explained) finding.weight = 1;
  } else {
    finding.id = fmt::format("exit-{}", *end.code);
    // A rank that only noticed the end of another has said so itself.
    finding.weight = end.after_stop || end.rank < 0 || explained ? 1 : 2;
    finding.policy = Policy::kOnce;
    finding.remedy = "look at the whole output of that rank, stderr included";
    if (*end.code == 127 || *end.code == 126) {
      finding.policy = Policy::kStop;
      finding.remedy =
          "code 127: the program was not found; 126: it may not be executed. Check the command and the environment";
    }
  }
  finding.text = end.text.empty() ? finding.cause : end.text;
  return finding;
}

int SignalOfText(std::string_view text) {
  for (const SignalRow& row : kSignals) {
    if (Has(text, row.name) || Has(text, row.text)) return row.number;
  }
  return 0;
}

const char* SignalName(int signal) {
  for (const SignalRow& row : kSignals) {
    if (row.number == signal) return row.name;
  }
  return "?";
}

const char* SignalMeaning(int signal) {
  for (const SignalRow& row : kSignals) {
    if (row.number == signal) return row.meaning;
  }
  return "a signal ended it";
}

std::vector<int> ReadRanges(std::string_view text) {
  std::vector<int> numbers;
  for (const std::string& part : Split(text, ',')) {
    std::string_view rest = part;
    const std::optional<int> from = TakeDigits(&rest);
    if (!from) continue;
    const int to = rest.starts_with('-') ? LeadingDigits(rest.substr(1)).value_or(*from) : *from;
    for (int i = *from; i <= to && i >= 0 && numbers.size() < 4096; ++i) numbers.push_back(i);
  }
  return numbers;
}

int RankEndReader::TakeSpawned() {
  const int rank = spawned_;
  spawned_ = -1;
  return rank;
}

std::vector<RankEnd> RankEndReader::Feed(std::string_view text, double time) {
  // Compiled once: immutable afterwards.
  static const RE2 row(R"(^\s*(rank|host|time|exitcode)\s*: (\S+)(?: \(local_rank: (\d+)\))?)");
  static const RE2 elastic(R"(failed \(exitcode: (-?\d+)\) local_rank: (\d+))");
  static const RE2 srun(R"(srun: error: (\S+): tasks? ([\d,-]+): (.+))");
  static const RE2 mpi_signal(R"(process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+))");
  static const RE2 mpi_name(R"(Process name: \[\[\d+,\d+\],(\d+)\])");
  static const RE2 mpi_code(R"(^\s*Exit code:\s+(\d+))");
  static const RE2 spawn(R"(-- Process (\d+) terminated with)");
  static const RE2 spawn_exit(R"(process (\d+) terminated with (?:exit code (\d+)|signal (\w+)))");
  static const RE2 deepspeed(R"((?:--local_rank=(\d+).*)?exits with return code = (-?\d+))");
  static const RE2 code_word(R"(Exited with exit code (\d+))");

  std::vector<RankEnd> ends;
  std::string word, value;
  int number = 0, local = -1;
  if (Has(text, "Root Cause (first observed")) {
    root_ = true;
    pending_ = RankEnd();
    return ends;
  }
  if (RE2::PartialMatch(Piece(text), spawn, &number)) {
    spawned_ = number;
    return ends;
  }
  if (RE2::PartialMatch(Piece(text), elastic, &number, &local)) {
    RankEnd end;
    end.local_rank = local;
    SetCode(&end, number);
    end.time = time;
    end.text = text;
    ends.push_back(std::move(end));
    return ends;
  }
  std::string local_flag;
  if (RE2::PartialMatch(Piece(text), deepspeed, &local_flag, &number)) {
    RankEnd end;
    end.local_rank = LeadingDigits(local_flag).value_or(end.local_rank);
    SetCode(&end, number);
    end.time = time;
    end.text = text;
    if (end.failed()) ends.push_back(std::move(end));
    return ends;
  }
  std::string local_text;
  if (RE2::PartialMatch(Piece(text), row, &word, &value, &local_text)) {
    if (word == "time") {
      pending_ = RankEnd();
      if (auto at = record::ParseTime(value)) pending_.time = *at;
    } else if (word == "host") {
      pending_.node = value;
    } else if (word == "rank") {
      pending_.rank = LeadingDigits(value).value_or(pending_.rank);
      pending_.local_rank = LeadingDigits(local_text).value_or(pending_.local_rank);
    } else if (pending_.rank >= 0) {
      SetCode(&pending_, ParseInteger(value).value_or(number));
      pending_.first = root_;
      pending_.text = Trim(text);
      ends.push_back(pending_);
      pending_ = RankEnd();
      root_ = false;
    }
    return ends;
  }
  std::string node, list, how;
  if (RE2::PartialMatch(Piece(text), srun, &node, &list, &how)) {
    for (int rank : ReadRanges(list)) {
      RankEnd end;
      end.rank = rank;
      end.node = node;
      if (RE2::PartialMatch(how, code_word, &number)) {
        SetCode(&end, number);
      } else {
        end.signal = SignalOfText(how);
        if (end.signal == 0 && Has(how, "Out Of Memory")) end.signal = SIGKILL;
        end.after_stop = end.signal == SIGTERM;
      }
      end.time = time;
      end.text = text;
      if (end.failed()) ends.push_back(std::move(end));
    }
    return ends;
  }
  if (RE2::PartialMatch(Piece(text), mpi_signal, &local, &node, &number)) {
    RankEnd end;
    end.rank = local;
    end.node = node;
    end.signal = number;
    end.after_stop = number == SIGTERM;
    end.text = text;
    ends.push_back(std::move(end));
    return ends;
  }
  if (RE2::PartialMatch(Piece(text), mpi_name, &number)) {
    pending_ = RankEnd();
    pending_.rank = number;
    return ends;
  }
  if (pending_.rank >= 0 && RE2::PartialMatch(Piece(text), mpi_code, &number)) {
    SetCode(&pending_, number);
    pending_.first = true;
    pending_.text = Trim(text);
    ends.push_back(pending_);
    pending_ = RankEnd();
    return ends;
  }
  std::string code, signal;
  if (RE2::PartialMatch(Piece(text), spawn_exit, &number, &code, &signal)) {
    RankEnd end;
    end.rank = number;
    if (!code.empty()) {
      SetCode(&end, ParseDigits(code).value_or(0));
    } else {
      end.signal = SignalOfText(signal);
    }
    end.text = text;
    if (end.failed()) ends.push_back(std::move(end));
  }
  return ends;
}

}  // namespace lockstep::diagnose
