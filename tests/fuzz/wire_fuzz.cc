// The rendezvous parser against arbitrary bytes, cut at arbitrary places: it must never crash, hang, keep more than one
// frame, or let a broken stream recover; and whatever it accepts must be read or refused by the parser of every
// message, and what a parser accepts must be the same after the next trip.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launch/messages.h"
#include "launch/wire.h"

using namespace lockstep::launch;

namespace {

template <typename M>
void RoundTrip(const Json& message) {
  const auto parsed = Parse<M>(message, "fuzz");
  if (!parsed.ok()) {
    if (parsed.status().message().empty()) abort();
    return;
  }
  const Json sent = ToJson(*parsed);
  const auto again = Parse<M>(sent, "fuzz");
  if (!again.ok() || ToJson(*again) != sent) abort();
}

template <typename... M>
void AsEach(const Json& message) {
  (RoundTrip<M>(message), ...);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const size_t step = data[0] % 61 + 1;  // how the network cuts the stream
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  FrameParser parser(4096);
  bool broken = false;
  while (!bytes.empty()) {
    const size_t take = std::min(step, bytes.size());
    parser.Feed(bytes.substr(0, take));
    bytes.remove_prefix(take);
    while (true) {
      auto next = parser.Next();
      if (broken && next.ok()) abort();  // an error is final
      if (!next.ok()) {
        broken = true;
        break;
      }
      if (!next->has_value()) break;
      const Json& message = **next;
      if (!message.is_object() || !message["type"].is_string()) abort();
      using namespace lockstep::launch::message;
      AsEach<Participant, RankExit, RankPulse, Challenge, Hello, Welcome, Refuse, Ping, Waiting, Go, Stop,
             StacksQuestion, Finish, Started, StartFailed, Progress, Comm, Pulse, Stacks, Exit, Stopped, StopRequest,
             Assigned, ClockQuestion, Round, Over, Document, ClockAnswer, Inspect>(message);
      auto back = FrameParser(1 << 20);
      back.Feed(EncodeFrame(message));
      auto same = back.Next();
      if (!same.ok() || !same->has_value()) abort();
    }
  }
  return 0;
}
