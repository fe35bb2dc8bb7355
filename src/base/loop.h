// A single-threaded event loop over epoll: file descriptors, timers and posted calls. Owned by the thread that calls
// Run(); every method but Post() belongs to that thread. Callbacks may add and remove anything, themselves included.
//
//   Loop loop;
//   loop.Watch(fd, EPOLLIN, [&](uint32_t) { ... });
//   loop.After(Millis(500), [&] { loop.Quit(); });
//   loop.Run();
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"

namespace lockstep {

class Loop {
 public:
  using FdCallback = std::function<void(uint32_t events)>;
  using TimerId = uint64_t;

  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void Watch(int fd, uint32_t events, FdCallback callback);
  void Modify(int fd, uint32_t events);
  // Forgets fd; call before closing it. Unknown fds are ignored.
  void Unwatch(int fd);

  TimerId After(Millis delay, std::function<void()> callback);
  void Cancel(TimerId id);

  // Runs `callback` from the loop, after the callbacks of this turn. Any thread.
  void Post(std::function<void()> callback);

  void Run();  // until Quit()
  void Quit() { quit_ = true; }
  // One turn, waiting at most `wait`. False once Quit() was called.
  bool RunOnce(Millis wait);

 private:
  struct Entry {
    FdCallback callback;
    uint64_t generation;
  };
  Millis NextTimeout(Millis wait) const;

  UniqueFd epoll_;
  UniqueFd wake_;
  std::unordered_map<int, std::shared_ptr<Entry>> entries_;
  uint64_t generation_ = 0;
  std::map<std::pair<TimePoint, TimerId>, std::function<void()>> timers_;
  std::unordered_map<TimerId, TimePoint> timer_times_;
  TimerId next_timer_ = 1;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  bool quit_ = false;
};

}  // namespace lockstep
