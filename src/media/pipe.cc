#include "media/pipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <utility>

namespace lockstep::media {
namespace {

std::atomic<bool> g_stopped{false};
volatile std::sig_atomic_t g_signal = 0;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

void Remember(int signal) {
  g_signal = signal;
  g_stopped = true;
}

Status Stopped() { return Status(Code::kInterrupted, "stopped by a signal; nothing was written"); }

// LibTorch throws; threads of ours must not.
template <typename F>
Status Guarded(F&& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return Status(Code::kEnvironment, error.what());
  }
}

}  // namespace

void ListenForStop() {
  struct sigaction action = {};
  action.sa_handler = Remember;
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  struct sigaction before = {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // not below nohup
}

const std::atomic<bool>* StopFlag() { return &g_stopped; }
int StopSignal() { return g_signal; }

MediaPipe::MediaPipe(MediaInput* input, int64_t piece, uint64_t most)
    : input_(input), reader_([this, piece, most] { ReadAll(piece, most); }) {}

MediaPipe::~MediaPipe() {
  read_.Close();
  written_.Close();
}

void MediaPipe::WriteTo(MediaOutput* output) {
  output_ = output;
  writer_ = std::jthread([this] { WriteAll(); });
}

void MediaPipe::ReadAll(int64_t piece, uint64_t most) {
  for (uint64_t done = 0;;) {
    Result<Piece> next = Piece{};
    const int64_t count = most == 0 ? piece : std::min<int64_t>(piece, static_cast<int64_t>(most - done));
    if (count > 0) {
      const Status read = g_stopped ? Stopped() : Guarded([&] {
        next = input_->Read(count);
        return next.status();
      });
      if (!read.ok()) next = read;
    }
    const int64_t got = next.ok() ? next->count() : 0;
    done += static_cast<uint64_t>(got);
    if (!read_.Push(std::move(next)) || got == 0) return;
  }
}

void MediaPipe::WriteAll() {
  while (std::optional<Piece> piece = written_.Pop()) {
    const Status wrote = Guarded([&] { return output_->Write(*piece); });
    if (wrote.ok()) continue;
    const std::lock_guard lock(mutex_);
    write_status_ = wrote;
    written_.Close();
    return;
  }
}

Result<Piece> MediaPipe::Next() {
  std::optional<Result<Piece>> next = read_.Pop();
  if (g_stopped) return Stopped();
  if (!next) return Status(Code::kInternal, "read behind the end");
  return std::move(*next);
}

Status MediaPipe::Put(Piece piece) {
  if (g_stopped) return Stopped();
  if (piece.count() == 0 || written_.Push(std::move(piece))) return Status::Ok();
  const std::lock_guard lock(mutex_);
  return write_status_;
}

Status MediaPipe::Finish(const std::map<std::string, std::string>& metadata) {
  written_.Close();
  writer_.join();
  LOCKSTEP_RETURN_IF_ERROR(write_status_);
  if (g_stopped) return Stopped();
  return output_->Finish(metadata);
}

}  // namespace lockstep::media
