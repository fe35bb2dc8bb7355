// Memory that several processes map: anonymous files (memfd) whose descriptors travel over unix sockets. Nothing has a
// name in the file system, so nothing is left behind when a process is killed. Also the futex, the kernel's sleep on a
// word of such memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace lockstep::comm {

// A zeroed anonymous file of `bytes` bytes.
Result<UniqueFd> MakeMemory(size_t bytes);
// Maps it, shared and writable; unmapped with the last pointer.
Result<std::shared_ptr<std::byte>> MapMemory(int fd, size_t bytes);

// Unix sockets in the abstract namespace: they vanish with the process. Names are random; only the same user may
// connect.
Result<UniqueFd> ListenUnix(const std::string& name);
Result<UniqueFd> ConnectUnix(const std::string& name, TimePoint deadline);
bool SameUser(int unix_fd);
std::string RandomName();

// Descriptors over a unix socket, in order.
Status SendFds(int socket, const std::vector<int>& fds, TimePoint deadline);
Result<std::vector<UniqueFd>> ReceiveFds(int socket, size_t count, TimePoint deadline);

// Sleeps while *word == seen, at most `limit`.
void FutexWait(const std::atomic<uint32_t>* word, uint32_t seen, std::chrono::nanoseconds limit);
void FutexWakeAll(const std::atomic<uint32_t>* word);

}  // namespace lockstep::comm
