// Starts a detached thread with every signal blocked, so that signals reach the supervisor's thread, and a console
// whose reader is gone shows as EPIPE instead of killing the launcher. Such a thread shares its state with its owner
// and outlives it when a device hangs; the owner waits for the state to say "exited".
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace lockstep {

template <typename Body>
std::thread StartQuietThread(Body&& body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<Body>(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace lockstep
