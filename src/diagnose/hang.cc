#include "diagnose/hang.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "base/text.h"

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

bool Waits(Where where) {
  return where == Where::kCollective || where == Where::kRendezvous || where == Where::kDevice;
}

std::string Ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  std::string out = "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    // Runs of neighbours are written as a range.
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) out += ", ";
    out += last > i + 1 ? fmt::format("{}-{}", ranks[i], ranks[last]) : fmt::format("{}", ranks[i]);
    if (last > i + 1) i = last;
    if (out.size() > 60 && i + 1 < ranks.size()) return out + fmt::format(", ... ({} in all)", ranks.size());
  }
  return out;
}

std::string Plural(const std::string& words, size_t count) {
  if (count < 2) return words;
  static constexpr std::pair<std::string_view, std::string_view> kVerbs[] = {
      {"waits", "wait"},  {"is ", "are "}, {"has ", "have "}, {"hangs", "hang"}, {"reads or writes", "read or write"},
      {"sleeps", "sleep"}};
  for (const auto& [one, many] : kVerbs) {
    if (words.starts_with(one)) return std::string(many) + words.substr(one.size());
  }
  return words;
}

// Ranks at the same place, in order of their first rank.
struct Group {
  Where where;
  std::string operation, at;
  std::vector<int> ranks;
  const Place* first = nullptr;
};

std::vector<Group> GroupUp(const std::vector<Place>& places, bool by_line) {
  std::vector<Group> groups;
  for (const Place& place : places) {
    auto it = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return group.where == place.where && group.operation == place.operation && (!by_line || group.at == place.at);
    });
    if (it == groups.end()) {
      groups.push_back({place.where, place.operation, place.at, {}, &place});
      it = groups.end() - 1;
    }
    it->ranks.push_back(place.rank);
  }
  return groups;
}

std::string Describe(const Group& group, bool named) {
  const std::string who =
      named || group.ranks.size() == 1 ? Ranks(group.ranks) : fmt::format("{} ranks", group.ranks.size());
  return fmt::format("{} {}{}", who, Plural(group.first->words, group.ranks.size()),
                     group.first->at.empty() ? "" : fmt::format(" at {}", group.first->at));
}

std::string Advice(Where where) {
  switch (where) {
    case Where::kGone:
      return "a rank left while the others still need it: every rank must make the same number of steps (uneven data: "
             "drop the rest, or join)";
    case Where::kStopped:
      return "continue it: kill -CONT <pid>; or end the debugger";
    case Where::kDisk:
      return "look at the disk or network file system it uses (dmesg on that machine); such a process cannot be killed";
    case Where::kDataLoader:
      return "look at the data that rank reads at that line, and at its workers and their disk; a timeout= in the "
             "DataLoader turns this into an error";
    case Where::kFile:
      return "look at the disk or network file system behind that file";
    case Where::kLock:
      return "a deadlock inside that rank: another thread or process of it holds what it waits for";
    case Where::kNetwork:
      return "it waits for a remote service: give the request a timeout, or fetch before training";
    case Where::kSleep:
    case Where::kCode:
      return "that rank runs code the others do not: no rank may do work of its own between collectives";
    case Where::kDevice:
      return "the GPU of that rank does not finish: look for Xid errors (dmesg) and at nvidia-smi on that machine";
    default:
      return "";
  }
}

}  // namespace

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
    const bool weak = !Waits(row->where) && row->where != Where::kDataLoader;
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
  if (thread->state == 'D' && (found == nullptr || !Waits(found->where))) return done(Where::kDisk);
  if (found == nullptr && !thread->python.empty()) {
    const bool backward = std::any_of(thread->python.begin(), thread->python.end(), [](const StackFrame& frame) {
      return frame.function.ends_with("backward") && frame.file.find("torch/autograd") != std::string::npos;
    });
    if (backward) found = collective_elsewhere();
    if (found == nullptr) found = FromSource(*thread, backward);
  }
  if (found != nullptr) {
    place.operation = found->operation;
    if (place.operation.empty() && at != nullptr && Waits(found->where)) place.operation = Printable(at->function, 60);
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

HangVerdict JudgeHang(const std::vector<ProcessStacks>& ranks, const HangFacts& facts) {
  HangVerdict verdict;
  for (const ProcessStacks& process : ranks) verdict.places.push_back(Locate(process));
  for (const auto& [rank, how] : facts.ended) {
    auto it = std::find_if(verdict.places.begin(), verdict.places.end(),
                           [wanted = rank](const Place& place) { return place.rank == wanted; });
    Place place = it != verdict.places.end() ? *it : Place{};
    place.rank = rank;
    place.where = Where::kGone;
    place.words = fmt::format("has ended ({})", how);
    if (it != verdict.places.end()) {
      *it = place;
    } else {
      verdict.places.push_back(place);
    }
  }
  std::sort(verdict.places.begin(), verdict.places.end(),
            [](const Place& a, const Place& b) { return a.rank < b.rank || (a.rank == b.rank && a.pid < b.pid); });
  for (Place& place : verdict.places) {
    if (auto step = facts.steps.find(place.rank); step != facts.steps.end()) place.step = step->second;
  }
  if (verdict.places.empty()) {
    verdict.summary = "no rank could be examined";
    return verdict;
  }

  const std::vector<Group> groups = GroupUp(verdict.places, /*by_line=*/false);
  const auto say = [&](const std::vector<const Group*>& odd, double confidence) {
    std::vector<std::string> parts;
    for (const Group* group : odd) {
      parts.push_back(Describe(*group, true));
      verdict.odd.insert(verdict.odd.end(), group->ranks.begin(), group->ranks.end());
    }
    for (const Group& group : groups) {
      if (std::find(odd.begin(), odd.end(), &group) == odd.end())
        parts.push_back(Describe(group, group.ranks.size() < 3));
    }
    std::sort(verdict.odd.begin(), verdict.odd.end());
    verdict.summary = Join(parts, "; ");
    verdict.confidence = confidence;
    if (!odd.empty()) verdict.advice = Advice(odd.front()->where);
  };
  const auto pick = [&](auto&& wanted) {
    std::vector<const Group*> found;
    for (const Group& group : groups) {
      if (wanted(group)) found.push_back(&group);
    }
    return found;
  };
  const auto waiting = pick([](const Group& group) { return Waits(group.where); });
  size_t waiters = 0;
  for (const Group* group : waiting) waiters += group->ranks.size();
  const bool one_rank = verdict.places.size() == 1;

  // What stops a rank from outside explains everything, whatever the others do; several at once are all to blame.
  for (const Where cause : {Where::kStopped, Where::kDisk}) {
    if (auto odd = pick([&](const Group& group) { return group.where == cause; }); !odd.empty()) {
      say(odd, 0.95);
      return verdict;
    }
  }
  if (auto gone = pick([](const Group& group) { return group.where == Where::kGone; }); !gone.empty() && waiters > 0) {
    say(gone, 0.9);
    return verdict;
  }
  if (one_rank) {
    say({&groups.front()}, groups.front().where == Where::kUnknown ? 0.2 : 0.7);
    return verdict;
  }
  // Some wait, some do not: those that do not are what is waited for.
  if (waiters > 0) {
    auto busy = pick([](const Group& group) { return !Waits(group.where) && group.where != Where::kUnknown; });
    if (!busy.empty()) {
      say(busy, waiters >= verdict.places.size() - waiters ? 0.9 : 0.7);
      return verdict;
    }
    if (auto unknown = pick([](const Group& group) { return group.where == Where::kUnknown; }); !unknown.empty()) {
      say(unknown, 0.5);
      return verdict;
    }
  }
  // All wait. In different operations, or in the same one called from different lines: they no longer agree.
  const std::vector<Group> fine = GroupUp(verdict.places, /*by_line=*/true);
  if (waiters == verdict.places.size() && fine.size() > 1) {
    auto least = std::min_element(fine.begin(), fine.end(),
                                  [](const Group& a, const Group& b) { return a.ranks.size() < b.ranks.size(); });
    const bool tie = std::any_of(fine.begin(), fine.end(), [&](const Group& group) {
      return &group != &*least && group.ranks.size() == least->ranks.size();
    });
    std::vector<std::string> parts;
    if (!tie) {
      verdict.odd = least->ranks;
      parts.push_back(Describe(*least, true));
    }
    for (const Group& group : fine) {
      if (tie || &group != &*least) parts.push_back(Describe(group, tie || group.ranks.size() < 3));
    }
    verdict.summary = Join(parts, "; ");
    verdict.advice =
        "the ranks call different collectives: a branch that depends on the rank or on its data must not hold one";
    verdict.confidence = tie ? 0.6 : 0.8;
  } else if (waiters == verdict.places.size()) {
    verdict.summary = fmt::format("all {} ranks {}{}", verdict.places.size(), Plural(groups.front().first->words, 2),
                                  groups.front().at.empty() ? "" : " at " + groups.front().at);
    verdict.advice =
        "all are in the same call: either the network between them is at fault, or a rank is one collective behind "
        "(`lockstep doctor preflight` checks the network; TORCH_DISTRIBUTED_DEBUG=DETAIL names a mismatch)";
    verdict.confidence = 0.4;
  } else {
    // Nobody waits for anybody: the smallest group is unlike the others, if there is one.
    auto least = std::min_element(groups.begin(), groups.end(),
                                  [](const Group& a, const Group& b) { return a.ranks.size() < b.ranks.size(); });
    const bool alike = std::any_of(groups.begin(), groups.end(), [&](const Group& group) {
      return &group != &*least && group.ranks.size() == least->ranks.size();
    });
    if (groups.size() > 1 && !alike) {
      say({&*least}, 0.5);
    } else if (groups.size() == 1) {
      verdict.summary = fmt::format("all {} ranks {}{}", verdict.places.size(), Plural(groups.front().first->words, 2),
                                    groups.front().at.empty() ? "" : " at " + groups.front().at);
      verdict.advice = Advice(groups.front().where);
      verdict.confidence = 0.4;
    } else {
      say({}, 0.3);
    }
  }
  // A flight recorder knows which collective each rank started last: the lowest is behind.
  if (verdict.odd.empty() && !facts.collective.empty()) {
    std::map<std::string, std::vector<int>> by;
    for (const auto& [rank, last] : facts.collective) by[last].push_back(rank);
    if (by.size() > 1) {
      auto least = std::min_element(by.begin(), by.end(),
                                    [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
      verdict.odd = least->second;
      verdict.summary = fmt::format("{} started {} last, the others did not; {}", Ranks(least->second), least->first,
                                    verdict.summary);
      verdict.confidence = 0.8;
    }
  }
  // Failing all that: the rank whose step count is behind.
  if (verdict.odd.empty() && facts.steps.size() > 1 && facts.steps.size() == verdict.places.size()) {
    auto [low, high] = std::minmax_element(facts.steps.begin(), facts.steps.end(),
                                           [](const auto& a, const auto& b) { return a.second < b.second; });
    if (low->second < high->second) {
      for (const auto& [rank, step] : facts.steps) {
        if (step == low->second) verdict.odd.push_back(rank);
      }
      verdict.summary = fmt::format("{} {} at step {}, others at {}; {}", Ranks(verdict.odd),
                                    verdict.odd.size() == 1 ? "is" : "are", low->second, high->second, verdict.summary);
      verdict.confidence = std::max(verdict.confidence, 0.5);
      if (verdict.odd.size() * 2 > verdict.places.size()) verdict.odd.clear();
    }
  }
  return verdict;
}

nlohmann::json HangVerdict::ToJson() const {
  nlohmann::json rows = nlohmann::json::array();
  for (const Place& place : places) {
    rows.push_back({{"rank", place.rank},
                    {"node", place.node},
                    {"host", place.host},
                    {"pid", place.pid},
                    {"where", Name(place.where)},
                    {"operation", place.operation},
                    {"words", place.words},
                    {"at", place.at},
                    {"step", place.step ? nlohmann::json(*place.step) : nlohmann::json()}});
  }
  return {{"summary", summary}, {"ranks", odd}, {"advice", advice}, {"confidence", confidence}, {"places", rows}};
}

std::string HangVerdict::Text() const {
  std::string text = summary;
  for (const Group& group : GroupUp(places, /*by_line=*/true)) {
    const Place& first = *group.first;
    std::vector<std::string> pids;
    for (const Place& place : places) {
      if (std::find(group.ranks.begin(), group.ranks.end(), place.rank) == group.ranks.end()) continue;
      if (pids.size() < 8)
        pids.push_back(fmt::format("{}{}", place.pid, place.host.empty() ? "" : " on " + place.host));
    }
    const std::string who = first.rank < 0 ? "process" : Ranks(group.ranks);
    text += fmt::format("\n  {}: {}{}{} [pid {}]", who, first.words, first.at.empty() ? "" : " at " + first.at,
                        first.step ? fmt::format(", step {}", *first.step) : "", Join(pids, ", "));
  }
  if (!advice.empty()) text += "\n  do: " + advice;
  return text;
}

}  // namespace lockstep::diagnose
