// The rendezvous parser against arbitrary bytes, cut at arbitrary places: it must never crash, hang, keep more than one
// frame, or let a broken stream recover; and what it accepts must survive being read as an introduction or a rank's
// end.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launch/member.h"
#include "launch/outcome.h"
#include "launch/wire.h"

using namespace lockstep::launch;

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
      auto member = Member::FromJson(message);
      if (member.ok()) {
        // What was accepted once is accepted again, unchanged.
        auto again = Member::FromJson(member->ToJson());
        if (!again.ok() || again->Who() != member->Who()) abort();
      }
      (void)RankExit::FromJson(message).Describe();
      auto back = FrameParser(1 << 20);
      back.Feed(EncodeFrame(message));
      auto same = back.Next();
      if (!same.ok() || !same->has_value()) abort();
    }
  }
  return 0;
}
