#include "base/loop.h"

#include <sys/eventfd.h>

#include <cerrno>

namespace lockstep {

Loop::Loop() : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  Watch(wake_.get(), EPOLLIN, [this](uint32_t) {
    uint64_t count = 0;
    (void)!read(wake_.get(), &count, sizeof count);
  });
}

Loop::~Loop() = default;

void Loop::Watch(int fd, uint32_t events, FdCallback callback) {
  auto entry = std::make_shared<Entry>(Entry{std::move(callback), ++generation_});
  const bool known = entries_.count(fd) != 0;
  entries_[fd] = entry;
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
}

void Loop::Modify(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Loop::Unwatch(int fd) {
  if (entries_.erase(fd) != 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

Loop::TimerId Loop::After(Millis delay, std::function<void()> callback) {
  const TimerId id = next_timer_++;
  const TimePoint at = Now() + delay;
  timers_[{at, id}] = std::move(callback);
  timer_times_[id] = at;
  return id;
}

void Loop::Cancel(TimerId id) {
  auto it = timer_times_.find(id);
  if (it == timer_times_.end()) return;
  timers_.erase({it->second, id});
  timer_times_.erase(it);
}

void Loop::Post(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(callback));
  }
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

Millis Loop::NextTimeout(Millis wait) const {
  if (timers_.empty()) return wait;
  const auto left = std::chrono::ceil<Millis>(timers_.begin()->first.first - Now());
  return std::max(Millis(0), std::min(wait, left));
}

bool Loop::RunOnce(Millis wait) {
  if (quit_) return false;
  epoll_event events[64];
  const int count = epoll_wait(epoll_.get(), events, 64, static_cast<int>(NextTimeout(wait).count()));
  const uint64_t seen = generation_;
  for (int i = 0; i < count && !quit_; ++i) {
    auto it = entries_.find(events[i].data.fd);
    // A descriptor closed and reused by an earlier callback of this turn is somebody else's: its event is stale.
    if (it == entries_.end() || it->second->generation > seen) continue;
    auto entry = it->second;
    entry->callback(events[i].events);
  }
  const TimePoint now = Now();
  while (!quit_ && !timers_.empty() && timers_.begin()->first.first <= now) {
    auto callback = std::move(timers_.begin()->second);
    timer_times_.erase(timers_.begin()->first.second);
    timers_.erase(timers_.begin());
    callback();
  }
  std::vector<std::function<void()>> posted;
  {
    std::lock_guard lock(mutex_);
    posted.swap(posted_);
  }
  for (auto& callback : posted) {
    if (quit_) break;
    callback();
  }
  return !quit_;
}

void Loop::Run() {
  while (RunOnce(Millis(60000))) {
  }
}

}  // namespace lockstep
