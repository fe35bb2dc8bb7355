// The store against arbitrary bytes of three clients, cut at arbitrary places: it must never crash, exceed its limits,
// answer a client that did not introduce itself or has left, or lose count of what it holds.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string_view>

#include "launch/store.h"

using namespace lockstep::launch;

// Records: a byte of which the low two bits are the client (3: it leaves; which one the next bits say) and the others
// the number of bytes that follow.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  StoreLimits limits;
  limits.key = 64;
  limits.value = 256;
  limits.keys = 16;
  limits.message = 1024;
  limits.total = 8192;
  Store store(limits);
  static constexpr char kHello[] = {0, '\xCE', '\xF7', '\x85', '\x3C'};
  std::set<Store::ClientId> here;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  while (!bytes.empty()) {
    const auto head = static_cast<uint8_t>(bytes[0]);
    bytes.remove_prefix(1);
    if ((head & 3) == 3) {
      store.Disconnect((head >> 2) % 3);
      here.erase((head >> 2) % 3);
      continue;
    }
    const Store::ClientId id = head & 3;
    // Two of the three know how to begin.
    if (here.insert(id).second && id != 2) store.Feed(id, {kHello, sizeof kHello});
    const std::string_view piece = bytes.substr(0, head >> 2);
    bytes.remove_prefix(piece.size());
    store.Feed(id, piece);
    std::vector<Store::Reply> replies;
    while (true) {
      const auto answered = store.Answer(id, &replies);
      if (!answered.ok()) {
        if (answered.status().message().empty()) abort();
        store.Disconnect(id);
        here.erase(id);
        break;
      }
      if (!*answered) break;
    }
    for (const auto& reply : replies) {
      if (reply.bytes.size() > limits.message + 16) abort();
      if (reply.to != id && (!here.contains(reply.to) || !store.Validated(reply.to))) abort();
    }
    if (store.used() > limits.total) abort();
  }
  for (Store::ClientId id = 0; id < 3; ++id) store.Disconnect(id);
  if (store.size() == 0 && store.used() > limits.total) abort();
  return 0;
}
