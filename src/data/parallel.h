// Work on many items by a few threads at once: listing shards, asking for sizes of files. It waits for storage rather
// than computes, so there are more threads than cores. Returns when all are done; any thread may call it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/quiet_thread.h"

namespace lockstep::data {

constexpr size_t kListingThreads = 8;

// body(i) for every i below count, each once, in no order. The body must not throw.
template <typename Body>
void ForEachAtOnce(size_t count, const Body& body, size_t threads = kListingThreads) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < std::min(threads, count); ++i) helpers.push_back(StartQuietThread(work));
  work();
  for (std::thread& helper : helpers) helper.join();
}

// Called with how many are done and how many there are, by one thread at a time.
using WorkProgress = std::function<void(uint64_t done, uint64_t all)>;

// The same, and after every item `progress` (may be empty).
template <typename Body>
void ForEachShown(size_t count, const Body& body, const WorkProgress& progress) {
  if (!progress) return ForEachAtOnce(count, body);
  std::mutex mutex;
  uint64_t done = 0;
  ForEachAtOnce(count, [&](size_t i) {
    body(i);
    const std::lock_guard lock(mutex);
    progress(++done, count);
  });
}

}  // namespace lockstep::data
