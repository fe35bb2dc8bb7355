// One TCP connection between launchers on an event loop: framing, buffered sending, closing, and the liveness of the
// peer's machine. Owned by a coordinator or a client; lives on the loop's thread. The callbacks may destroy nothing of
// the connection; they post.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/loop.h"
#include "launch/wire.h"

namespace lockstep::launch {

inline constexpr Millis kTick{1000};              // how often a peer looks at what it heard from the others
inline constexpr Millis kGoodbye{2000};           // for a last message to reach its reader
inline constexpr Millis kUnreachable{2000};       // a peer silent for so long is not waited for by who wants to stop
inline constexpr Millis kPromptRendezvous{2000};  // a rendezvous complete within this time is not worth a line

class Connection {
 public:
  struct Events {
    std::function<void(Json)> message;
    std::function<void(std::string why)> closed;  // once; never after Close()
  };

  Connection(Loop& loop, UniqueFd fd, Events events);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Send(const Json& message);
  // Sends what is buffered, then closes; drops the rest after `linger`.
  void CloseAfterFlush(Millis linger);
  void Close();
  bool open() const { return fd_.valid(); }
  bool flushed() const { return outgoing_.empty(); }
  // A new owner takes over.
  void set_events(Events events) { events_ = std::move(events); }
  void set_limit(size_t limit) { parser_.set_limit(limit); }
  const std::string& peer() const { return peer_; }

  // How long the peer's kernel has acknowledged none of the bytes it owes us an acknowledgement of: a machine that is
  // alive, however starved, acknowledges. Bytes that cannot leave this machine are not acknowledged either, so a node
  // that is cut off notices it by itself. `own_delay` is how late the caller itself is, which is not the peer's fault.
  // TCP_USER_TIMEOUT is no substitute: it also ends connections to a process that is stopped on a machine that answers.
  Millis Silence(Millis own_delay = Millis(0));
  // Gives the peer's kernel something to acknowledge, unless it still owes us that. Call about once a second.
  void Ping();

 private:
  void OnEvents(uint32_t events);
  void Flush();
  void Fail(const std::string& why);

  Loop& loop_;
  UniqueFd fd_;
  Events events_;
  FrameParser parser_;
  std::string outgoing_;
  std::string peer_;
  bool closing_ = false;
  Loop::TimerId linger_ = 0;
  uint64_t sent_ = 0;   // bytes given to the kernel
  uint64_t acked_ = 0;  // of those, acknowledged when last looked at
  TimePoint silent_since_ = Now();
};

}  // namespace lockstep::launch
