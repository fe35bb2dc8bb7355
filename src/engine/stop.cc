#include "engine/stop.h"

#include <csignal>

namespace lockstep::engine {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGUSR1, SIGINT};
volatile std::sig_atomic_t g_signal = 0;
bool g_listening = false;

void Remember(int signal) {
  if (g_signal == 0) g_signal = signal;
}

}  // namespace

void StopRequests::Listen() {
  struct sigaction action = {};
  action.sa_handler = Remember;
  action.sa_flags = SA_RESTART;
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
  g_listening = true;
}

StopRequests::StopRequests(std::optional<std::chrono::milliseconds> max_time, std::optional<TimePoint> deadline)
    : deadline_(deadline) {
  if (max_time && !deadline_) deadline_ = Now() + *max_time;
  if (g_listening) return;
  g_signal = 0;
  Listen();
  g_listening = false;
}

StopRequests::~StopRequests() {
  if (g_listening) return;
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
}

int StopRequests::signal() const { return g_signal; }

}  // namespace lockstep::engine
