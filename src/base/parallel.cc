#include "base/parallel.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "base/files.h"
#include "base/quiet_thread.h"

namespace lockstep {
namespace {

thread_local bool in_loop = false;  // a loop inside a loop is not shared out

// The CPUs that this thread may run on, by NUMA node.
std::vector<std::vector<int>> CpusOfNodes() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const Result<std::vector<std::string>> entries = ListDir("/sys/devices/system/node");
  if (!entries.ok() || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};  // more CPUs than a mask holds
  std::vector<std::vector<int>> nodes;
  for (const std::string& entry : *entries) {
    if (!entry.starts_with("node")) continue;
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed) &&
          access(fmt::format("/sys/devices/system/node/{}/cpu{}", entry, cpu).c_str(), F_OK) == 0) {
        cpus.push_back(cpu);
      }
    }
    if (!cpus.empty()) nodes.push_back(std::move(cpus));
  }
  return nodes;
}

void StayOn(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus) CPU_SET(cpu, &mask);
  (void)sched_setaffinity(0, sizeof mask, &mask);  // where it is refused, threads run anywhere
}

// Threads that wait for the next loop of the thread that owns them. On several nodes it takes no part itself: it has
// other things to do elsewhere.
class Team {
 public:
  explicit Team(size_t size) : size_(size) {
    const std::vector<std::vector<int>> cpus = CpusOfThreads(CpusOfNodes(), size);
    first_ = cpus.front().empty() ? 1 : 0;
    for (size_t part = first_; part < size; ++part) {
      threads_.push_back(StartQuietThread([this, part, own = cpus[part]] {
        StayOn(own);
        Work(part);
      }));
    }
  }
  ~Team() {
    work_ = nullptr;
    loops_.fetch_add(1);
    loops_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  size_t size() const { return size_; }
  // `parts` of at most size().
  void Run(size_t parts, const std::function<void(size_t)>& work) {
    work_ = &work;
    parts_ = parts;
    busy_.store(static_cast<int>(threads_.size()));
    loops_.fetch_add(1);
    loops_.notify_all();
    if (first_ == 1) work(0);
    for (int busy = busy_.load(); busy != 0; busy = busy_.load()) busy_.wait(busy);
  }

 private:
  void Work(size_t part) {
    in_loop = true;
    for (int seen = 0;;) {
      loops_.wait(seen);
      seen = loops_.load();
      if (work_ == nullptr) return;
      if (part < parts_) (*work_)(part);
      if (busy_.fetch_sub(1) == 1) busy_.notify_one();
    }
  }

  const size_t size_;
  size_t first_ = 1;  // part of the first thread
  const std::function<void(size_t)>* work_ = nullptr;
  size_t parts_ = 0;
  std::atomic<int> loops_ = 0, busy_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace

std::vector<std::vector<int>> CpusOfThreads(const std::vector<std::vector<int>>& cpus_of_nodes, size_t threads) {
  std::vector<std::vector<int>> cpus(threads);
  size_t all = 0;
  for (const std::vector<int>& node : cpus_of_nodes) all += node.size();
  if (cpus_of_nodes.size() < 2) return cpus;
  for (size_t i = 0; i < threads; ++i) {
    size_t cpu = i * all / threads, node = 0;  // neighbouring threads on one node
    while (cpu >= cpus_of_nodes[node].size()) cpu -= cpus_of_nodes[node++].size();
    cpus[i] = cpus_of_nodes[node];
  }
  return cpus;
}

void ParallelFor(int threads, int64_t begin, int64_t end, int64_t grain,
                 const std::function<void(int64_t, int64_t)>& work) {
  const int64_t count = end - begin;
  if (count <= 0) return;
  const int64_t parts = std::min<int64_t>(threads, (count + grain - 1) / grain);
  if (parts <= 1 || in_loop) return work(begin, end);
  const int64_t each = std::max(grain, (count + parts - 1) / parts);
  thread_local std::unique_ptr<Team> team;
  if (!team || team->size() != static_cast<size_t>(threads)) team = std::make_unique<Team>(threads);
  in_loop = true;
  team->Run(static_cast<size_t>((count + each - 1) / each), [&](size_t part) {
    const int64_t first = begin + static_cast<int64_t>(part) * each;
    work(first, std::min(end, first + each));
  });
  in_loop = false;
}

}  // namespace lockstep
