// Stacks as text and JSON, and the texts of the tools as stacks.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/digits.h"
#include "base/text.h"
#include "hang/stacks.h"

namespace lockstep::hang {
namespace {

using nlohmann::json;

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t eol = text.find('\n');
    std::string_view line = text.substr(0, eol);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(eol == std::string_view::npos ? text.size() : eol + 1);
  }
  return lines;
}

int ToInt(std::string_view text) { return LeadingDigits(Trim(text)).value_or(0); }

std::string Text(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

int Number(const json& object, const char* key, int otherwise = 0) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<int>() : otherwise;
}

// The main thread first: where a process stands is where that thread stands.
void MainFirst(std::vector<ThreadStack>* threads) {
  const auto main =
      std::find_if(threads->begin(), threads->end(), [](const ThreadStack& thread) { return thread.main; });
  if (main != threads->end()) std::rotate(threads->begin(), main, main + 1);
}

json FramesJson(const std::vector<StackFrame>& frames) {
  json out = json::array();
  for (const StackFrame& frame : frames) {
    out.push_back({{"function", frame.function}, {"file", frame.file}, {"line", frame.line}});
    if (!frame.source.empty()) out.back()["source"] = frame.source;
  }
  return out;
}

std::vector<StackFrame> FramesFrom(const json& object, const char* key) {
  std::vector<StackFrame> frames;
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) return frames;
  for (const json& row : *it) {
    if (row.is_object())
      frames.push_back({Text(row, "function"), Text(row, "file"), Number(row, "line"), Text(row, "source")});
  }
  return frames;
}

void AppendFrames(const std::vector<StackFrame>& frames, std::string* out) {
  for (const StackFrame& frame : frames) {
    *out += fmt::format("      {}{}\n", Printable(frame.function, 200),
                        frame.file.empty() ? ""
                        : frame.line > 0   ? fmt::format(" ({}:{})", Printable(frame.file, 300), frame.line)
                                           : fmt::format(" ({})", Printable(frame.file, 300)));
    if (!frame.source.empty()) *out += fmt::format("        {}\n", Printable(frame.source, 200));
  }
}

void AppendProcess(const ProcessStacks& process, const std::string& title, std::string* out) {
  *out += fmt::format("{}, pid {}: {}\n", title, process.pid, process.gone ? "gone" : Printable(process.command, 200));
  for (const std::string& note : process.notes) *out += fmt::format("    note: {}\n", Printable(note, 300));
  for (const ThreadStack& thread : process.threads) {
    *out += fmt::format("    {}thread {}{}{}{}{}\n", thread.main ? "main " : "", thread.tid,
                        thread.name.empty() ? "" : fmt::format(" \"{}\"", Printable(thread.name, 64)),
                        thread.state == 0 ? "" : fmt::format(", state {}", thread.state),
                        thread.syscall.empty() ? "" : ", in " + thread.syscall,
                        thread.wchan.empty() ? "" : fmt::format(" ({})", thread.wchan));
    AppendFrames(thread.python, out);
    AppendFrames(thread.native, out);
    if (thread.python.empty() && thread.native.empty()) {
      for (const std::string& frame : thread.kernel) *out += fmt::format("      kernel: {}\n", frame);
    }
  }
  for (const ProcessStacks& child : process.children) AppendProcess(child, "  child", out);
}

}  // namespace

std::string StacksText(const ProcessStacks& process) {
  std::string out;
  std::string title = process.rank >= 0 ? fmt::format("rank {}", process.rank) : "process";
  if (process.node >= 0) title += fmt::format(" on node {}", process.node);
  if (!process.host.empty()) title += fmt::format(" ({})", process.host);
  AppendProcess(process, title, &out);
  return out;
}

json ToJson(const ProcessStacks& process) {
  json threads = json::array(), children = json::array();
  for (const ThreadStack& thread : process.threads) {
    threads.push_back({{"tid", thread.tid},
                       {"name", thread.name},
                       {"main", thread.main},
                       {"state", thread.state == 0 ? "" : std::string(1, thread.state)},
                       {"wchan", thread.wchan},
                       {"syscall", thread.syscall},
                       {"switches", thread.switches},
                       {"python", FramesJson(thread.python)},
                       {"native", FramesJson(thread.native)},
                       {"kernel", thread.kernel}});
  }
  for (const ProcessStacks& child : process.children) children.push_back(ToJson(child));
  return {{"rank", process.rank},   {"node", process.node}, {"host", process.host},
          {"pid", process.pid},     {"gone", process.gone}, {"command", process.command},
          {"notes", process.notes}, {"threads", threads},   {"children", children}};
}

ProcessStacks StacksFromJson(const json& object) {
  ProcessStacks process;
  if (!object.is_object()) return process;
  process.rank = Number(object, "rank", -1);
  process.node = Number(object, "node", -1);
  process.host = Text(object, "host");
  process.pid = Number(object, "pid");
  process.command = Text(object, "command");
  if (auto it = object.find("gone"); it != object.end() && it->is_boolean()) process.gone = it->get<bool>();
  const auto each = [&](const json& from, const char* key, auto&& take) {
    const auto it = from.find(key);
    if (it == from.end() || !it->is_array()) return;
    for (const json& row : *it) take(row);
  };
  each(object, "notes", [&](const json& row) {
    if (row.is_string()) process.notes.push_back(row.get<std::string>());
  });
  each(object, "threads", [&](const json& row) {
    if (!row.is_object()) return;
    ThreadStack thread;
    thread.tid = Number(row, "tid");
    thread.name = Text(row, "name");
    const std::string state = Text(row, "state");
    thread.state = state.empty() ? '\0' : state[0];
    thread.wchan = Text(row, "wchan");
    thread.syscall = Text(row, "syscall");
    if (auto it = row.find("main"); it != row.end() && it->is_boolean()) thread.main = it->get<bool>();
    if (auto it = row.find("switches"); it != row.end() && it->is_number_integer()) {
      thread.switches = it->get<int64_t>();
    }
    thread.python = FramesFrom(row, "python");
    thread.native = FramesFrom(row, "native");
    each(row, "kernel", [&](const json& line) {
      if (line.is_string()) thread.kernel.push_back(line.get<std::string>());
    });
    process.threads.push_back(std::move(thread));
  });
  each(object, "children", [&](const json& row) { process.children.push_back(StacksFromJson(row)); });
  return process;
}

std::vector<ThreadStack> ParsePySpy(std::string_view text) {
  std::vector<ThreadStack> threads;
  const json document = json::parse(text, nullptr, false);
  if (!document.is_array()) return threads;
  for (const json& row : document) {
    if (!row.is_object()) continue;
    ThreadStack thread;
    thread.tid = Number(row, "os_thread_id");
    thread.name = Text(row, "thread_name");
    thread.main = thread.name == "MainThread";
    const auto frames = row.find("frames");
    if (frames == row.end() || !frames->is_array()) continue;
    for (const json& frame : *frames) {
      if (frame.is_object())
        thread.python.push_back({Text(frame, "name"), Text(frame, "filename"), Number(frame, "line"), ""});
    }
    threads.push_back(std::move(thread));
  }
  MainFirst(&threads);
  return threads;
}

// Thread 17052 (idle): "MainThread"
//     barrier (torch/distributed/distributed_c10d.py:5356)
std::vector<ThreadStack> ParsePySpyText(std::string_view text) {
  std::vector<ThreadStack> threads;
  bool inside = false;
  for (std::string_view line : Lines(text)) {
    if (line.starts_with("Thread ")) {
      ThreadStack thread;
      thread.tid = ToInt(line.substr(7));
      const size_t open = line.find('"'), close = line.rfind('"');
      if (open != std::string_view::npos && close > open) thread.name = line.substr(open + 1, close - open - 1);
      thread.main = thread.name == "MainThread";
      threads.push_back(std::move(thread));
      inside = true;
    } else if (inside && line.starts_with("    ")) {
      const size_t open = line.rfind(" ("), colon = line.rfind(':');
      if (open == std::string_view::npos || colon == std::string_view::npos || colon < open || !line.ends_with(')')) {
        continue;
      }
      threads.back().python.push_back({std::string(Trim(line.substr(0, open))),
                                       std::string(line.substr(open + 2, colon - open - 2)),
                                       ToInt(line.substr(colon + 1)), ""});
    } else {
      inside = false;
    }
  }
  MainFirst(&threads);
  return threads;
}

// Thread 1 (Thread 0x7f02b18c8b80 (LWP 17053) "python"):
// #1  0x00007f02b1515ada in pysleep (timeout=...) at ./Modules/timemodule.c:2159
// #2  0x00007f... in uv_run () from /lib/libuv.so.1
std::vector<ThreadStack> ParseGdb(std::string_view text) {
  std::vector<ThreadStack> threads;
  for (std::string_view line : Lines(text)) {
    if (line.starts_with("Thread ") && line.find('(') != std::string_view::npos && line.ends_with(':')) {
      ThreadStack thread;
      size_t lwp = line.find("LWP ");
      if (lwp != std::string_view::npos) thread.tid = ToInt(line.substr(lwp + 4));
      if (lwp = line.find("process "); lwp != std::string_view::npos) thread.tid = ToInt(line.substr(lwp + 8));
      thread.main = ToInt(line.substr(7)) == 1;  // gdb numbers the first thread 1
      threads.push_back(std::move(thread));
      continue;
    }
    if (!line.starts_with('#') || threads.empty()) continue;
    std::string_view rest = line.substr(1);
    rest.remove_prefix(std::min(rest.find_first_not_of("0123456789"), rest.size()));
    rest = Trim(rest);
    if (rest.starts_with("0x")) {
      const size_t in = rest.find(" in ");
      if (in == std::string_view::npos) continue;
      rest.remove_prefix(in + 4);
    }
    StackFrame frame;
    // The name ends at the argument list: a blank and a bracket outside of template and operator brackets.
    size_t end = rest.find(" (");
    if (rest.starts_with("(anonymous namespace)") || rest.starts_with("operator()")) end = rest.find(" (", 12);
    frame.function = std::string(Trim(rest.substr(0, end)));
    if (const size_t at = rest.rfind(") at "); at != std::string_view::npos) {
      const std::string_view place = rest.substr(at + 5);
      const size_t colon = place.rfind(':');
      frame.file = std::string(place.substr(0, colon));
      if (colon != std::string_view::npos) frame.line = ToInt(place.substr(colon + 1));
    } else if (const size_t from = rest.rfind(") from "); from != std::string_view::npos) {
      frame.file = std::string(rest.substr(from + 7));
    }
    if (!frame.function.empty()) threads.back().native.push_back(std::move(frame));
  }
  MainFirst(&threads);
  return threads;
}

// PID 4711 - process
// TID 4711:
// #0  0x00007f2b0f0c6545 clock_nanosleep
// #1  0x... in pysleep ... - /usr/bin/python3.11 (with -m: module after a dash)
std::vector<ThreadStack> ParseEuStack(std::string_view text) {
  std::vector<ThreadStack> threads;
  pid_t pid = 0;
  for (std::string_view line : Lines(text)) {
    if (line.starts_with("PID ")) {
      pid = ToInt(line.substr(4));
    } else if (line.starts_with("TID ")) {
      ThreadStack thread;
      thread.tid = ToInt(line.substr(4));
      thread.main = thread.tid == pid;
      threads.push_back(std::move(thread));
    } else if (line.starts_with('#') && !threads.empty()) {
      const size_t address = line.find("0x");
      if (address == std::string_view::npos) continue;
      std::string_view rest = line.substr(address);
      rest.remove_prefix(std::min(rest.find_first_of(" \t"), rest.size()));
      rest = Trim(rest);
      if (rest.starts_with("- 1 ")) rest.remove_prefix(4);
      StackFrame frame;
      const size_t dash = rest.find(" - ");
      frame.function = std::string(Trim(rest.substr(0, dash)));
      if (dash != std::string_view::npos) frame.file = std::string(Trim(rest.substr(dash + 3)));
      if (!frame.function.empty()) threads.back().native.push_back(std::move(frame));
    }
  }
  MainFirst(&threads);
  return threads;
}

// Fatal Python error: Aborted
//
// Thread 0x00007f6f3d7fa700 (most recent call first):
//   File "/usr/lib/python3.11/threading.py", line 324 in wait
// Current thread 0x00007fa83ae58b80 (most recent call first):
//   File "train.py", line 8 in <module>
std::vector<ThreadStack> ParseFaulthandler(std::string_view log) {
  std::vector<ThreadStack> threads;
  bool inside = false;
  for (std::string_view line : Lines(log)) {
    if (line.starts_with("Fatal Python error: ") || line.starts_with("Timeout (")) threads.clear();  // a later dump
    const bool current = line.starts_with("Current thread 0x");
    if ((current || line.starts_with("Thread 0x")) && line.find("(most recent call first)") != std::string_view::npos) {
      ThreadStack thread;
      // A signal for the process is handled by its main thread unless that one blocks it.
      thread.main = current;
      const size_t open = line.find('[');
      const size_t close = line.find(']');
      if (open != std::string_view::npos && close != std::string_view::npos && close > open) {
        thread.name = std::string(line.substr(open + 1, close - open - 1));
      }
      threads.push_back(std::move(thread));
      inside = true;
    } else if (inside && line.starts_with("  File \"")) {
      const size_t close = line.find("\", line ");
      const size_t in = line.find(" in ", close == std::string_view::npos ? 0 : close);
      if (close == std::string_view::npos || in == std::string_view::npos) continue;
      threads.back().python.push_back(
          {std::string(line.substr(in + 4)), std::string(line.substr(8, close - 8)), ToInt(line.substr(close + 8))});
    } else {
      inside = false;
    }
  }
  std::erase_if(threads, [](const ThreadStack& thread) { return thread.python.empty(); });
  // Without a "current" one the last thread listed is the first that was made: the main thread.
  if (!threads.empty() && std::none_of(threads.begin(), threads.end(), [](const auto& t) { return t.main; })) {
    threads.back().main = true;
  }
  MainFirst(&threads);
  return threads;
}

}  // namespace lockstep::hang
