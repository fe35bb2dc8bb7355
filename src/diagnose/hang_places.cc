// Where one rank stands: the tables of frame names and how they are read.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/text.h"
#include "diagnose/hang.h"

namespace lockstep::diagnose {
namespace {

// A frame is recognised by its function and, where given, a part of its file's path. `function` ending in '*' is a
// beginning, beginning with '*' an ending, both: a part. Rows are tried in this order for each frame, innermost frame
// first.
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
    {"get", "queue.py", Where::kLock, "queue"},
    {"put", "queue.py", Where::kLock, "queue"},
    {"*", "multiprocessing/", Where::kLock, "process"},
    {"*wait*", "subprocess.py", Where::kLock, "child process"},
    {"communicate", "subprocess.py", Where::kLock, "child process"},
    {"_communicate", "subprocess.py", Where::kLock, "child process"},
    {"result", "concurrent/futures", Where::kLock, "future"},
    {"*", "/ssl.py", Where::kNetwork, ""},
    {"*", "/socket.py", Where::kNetwork, ""},
    {"*", "http/client.py", Where::kNetwork, ""},
    {"*", "urllib3", Where::kNetwork, ""},
    {"*", "requests/", Where::kNetwork, ""},
    {"*", "httpx", Where::kNetwork, ""},
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
  if (thread.state == 0 || thread.state == 'R' || thread.syscall.find("nanosleep") != std::string::npos) return nullptr;
  if (backward) return &kBackward;
  const std::string& text = thread.python.front().source;
  const auto has = [&](std::string_view word) { return text.find(word) != std::string::npos; };
  if (has("store.") || has("Store(")) return &kStore;
  if (has(".acquire(") || text.starts_with("with ")) return &kLocked;
  if (has(".wait(")) return &kWait;
  if (has(".item(") || has(".cpu(") || has(".tolist(") || has("synchronize(")) return &kDeviceCall;
  return nullptr;
}

// Code somebody installed, not the code of this training.
bool IsLibrary(const std::string& file) {
  static constexpr std::string_view kLibrary[] = {
      "/site-packages/", "/dist-packages/", "/lib/python3",        "<frozen",     "<string>",
      "torch/",          "/torch/",         "<__array_function__", "lib/python3."};
  return std::any_of(std::begin(kLibrary), std::end(kLibrary), [&](std::string_view part) {
    return part == "torch/" ? file.starts_with(part) : file.find(part) != std::string::npos;
  });
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

std::string Words(const Place& place) {
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
      return fmt::format("waits for {}", place.operation.empty() ? "a lock" : "a " + place.operation);
    case Where::kNetwork:
      return "waits for the network";
    case Where::kSleep:
      return "sleeps";
    case Where::kCode:
      return "is in its own code";
    case Where::kUnknown:
      break;
  }
  return "is at an unknown place";
}

}  // namespace

bool WaitsForOthers(Where where) {
  return where == Where::kCollective || where == Where::kRendezvous || where == Where::kDevice;
}

const char* Name(Where where) {
  constexpr const char* kNames[] = {
      "unknown", "gone", "stopped", "uninterruptible", "collective", "rendezvous", "data_loader",
      "device",  "file", "lock",    "network",         "sleep",      "code"};
  return kNames[static_cast<int>(where)];
}

Place Locate(const ProcessStacks& process) {
  Place place;
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
  for (const StackFrame& frame : thread->python) {
    if (IsLibrary(frame.file)) continue;
    place.at = At(frame);
    break;
  }
  if (thread->state == 'T' || thread->state == 't') return done(Where::kStopped);
  // In an autograd thread the collective runs while the main thread waits in backward().
  const auto collective_elsewhere = [&]() -> const Row* {
    for (const ThreadStack& other : under->threads) {
      if (&other == thread) continue;
      for (const StackFrame& frame : other.python) {
        const Row* row = Find(kPython, frame, true);
        if (row != nullptr && row->where == Where::kCollective) return row;
        if (row != nullptr) break;
      }
    }
    return nullptr;
  };
  const Row* found = nullptr;
  const StackFrame* at = nullptr;
  // A lock, a file or a socket says less than the data loader or the collective it is used by.
  for (const StackFrame& frame : thread->python) {
    const Row* row = Find(kPython, frame, true);
    if (row == nullptr) continue;
    const bool weak = !WaitsForOthers(row->where) && row->where != Where::kDataLoader;
    if (found == nullptr || !weak) {
      found = row;
      at = &frame;
    }
    if (!weak) break;
  }
  if (found == nullptr) {
    for (const StackFrame& frame : thread->native) {
      found = Find(kNative, frame, false);
      at = &frame;
      if (found != nullptr) break;
    }
  }
  if (thread->state == 'D' && (found == nullptr || !WaitsForOthers(found->where))) return done(Where::kDisk);
  if (found == nullptr && !thread->python.empty()) {
    const bool backward = std::any_of(thread->python.begin(), thread->python.end(), [](const StackFrame& frame) {
      return frame.function.ends_with("backward") && frame.file.find("torch/autograd") != std::string::npos;
    });
    if (backward) found = collective_elsewhere();
    if (found == nullptr) found = FromSource(*thread, backward);
  }
  if (found != nullptr) {
    place.operation = found->operation;
    if (place.operation.empty() && at != nullptr && WaitsForOthers(found->where))
      place.operation = Printable(at->function, 60);
    // A data loader whose worker does the work: say where that one is.
    if (found->where == Where::kDataLoader && !under->children.empty()) {
      for (const ProcessStacks& child : under->children) {
        const ThreadStack* main = child.main();
        if (main == nullptr) continue;
        const auto own = std::find_if(main->python.begin(), main->python.end(),
                                      [](const StackFrame& frame) { return !IsLibrary(frame.file); });
        const bool loads = std::any_of(main->python.begin(), main->python.end(), [](const StackFrame& frame) {
          return frame.file.find("torch/utils/data/_utils/fetch") != std::string::npos;
        });
        if (own == main->python.end() || !loads) continue;
        place.at = fmt::format("{}, in its worker pid {}", At(*own), child.pid);
        break;
      }
    }
    return done(found->where);
  }
  const std::string& wchan = thread->wchan;
  if (thread->syscall == "clock_nanosleep" || thread->syscall == "nanosleep" ||
      wchan.find("nanosleep") != std::string::npos) {
    return done(Where::kSleep);
  }
  static const std::set<std::string> kFileCalls = {"read",  "write",     "pread64", "pwrite64",   "readv", "writev",
                                                   "fsync", "fdatasync", "openat",  "newfstatat", "msync"};
  if (thread->state == 'S' && kFileCalls.count(thread->syscall) != 0) {
    const bool pipe = wchan.find("pipe") != std::string::npos;
    const bool socket = wchan.find("sk_") != std::string::npos || wchan.find("tcp") != std::string::npos ||
                        wchan.find("unix") != std::string::npos || wchan.find("skb") != std::string::npos;
    if (pipe) place.operation = "pipe";
    return done(pipe ? Where::kLock : socket ? Where::kNetwork : Where::kFile);
  }
  if (thread->state == 'S' && (thread->syscall == "recvfrom" || thread->syscall == "recvmsg" ||
                               thread->syscall == "connect" || thread->syscall == "accept")) {
    return done(Where::kNetwork);
  }
  if (!place.at.empty()) return done(Where::kCode);
  if (!thread->native.empty()) {
    place.at = At(thread->native.front());
    if (thread->state == 'R') return done(Where::kCode);
  }
  if (thread->state == 'R') return done(Where::kCode);
  if (thread->syscall == "flock" || thread->syscall == "wait4" || thread->syscall == "waitid") {
    place.operation = thread->syscall == "flock" ? "file lock" : "child process";
    return done(Where::kLock);
  }
  place.words = Words(place);
  if (!thread->syscall.empty())
    place.words = fmt::format("sleeps in {}{}", thread->syscall, wchan.empty() ? "" : " (" + wchan + ")");
  return place;
}

}  // namespace lockstep::diagnose
