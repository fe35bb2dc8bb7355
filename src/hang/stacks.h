// Where a process stands right now: the stacks of all its threads and of its children, by whatever this machine offers.
// Python frames are read from the interpreter's own memory (stacks_python.h) or by py-spy, native ones by eu-stack or
// gdb, the rest from /proc. Looking changes nothing in the process; only where `pause` allows it may a tool stop it for
// a moment. Every tool has a deadline, all processes are looked at in parallel. Any thread.
//
//   for (const ProcessStacks& rank : CollectStacks({{.rank = 0, .pid = 4711}}, {})) fmt::print("{}", StacksText(rank));
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::hang {

struct StackFrame {
  std::string function;
  std::string file;  // of a native frame without source: its library
  int line = 0;
  std::string source;  // the text of that line, of the innermost frames
};

struct ThreadStack {
  pid_t tid = 0;  // 0: not known
  std::string name;
  char state = 0;       // of /proc: R, S, D, T, ...
  std::string wchan;    // where it sleeps in the kernel
  std::string syscall;  // the call it sleeps in, by name where known
  std::vector<StackFrame> python, native;
  std::vector<std::string> kernel;
  int64_t switches = -1;  // how often it has gone to sleep so far (voluntary context switches); -1: not known
  bool main = false;
};

struct ProcessStacks {
  int rank = -1;  // -1: no rank (a plain pid, a child)
  int node = -1;
  std::string host;
  pid_t pid = 0;
  std::string command;
  bool gone = false;                 // no such process
  std::vector<std::string> notes;    // which tool was used, what was refused
  std::vector<ThreadStack> threads;  // the main thread first
  std::vector<ProcessStacks> children;

  const ThreadStack* main() const { return threads.empty() ? nullptr : &threads.front(); }
};

struct StackTarget {
  int rank = -1;
  int node = -1;
  pid_t pid = 0;
};

struct StackOptions {
  bool pause = false;                    // tools that stop the process while they look are allowed
  bool tools = true;                     // false: /proc and memory only
  std::chrono::milliseconds tool{8000};  // for one tool and one process
  std::chrono::milliseconds all{15000};  // for everything; what is not there by then is missing
  std::string path;                      // where tools are looked up; empty: PATH of this process
};

std::vector<ProcessStacks> CollectStacks(const std::vector<StackTarget>& targets, const StackOptions& options);

// For people: one block per process, the innermost frame first.
std::string StacksText(const ProcessStacks& process);
nlohmann::json ToJson(const ProcessStacks& process);
ProcessStacks StacksFromJson(const nlohmann::json& json);

// What the tools print, as threads. Text that is none of theirs gives nothing.
std::vector<ThreadStack> ParsePySpy(std::string_view json);        // py-spy dump --json
std::vector<ThreadStack> ParsePySpyText(std::string_view text);    // py-spy dump
std::vector<ThreadStack> ParseGdb(std::string_view text);          // gdb: thread apply all bt
std::vector<ThreadStack> ParseEuStack(std::string_view text);      // eu-stack -p
std::vector<ThreadStack> ParseFaulthandler(std::string_view log);  // the last dump of Python's faulthandler in a log

}  // namespace lockstep::hang
