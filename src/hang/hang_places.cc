// Where one rank stands: the tables of frame names and how they are read.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <string_view>

#include "base/text.h"
#include "hang/hang.h"

namespace lockstep::hang {
namespace {

// A frame of an installed package or of Python itself is recognised by its function and, where given, a part of its
// file's path; the user's own functions may be called anything. `function` ending in '*' is a beginning, beginning with
// '*' an ending, both: a part. Rows are tried in this order for each frame, innermost frame first.
struct Row {
  const char* function;
  const char* file;  // part of the path, empty: any
  Where where;
  const char* operation;  // empty: the function's own name
};

constexpr Row kPython[] = {
    // Waiting for the others to appear.
    {"*rendezvous*", "torch/distributed", Where::kRendezvous, "rendezvous"},
    {"*_store_based_barrier*", "", Where::kRendezvous, "store barrier"},
    {"_create_c10d_store", "", Where::kRendezvous, "rendezvous"},
    {"*_new_process_group_helper*", "", Where::kRendezvous, "new process group"},
    {"*init_process_group*", "distributed", Where::kRendezvous, "init_process_group"},
    {"*new_group*", "distributed", Where::kRendezvous, "new_group"},
    {"*init_device_mesh*", "", Where::kRendezvous, "init_device_mesh"},
    // Collectives.
    {"*monitored_barrier*", "distributed", Where::kCollective, "monitored_barrier"},
    {"*barrier*", "distributed", Where::kCollective, "barrier"},
    {"*all_reduce*", "", Where::kCollective, "all_reduce"},
    {"*allreduce*", "", Where::kCollective, "all_reduce"},
    {"*all_gather*", "", Where::kCollective, "all_gather"},
    {"*allgather*", "", Where::kCollective, "all_gather"},
    {"*reduce_scatter*", "", Where::kCollective, "reduce_scatter"},
    {"*all_to_all*", "", Where::kCollective, "all_to_all"},
    {"*broadcast*", "distributed", Where::kCollective, "broadcast"},
    {"*broadcast*", "accelerate", Where::kCollective, "broadcast"},
    {"*wait_for_everyone*", "", Where::kCollective, "barrier"},
    {"reduce", "distributed_c10d", Where::kCollective, "reduce"},
    {"gather*", "distributed_c10d", Where::kCollective, "gather"},
    {"scatter*", "distributed_c10d", Where::kCollective, "scatter"},
    {"send*", "distributed_c10d", Where::kCollective, "send"},
    {"recv*", "distributed_c10d", Where::kCollective, "recv"},
    {"*batch_isend_irecv*", "", Where::kCollective, "send and recv"},
    {"*_sync_module_states*", "", Where::kCollective, "broadcast of the model"},
    {"*_verify_param_shape_across_processes*", "", Where::kCollective, "check of the model"},
    {"*_sync_buffers*", "distributed", Where::kCollective, "broadcast of buffers"},
    {"*_sync_params*", "", Where::kCollective, "broadcast of the model"},
    {"wait_tensor*", "_functional_collectives", Where::kCollective, "wait() of a collective"},
    {"trigger_wait", "_functional_collectives", Where::kCollective, "wait() of a collective"},
    {"Wait", "mpi4py", Where::kCollective, ""},
    {"*synchronize*", "horovod", Where::kCollective, "all_reduce"},
    // Data.
    {"*", "torch/utils/data/", Where::kDataLoader, ""},
    {"*", "webdataset", Where::kDataLoader, ""},
    {"*", "nvidia/dali", Where::kDataLoader, ""},
    {"*", "/datasets/iterable_dataset", Where::kDataLoader, ""},
    {"*", "/datasets/arrow_dataset", Where::kDataLoader, ""},
    {"*DataLoader*", "", Where::kDataLoader, ""},
    // The device.
    {"synchronize", "torch/cuda", Where::kDevice, ""},
    {"*synchronize*", "torch/accelerator", Where::kDevice, ""},
    // Files.
    {"save", "torch/serialization.py", Where::kFile, "save"},
    {"_save", "torch/serialization.py", Where::kFile, "save"},
    {"load", "torch/serialization.py", Where::kFile, "load"},
    {"_load", "torch/serialization.py", Where::kFile, "load"},
    {"*save_file*", "safetensors", Where::kFile, "save"},
    {"*", "torch/distributed/checkpoint", Where::kFile, "checkpoint"},
    {"*fsync*", "", Where::kFile, ""},
    {"*", "fsspec", Where::kFile, ""},
    // Locks and sockets of its own.
    {"acquire", "filelock", Where::kLock, "file lock"},
    {"*", "filelock", Where::kLock, "file lock"},
    {"wait*", "threading.py", Where::kLock, ""},
    {"join*", "threading.py", Where::kLock, "thread"},
    {"_wait_for_tstate_lock", "threading.py", Where::kLock, "thread"},
    {"_shutdown", "threading.py", Where::kLock, "thread"},
    {"acquire", "threading.py", Where::kLock, ""},
    {"__enter__", "threading.py", Where::kLock, ""},
    {"select", "selectors.py", Where::kLock, ""},
    {"get", "queue.py", Where::kLock, "queue"},
    {"put", "queue.py", Where::kLock, "queue"},
    {"join", "queue.py", Where::kLock, "queue"},
    {"get", "multiprocessing/queues.py", Where::kLock, "queue"},
    {"put", "multiprocessing/queues.py", Where::kLock, "queue"},
    {"*", "multiprocessing/", Where::kLock, "process"},
    {"*wait*", "subprocess.py", Where::kLock, "child process"},
    {"communicate", "subprocess.py", Where::kLock, "child process"},
    {"_communicate", "subprocess.py", Where::kLock, "child process"},
    {"*", "torch/distributed/elastic/", Where::kLock, "process"},  // another launcher inside ours
    {"*", "deepspeed/launcher/", Where::kLock, "process"},
    {"result", "concurrent/futures", Where::kLock, "future"},
    {"wait", "concurrent/futures", Where::kLock, "future"},
    {"*", "asyncio/", Where::kLock, "event of asyncio"},
    {"*", "/ssl.py", Where::kNetwork, ""},
    {"*", "/socket.py", Where::kNetwork, ""},
    {"*", "http/client.py", Where::kNetwork, ""},
    {"*", "urllib3", Where::kNetwork, ""},
    {"*", "/requests/", Where::kNetwork, ""},
    {"*", "/httpx/", Where::kNetwork, ""},
    {"*", "/httpcore/", Where::kNetwork, ""},
};

constexpr Row kNative[] = {
    {"*TCPStore*", "", Where::kRendezvous, "store"},
    {"*c10d::Store*", "", Where::kRendezvous, "store"},
    {"*PrefixStore*", "", Where::kRendezvous, "store"},
    {"*ncclCommInit*", "", Where::kRendezvous, "communicator set-up"},
    {"*bootstrapInit*", "", Where::kRendezvous, "communicator set-up"},
    {"*barrier*", "gloo", Where::kCollective, "barrier"},
    {"gloo::barrier*", "", Where::kCollective, "barrier"},
    {"*gloo::*allreduce*", "", Where::kCollective, "all_reduce"},
    {"*gloo::*broadcast*", "", Where::kCollective, "broadcast"},
    {"*gloo::*allgather*", "", Where::kCollective, "all_gather"},
    {"*gloo::transport*wait*", "", Where::kCollective, "collective"},
    {"*gloo::*UnboundBuffer*", "", Where::kCollective, "collective"},
    {"*ncclAllReduce*", "", Where::kCollective, "all_reduce"},
    {"*ncclAllGather*", "", Where::kCollective, "all_gather"},
    {"*ncclReduceScatter*", "", Where::kCollective, "reduce_scatter"},
    {"*ncclBroadcast*", "", Where::kCollective, "broadcast"},
    {"*ncclSend*", "", Where::kCollective, "send"},
    {"*ncclRecv*", "", Where::kCollective, "recv"},
    {"*ProcessGroup*wait*", "", Where::kCollective, "collective"},
    {"*c10d::*Work*wait*", "", Where::kCollective, "collective"},
    {"*AllReduce*", "comm", Where::kCollective, "all_reduce"},
    {"*lockstep::comm::*", "", Where::kCollective, "collective"},
    {"PMPI_Allreduce*", "", Where::kCollective, "all_reduce"},
    {"PMPI_Barrier*", "", Where::kCollective, "barrier"},
    {"PMPI_*", "", Where::kCollective, "MPI call"},
    {"MPI_*", "", Where::kCollective, "MPI call"},
    {"*lockstep::data::*", "", Where::kDataLoader, ""},
    {"*cudaStreamSynchronize*", "", Where::kDevice, ""},
    {"*cudaDeviceSynchronize*", "", Where::kDevice, ""},
    {"*cuStreamSynchronize*", "", Where::kDevice, ""},
    {"*cuCtxSynchronize*", "", Where::kDevice, ""},
    {"*cudaEventSynchronize*", "", Where::kDevice, ""},
    {"*cuEventSynchronize*", "", Where::kDevice, ""},
    {"*c10d::Reducer::*", "", Where::kCollective, "all_reduce of the gradients"},
    {"*pthread_join*", "", Where::kLock, "thread"},
    {"*pthread_mutex_lock*", "", Where::kLock, ""},
    {"*pthread_cond_*wait*", "", Where::kLock, ""},
    {"*lock_PyThread_acquire_lock*", "", Where::kLock, ""},
    {"*PyThread_acquire_lock_timed*", "", Where::kLock, ""},
    {"pysleep", "", Where::kSleep, ""},
    {"time_sleep", "", Where::kSleep, ""},
    {"*clock_nanosleep*", "", Where::kSleep, ""},
    {"*nanosleep*", "", Where::kSleep, ""},
    {"sleep", "", Where::kSleep, ""},
    {"usleep", "", Where::kSleep, ""},
};

bool FunctionMatches(std::string_view pattern, std::string_view name) {
  const bool open_start = pattern.starts_with('*');
  const bool open_end = pattern.size() > 1 && pattern.ends_with('*');
  if (open_start) pattern.remove_prefix(1);
  if (open_end) pattern.remove_suffix(1);
  if (pattern.empty()) return true;
  if (const size_t star = pattern.find('*'); star != std::string_view::npos) {
    const size_t first = name.find(pattern.substr(0, star));
    return first != std::string_view::npos && (open_start || first == 0) &&
           name.find(pattern.substr(star + 1), first + star) != std::string_view::npos;
  }
  if (open_start && open_end) return name.find(pattern) != std::string_view::npos;
  if (open_start) return name.ends_with(pattern);
  if (open_end) return name.starts_with(pattern);
  return name == pattern;
}

template <size_t N>
const Row* Find(const Row (&table)[N], const StackFrame& frame, bool python) {
  std::string_view name = frame.function;
  // A method by its last name: "Worker.train.<locals>.all_reduce" is all_reduce.
  if (python) {
    if (const size_t dot = name.rfind('.'); dot != std::string_view::npos) name.remove_prefix(dot + 1);
  }
  for (const Row& row : table) {
    const std::string_view file = row.file;
    if (!file.empty() && frame.file.find(file) == std::string::npos) continue;
    if (FunctionMatches(row.function, name)) return &row;
  }
  return nullptr;
}

// A call into C shows in no frame: the text of the innermost line tells what it may be. Only of a thread that sleeps: a
// collective that waits on the host does.
const Row* FromSource(const ThreadStack& thread, bool backward) {
  static constexpr Row kBackward = {"", "", Where::kCollective, "backward (the all_reduce of its gradients)"};
  static constexpr Row kStore = {"", "", Where::kRendezvous, "the store"};
  static constexpr Row kWait = {"", "", Where::kCollective, "wait() of a collective"};
  static constexpr Row kLocked = {"", "", Where::kLock, ""};
  static constexpr Row kDeviceCall = {"", "", Where::kDevice, ""};
  static constexpr std::pair<std::string_view, Row> kCalls[] = {
      {"allreduce(", {"", "", Where::kCollective, "all_reduce"}},
      {"all_reduce(", {"", "", Where::kCollective, "all_reduce"}},
      {"barrier(", {"", "", Where::kCollective, "barrier"}},
      {"allgather(", {"", "", Where::kCollective, "all_gather"}},
      {"all_gather(", {"", "", Where::kCollective, "all_gather"}},
      {"bcast(", {"", "", Where::kCollective, "broadcast"}},
  };
  // mpi4py calls straight into C, and many an MPI waits by asking again and again.
  std::string line = thread.python.front().source;
  for (char& c : line) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (thread.state != 'R' || line.find("comm.") != std::string::npos || line.find("comm_world.") != std::string::npos) {
    for (const auto& [word, row] : kCalls) {
      if (line.find(word) != std::string::npos) return &row;
    }
  }
  if (thread.state == 0 || thread.state == 'R' || thread.syscall.find("nanosleep") != std::string::npos) return nullptr;
  if (backward) return &kBackward;
  const std::string& text = thread.python.front().source;
  const auto has = [&](std::string_view word) { return text.find(word) != std::string::npos; };
  if (has("store.") || has("Store(")) return &kStore;
  const bool may_be_a_lock = thread.syscall.empty() || thread.syscall == "futex";
  if (may_be_a_lock && (has(".acquire(") || text.starts_with("with "))) return &kLocked;
  if (has(".wait(")) return &kWait;
  if (has(".item(") || has(".cpu(") || has(".tolist(") || has("synchronize(")) return &kDeviceCall;
  return nullptr;
}

bool IsTorch(std::string_view file) {
  static constexpr std::string_view kParts[] = {"distributed/", "utils/", "nn/",    "autograd/", "optim/",
                                                "cuda/",        "_",      "jit/",   "fx/",       "multiprocessing/",
                                                "accelerator/", "amp/",   "export", "ao/",       "serialization.py",
                                                "functional.py"};
  const size_t at = file.starts_with("torch/") ? 0 : file.find("/torch/");
  if (at == std::string_view::npos) return false;
  const std::string_view rest = file.substr(file.find('/', at + 1) + 1);
  return std::any_of(std::begin(kParts), std::end(kParts),
                     [&](std::string_view part) { return rest.starts_with(part); });
}

// Python's own modules, torch and installed commands (bin/torchrun): code that is never the reason by itself.
bool IsPlatform(std::string_view file) {
  const std::string_view name = file.substr(file.rfind('/') + 1);
  if (name.find('.') == std::string_view::npos && file.ends_with(fmt::format("/bin/{}", name))) return true;
  const bool installed =
      file.find("/site-packages/") != std::string_view::npos || file.find("/dist-packages/") != std::string_view::npos;
  return file.starts_with("<") || (!installed && file.find("lib/python3") != std::string_view::npos) || IsTorch(file);
}

// Code somebody installed, not the code of this training.
bool IsLibrary(std::string_view file) {
  return IsPlatform(file) || file.find("/site-packages/") != std::string_view::npos ||
         file.find("/dist-packages/") != std::string_view::npos;
}

// The innermost frame of the user's own code; of a program that was installed itself, that of the package.
const StackFrame* Own(const std::vector<StackFrame>& frames) {
  const auto own =
      std::find_if(frames.begin(), frames.end(), [](const StackFrame& frame) { return !IsLibrary(frame.file); });
  return own != frames.end() ? &*own : nullptr;
}

// Of native frames the innermost whose source is not the C library's.
const StackFrame* OwnNative(const std::vector<StackFrame>& frames) {
  const auto own = std::find_if(frames.begin(), frames.end(), [](const StackFrame& frame) {
    static constexpr std::string_view kNot[] = {"./", "../", "nptl", "sysdeps", "/usr/include/", "/usr/lib/"};
    return frame.line > 0 && !frame.function.starts_with("__") &&
           std::none_of(std::begin(kNot), std::end(kNot),
                        [&](std::string_view part) { return frame.file.starts_with(part); });
  });
  return own != frames.end() ? &*own : nullptr;
}

const StackFrame* OwnOrInstalled(const std::vector<StackFrame>& frames) {
  if (const StackFrame* own = Own(frames)) return own;
  const auto installed =
      std::find_if(frames.begin(), frames.end(), [](const StackFrame& frame) { return !IsPlatform(frame.file); });
  if (installed != frames.end()) return &*installed;
  return frames.empty() ? nullptr : &frames.front();
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string At(const StackFrame& frame) {
  std::string text = Printable(BaseName(frame.file), 80);
  if (frame.line > 0) text += fmt::format(":{}", frame.line);
  if (!frame.function.empty() && frame.function != "<module>") {
    text += fmt::format(" ({})", Printable(frame.function, 60));
  }
  return text;
}

std::string Words(const RankPosition& place) {
  switch (place.where) {
    case Where::kGone:
      return "has ended";
    case Where::kStopped:
      return "is stopped (SIGSTOP or a debugger)";
    case Where::kDisk:
      return "hangs in the kernel (state D: a disk, a network file system or a device)";
    case Where::kCollective:
      return fmt::format("waits in {}", place.operation);
    case Where::kRendezvous:
      return fmt::format("waits for the others in {}", place.operation);
    case Where::kDataLoader:
      return "is in the data loader";
    case Where::kDevice:
      return "waits for its GPU";
    case Where::kFile:
      return "reads or writes a file";
    case Where::kLock:
      return fmt::format("waits for {} {}", place.operation.starts_with("event") ? "an" : "a",
                         place.operation.empty() ? "lock" : place.operation);
    case Where::kNetwork:
      return "waits for the network";
    case Where::kSleep:
      return "sleeps";
    case Where::kTeardown:
      return "is at its exit, in the teardown of its process group";
    case Where::kCode:
      return "is in its own code";
    case Where::kUnknown:
      break;
  }
  return "is at an unknown place";
}

// The program is over: an interpreter that is read well has no frame left, and threads of a process group are still
// there. Where native frames are known, they say so themselves.
bool InTeardown(const ProcessStacks& process, const ThreadStack& main) {
  if (!main.python.empty()) return false;
  const bool leaves = std::any_of(main.native.begin(), main.native.end(), [](const StackFrame& frame) {
    return frame.function.starts_with("Py_FinalizeEx") || frame.function.starts_with("__run_exit_handlers") ||
           frame.function.find("::~ProcessGroup") != std::string::npos;
  });
  const bool no_frame = std::any_of(process.notes.begin(), process.notes.end(), [](const std::string& note) {
    return note.find("no Python frames found in") != std::string::npos;
  });
  const bool group = std::any_of(process.threads.begin(), process.threads.end(), [](const ThreadStack& thread) {
    return thread.name.starts_with("pt_gloo") || thread.name.starts_with("gloo_tcp") ||
           thread.name.starts_with("pt_nccl");
  });
  return group && (leaves || no_frame);
}

// What the kernel says of a thread that sleeps in a call of its own; nothing where a call into C may be anything.
struct Asleep {
  Where where;
  const char* operation;
};
std::optional<Asleep> FromKernel(const ThreadStack& thread) {
  if (thread.state != 'S') return std::nullopt;
  const std::string& call = thread.syscall;
  const auto is = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return call == name; });
  };
  const auto in = [&](std::initializer_list<const char*> parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const char* part) { return thread.wchan.find(part) != std::string::npos; });
  };
  if (is({"clock_nanosleep", "nanosleep"}) || in({"nanosleep"})) return Asleep{Where::kSleep, ""};
  if (is({"wait4", "waitid"})) return Asleep{Where::kLock, "child process"};
  if (is({"flock", "fcntl"})) return Asleep{Where::kLock, "file lock"};
  if (is({"pause", "sigsuspend", "sigtimedwait"})) return Asleep{Where::kLock, "signal"};
  if (is({"read", "write", "pread64", "pwrite64", "readv", "writev", "fsync", "fdatasync", "openat", "newfstatat",
          "msync"})) {
    if (in({"pipe", "fifo", "wait_for_partner"})) return Asleep{Where::kLock, "pipe"};
    if (in({"tty"})) return Asleep{Where::kLock, "terminal"};
    return Asleep{in({"sk_", "tcp", "unix", "skb"}) ? Where::kNetwork : Where::kFile, ""};
  }
  if (is({"recvfrom", "recvmsg", "sendto", "sendmsg", "connect", "accept", "accept4"})) {
    return Asleep{Where::kNetwork, ""};
  }
  return std::nullopt;
}

bool WaitsForEvents(const ThreadStack& thread) {
  static const std::set<std::string> kCalls = {"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait"};
  return thread.state == 'S' && kCalls.count(thread.syscall) != 0;
}

// What a rank that waits for its own children or threads waits for: the one of them that runs code of the user, or the
// program that was started. `under` is the process of `thread`, the children of all are listed with `process`. Empty:
// not to be told.
std::string WaitedFor(const ProcessStacks& process, const ProcessStacks& under, const ThreadStack& thread) {
  // A forked child begins with the frames of its parent: those are not where it is.
  const auto inherited = [&](const StackFrame& frame) {
    return std::any_of(thread.python.begin(), thread.python.end(), [&](const StackFrame& mine) {
      return mine.file == frame.file && mine.function == frame.function;
    });
  };
  std::string waits;  // of a child that itself waits for the others: only if there is no better one
  const ProcessStacks* program = nullptr;
  for (const ProcessStacks& child : process.children) {
    const ThreadStack* main = child.main();
    if (main == nullptr || main == &thread) continue;
    if (main->python.empty()) {
      if (program == nullptr) program = &child;
      continue;
    }
    const StackFrame* own = Own(main->python);
    if (own == nullptr || inherited(*own)) continue;
    const RankPosition place = Locate(child);
    const std::string words = fmt::format("its child pid {} {} at {}", child.pid, place.words, place.at);
    if (!WaitsForOthers(place.where)) return words;
    if (waits.empty()) waits = words;
  }
  if (!waits.empty()) return waits;
  if (program != nullptr) return fmt::format("its child pid {} is {}", program->pid, Printable(program->command, 60));
  const StackFrame* other = nullptr;
  for (const ThreadStack& one : under.threads) {
    const StackFrame* own = &one != &thread ? Own(one.python) : nullptr;
    if (own == nullptr) continue;
    if (other != nullptr) return "";  // which of several it is nobody knows
    other = own;
  }
  return other != nullptr ? fmt::format("its other thread is at {}", At(*other)) : "";
}

}  // namespace

bool WaitsForOthers(Where where) {
  return where == Where::kCollective || where == Where::kRendezvous || where == Where::kDevice;
}

const char* Name(Where where) {
  constexpr const char* kNames[] = {
      "unknown", "gone", "stopped", "uninterruptible", "collective", "rendezvous", "data_loader",
      "device",  "file", "lock",    "network",         "sleep",      "teardown",   "code"};
  return kNames[static_cast<int>(where)];
}

RankPosition Locate(const ProcessStacks& process) {
  RankPosition place;
  place.rank = process.rank;
  place.node = process.node;
  place.host = process.host;
  place.pid = process.pid;
  const auto done = [&](Where where) {
    place.where = where;
    place.words = Words(place);
    return place;
  };
  if (process.gone) return done(Where::kGone);
  const ThreadStack* thread = process.main();
  // A wrapper (a shell, numactl, a profiler) stands where its child stands.
  const ProcessStacks* under = &process;
  while (under->threads.empty() || (under->threads.front().python.empty() && under->threads.front().native.empty())) {
    const bool waits = !under->threads.empty() &&
                       (under->threads.front().syscall == "wait4" || under->threads.front().syscall == "waitid");
    if (!waits || under->children.size() != 1) break;
    under = &under->children.front();
    thread = under->main();
  }
  // Children of a wrapper are listed flat: the first one is the program.
  if (thread != nullptr && thread->python.empty() && thread->native.empty() && under == &process &&
      (thread->syscall == "wait4" || thread->syscall == "waitid") && !process.children.empty()) {
    under = &process.children.front();
    thread = under->main();
  }
  if (thread == nullptr) return done(Where::kUnknown);
  if (const StackFrame* own = OwnOrInstalled(thread->python)) place.at = At(*own);
  if (thread->python.empty()) {
    if (const StackFrame* own = OwnNative(thread->native)) place.at = At(*own);
  }
  if (thread->state == 'T' || thread->state == 't') return done(Where::kStopped);
  if (InTeardown(*under, *thread)) {
    place.at.clear();
    return done(Where::kTeardown);
  }
  // A collective may run in another thread: of autograd while the main thread waits in backward(), or of the program
  // itself while the main thread waits for it.
  const ThreadStack* there = nullptr;
  const auto collective_elsewhere = [&]() -> const Row* {
    for (const ThreadStack& other : under->threads) {
      if (&other == thread) continue;
      for (const StackFrame& frame : other.python) {
        const Row* row = IsLibrary(frame.file) ? Find(kPython, frame, true) : nullptr;
        if (row != nullptr && row->where == Where::kCollective) {
          there = &other;
          return row;
        }
        if (row != nullptr || !IsLibrary(frame.file)) break;
      }
    }
    return nullptr;
  };
  const Row* found = nullptr;
  const StackFrame* at = nullptr;
  // A lock, a file or a socket says less than the data loader or the collective it is used by. Below the user's own
  // code only a data loader counts: what called that code (a process, an event loop) is not where it stands.
  bool own_code = false, weak_native = false;
  for (const StackFrame& frame : thread->python) {
    if (!IsLibrary(frame.file)) {
      own_code = true;
      continue;
    }
    const Row* row = Find(kPython, frame, true);
    if (row == nullptr || (own_code && row->where != Where::kDataLoader)) continue;
    const bool weak = !WaitsForOthers(row->where) && row->where != Where::kDataLoader;
    // threading's wait() says nothing yet: the queue or the future around it does.
    const bool names_it = found != nullptr && found->where == row->where && *found->operation == '\0';
    if (found == nullptr || !weak || names_it) {
      found = row;
      at = &frame;
    }
    if (!weak) break;
  }
  for (const StackFrame& frame : thread->native) {
    if (found != nullptr && !weak_native) break;
    const Row* row = Find(kNative, frame, false);
    if (row == nullptr) continue;
    const bool weak = !WaitsForOthers(row->where) && row->where != Where::kDataLoader;
    if (found != nullptr && weak) continue;
    found = row;
    at = &frame;
    weak_native = weak;
  }
  if (thread->state == 'D' && (found == nullptr || !WaitsForOthers(found->where))) return done(Where::kDisk);
  const std::optional<Asleep> asleep = FromKernel(*thread);
  // A file or a socket may still be the store's or a library's of collectives.
  const bool certain = asleep && asleep->where != Where::kFile && asleep->where != Where::kNetwork;
  if (found == nullptr && !certain && !thread->python.empty()) {
    const bool backward = std::any_of(thread->python.begin(), thread->python.end(), [](const StackFrame& frame) {
      return frame.function.ends_with("backward") && frame.file.find("torch/autograd") != std::string::npos;
    });
    if (backward) found = collective_elsewhere();
    if (found == nullptr) found = FromSource(*thread, backward);
  }
  const auto waits_for_its_own = [&] {
    const std::string whom = place.operation == "file lock" ? "" : WaitedFor(process, *under, *thread);
    if (!whom.empty()) place.at += (place.at.empty() ? "" : ", ") + whom;
    return done(Where::kLock);
  };
  if (found != nullptr) {
    place.operation = found->operation;
    if (place.operation.empty() && at != nullptr && WaitsForOthers(found->where))
      place.operation = Printable(at->function, 60);
    if (found->where == Where::kLock && (place.operation == "thread" || place.operation == "future")) {
      if (const Row* row = collective_elsewhere()) {
        place.operation = row->operation;
        if (const StackFrame* own = Own(there->python)) place.at = At(*own) + ", in another thread";
        return done(Where::kCollective);
      }
    }
    if (found->where == Where::kLock) return waits_for_its_own();
    // A data loader whose worker does the work: say where that one is.
    if (found->where == Where::kDataLoader) {
      for (const ProcessStacks& child : process.children) {
        const ThreadStack* main = child.main();
        if (main == nullptr || main == thread) continue;
        const StackFrame* own = Own(main->python);
        const bool loads = std::any_of(main->python.begin(), main->python.end(), [](const StackFrame& frame) {
          return frame.file.find("torch/utils/data/_utils/fetch") != std::string::npos;
        });
        if (own == nullptr || !loads) continue;
        const bool stopped = main->state == 'T' || main->state == 't';
        place.at = fmt::format("{}, in its worker pid {}{}", At(*own), child.pid, stopped ? " (stopped)" : "");
        break;
      }
    }
    return done(found->where);
  }
  if (asleep) {
    place.operation = asleep->operation;
    if (asleep->where == Where::kLock && place.operation == "child process") return waits_for_its_own();
    return done(asleep->where);
  }
  // Up to Python 3.10 time.sleep() is a select() of nothing.
  if (WaitsForEvents(*thread) && !thread->python.empty() &&
      thread->python.front().source.find("sleep(") != std::string::npos) {
    return done(Where::kSleep);
  }
  if (WaitsForEvents(*thread) && !thread->python.empty()) {
    place.operation = "event";
    return waits_for_its_own();
  }
  if (!place.at.empty()) {
    done(Where::kCode);
    if (thread->state == 'S') place.words = "waits in native code";
    return place;
  }
  if (!thread->native.empty() && place.at.empty()) place.at = At(thread->native.front());
  if (thread->state == 'R') return done(Where::kCode);
  place.words = Words(place);
  if (!thread->syscall.empty())
    place.words =
        fmt::format("sleeps in {}{}", thread->syscall, thread->wchan.empty() ? "" : " (" + thread->wchan + ")");
  return place;
}

}  // namespace lockstep::hang
