#include "track/painter.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/log.h"

namespace lockstep::track {
namespace {

constexpr int kNice = 10;

struct Job {
  std::string name;
  std::function<Status()> draw;
};

Status Draw(const Job& job) {
  try {
    return job.draw();
  } catch (const std::exception& error) {  // out of memory
    return Status(Code::kEnvironment, error.what());
  }
}

}  // namespace

class Painter::Impl {
 public:
  Impl() {
    // The program's signals belong to its own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { Run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~Impl() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void Add(Job job) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (jobs_.size() < kMostWaiting) {
        jobs_.push_back(std::move(job));
        changed_.notify_all();
        return;
      }
    }
    Miss();
    LogWarn("picture {} is left out: {} others wait to be drawn; validate less often for a picture each time", job.name,
            kMostWaiting);
  }

  void Finish() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return jobs_.empty() && !drawing_; });
  }

  void Miss() { missing_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t missing() const { return missing_.load(std::memory_order_relaxed); }

 private:
  void Run() {
    // On Linux a thread has a priority of its own. Training comes first.
    (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNice);
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      drawing_ = true;
      lock.unlock();
      if (const Status drawn = Draw(job); !drawn.ok()) {
        Miss();
        LogWarn("picture {}: {}; training goes on", job.name, drawn.message());
      }
      lock.lock();
      drawing_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;  // everything down to the blank line
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool drawing_ = false, stop_ = false;

  std::atomic<uint64_t> missing_{0};
  std::thread thread_;
};

Painter::Painter() : impl_(std::make_unique<Impl>()) {}
Painter::~Painter() = default;
void Painter::Add(std::string name, std::function<Status()> draw) { impl_->Add({std::move(name), std::move(draw)}); }
void Painter::Finish() { impl_->Finish(); }
uint64_t Painter::missing() const { return impl_->missing(); }
void Painter::Miss() { impl_->Miss(); }

}  // namespace lockstep::track
