#include "launch/telemetry.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "base/quiet_thread.h"

namespace lockstep::launch {
namespace {

constexpr int kNodesPerSecond = 128;   // whose samples node 0 takes in a second
constexpr size_t kMostWaiting = 4096;  // samples that wait for the disk
constexpr Millis kFirst{200};          // until the first sample: a job that is over at once needs none
constexpr Millis kLastWrites{500};

}  // namespace

Millis SampleInterval(Millis asked, int nnodes) {
  return asked * std::max(1, (nnodes + kNodesPerSecond - 1) / kNodesPerSecond);
}

struct Telemetry::Shared : std::enable_shared_from_this<Telemetry::Shared> {
  std::function<bool(const record::NodeSample&)> send;  // loop's thread; empty once the owner is gone
  uint64_t dropped = 0;                                 // loop's thread

  std::mutex mutex;
  std::condition_variable wake;
  Loop* loop;                 // null once the owner is gone: a sampler may still be in a call that blocks
  const logs::LogPump* pump;  // likewise
  uint64_t generation = 0;    // of the attempt; a thread of an older one ends
  std::vector<int> ended;
  std::vector<std::string> links;  // to be added
  bool posted = false;             // a sample waits for the loop

  Shared(Loop& l, const logs::LogPump& p, std::function<bool(const record::NodeSample&)> s)
      : send(std::move(s)), loop(&l), pump(&p) {}

  void Post(uint64_t mine, record::NodeSample sample) {
    std::lock_guard lock(mutex);
    if (generation != mine || loop == nullptr) return;
    posted = true;
    loop->Post([self = shared_from_this(), sample = std::move(sample)]() mutable {
      {
        std::lock_guard lock(self->mutex);
        self->posted = false;
      }
      sample.dropped = self->dropped;
      if (self->send && !self->send(sample)) ++self->dropped;
    });
  }

  record::ProgressState Progress(int rank) {
    std::lock_guard lock(mutex);
    return pump != nullptr ? pump->Progress(rank) : record::ProgressState{};
  }

  void Run(uint64_t mine, const NodeSamplerOptions& options, const std::vector<NodeSampler::Rank>& ranks,
           Millis every) {
    NodeSampler sampler(options);
    sampler.set_progress([this](int rank) { return Progress(rank); });
    for (const NodeSampler::Rank& rank : ranks) sampler.AddRank(rank);
    TimePoint next = Now() + std::min(every, kFirst);
    std::unique_lock lock(mutex);
    wake.wait_until(lock, next, [&] { return generation != mine; });
    while (generation == mine) {
      const std::vector<int> over = std::exchange(ended, {});
      const std::vector<std::string> more = std::exchange(links, {});
      const bool busy = posted;  // the loop has not taken the last one
      lock.unlock();
      for (const int rank : over) sampler.RemoveRank(rank);
      for (const std::string& link : more) sampler.AddLink(link);
      if (!busy) Post(mine, sampler.Sample());
      // A fixed pace; a sample that took long is not made up for.
      next = std::max(next + every, Now());
      lock.lock();
      wake.wait_until(lock, next, [&] { return generation != mine; });
    }
  }
};

Telemetry::Telemetry(Loop& loop, const logs::LogPump& pump, std::function<bool(const record::NodeSample&)> send)
    : shared_(std::make_shared<Shared>(loop, pump, std::move(send))) {}

Telemetry::~Telemetry() {
  shared_->send = nullptr;
  Stop();
  std::lock_guard lock(shared_->mutex);
  shared_->loop = nullptr;
  shared_->pump = nullptr;
}

void Telemetry::Start(NodeSamplerOptions options, std::vector<NodeSampler::Rank> ranks, Millis every) {
  uint64_t mine = 0;
  {
    std::lock_guard lock(shared_->mutex);
    mine = ++shared_->generation;
    shared_->ended.clear();
    shared_->links.clear();
    shared_->posted = false;
  }
  shared_->wake.notify_all();
  if (every <= Millis(0)) return;
  // Detached, as a look into a driver or a dead file system may never return.
  StartQuietThread([shared = shared_, mine, options = std::move(options), ranks = std::move(ranks), every] {
    shared->Run(mine, options, ranks, every);
  }).detach();
}

void Telemetry::Stop() {
  {
    std::lock_guard lock(shared_->mutex);
    ++shared_->generation;
  }
  shared_->wake.notify_all();
}

void Telemetry::Ended(int rank) {
  std::lock_guard lock(shared_->mutex);
  shared_->ended.push_back(rank);
}

void Telemetry::AddLink(const std::string& name) {
  std::lock_guard lock(shared_->mutex);
  shared_->links.push_back(name);
}

struct SampleStore::Shared {
  std::mutex mutex;
  std::condition_variable wake, idle;
  std::deque<record::NodeSample> waiting;
  bool writing = false, over = false;
  uint64_t lost = 0;
  record::SampleWriter writer;  // its thread's

  Shared(std::string run_path, int nnodes) : writer(std::move(run_path), record::SampleFileLimit(nnodes)) {}

  void Run() {
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return over || !waiting.empty(); });
      if (waiting.empty()) return;
      const record::NodeSample sample = std::move(waiting.front());
      waiting.pop_front();
      writing = true;
      lock.unlock();
      const uint64_t before = writer.lost();
      writer.Write(sample);
      const uint64_t refused = writer.lost() - before;
      lock.lock();
      lost += refused;
      writing = false;
      if (waiting.empty()) idle.notify_all();
    }
  }
};

SampleStore::SampleStore(std::string run_path, int nnodes)
    : shared_(std::make_shared<Shared>(std::move(run_path), nnodes)) {
  StartQuietThread([shared = shared_] { shared->Run(); }).detach();
}

SampleStore::~SampleStore() {
  std::unique_lock lock(shared_->mutex);
  shared_->idle.wait_for(lock, kLastWrites, [&] { return shared_->waiting.empty() && !shared_->writing; });
  shared_->over = true;
  shared_->wake.notify_all();
}

void SampleStore::Take(record::NodeSample sample) {
  {
    std::lock_guard lock(shared_->mutex);
    if (shared_->waiting.size() >= kMostWaiting) {
      shared_->waiting.pop_front();
      ++shared_->lost;
    }
    shared_->waiting.push_back(std::move(sample));
  }
  shared_->wake.notify_all();
}

uint64_t SampleStore::lost() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->lost;
}

}  // namespace lockstep::launch
