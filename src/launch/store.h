// A key-value store that speaks the wire protocol of PyTorch's TCPStore clients (docs/formats/store.md): bytes of a
// connection in, replies out, also to other connections whose wait ends. No sockets, no clock: store_server.h has
// those. Never throws on any input. Owned by one server, one thread.
//
//   store.Feed(client, bytes);
//   std::vector<Store::Reply> replies;
//   Result<bool> answered = store.Answer(client, &replies);  // false: no whole request is there; an error: disconnect
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::launch {

// The first three are PyTorch's own; it has no limit for a whole request, a reply or the store.
struct StoreLimits {
  uint64_t key = 8 << 10;       // bytes of a key
  uint64_t value = 8 << 20;     // bytes of a value in a request
  uint64_t keys = 128 << 10;    // keys in one request
  uint64_t message = 64 << 20;  // bytes of a request, of a reply, of a value that APPEND made
  uint64_t total = 1 << 30;     // bytes of all keys, values and waits
};

class Store {
 public:
  using ClientId = uint64_t;
  struct Reply {
    ClientId to = 0;
    std::string bytes;
  };

  explicit Store(StoreLimits limits = {}) : limits_(limits) {}

  // Takes the next bytes of this client's stream. A new id is a new client.
  void Feed(ClientId id, std::string_view bytes);
  // Answers the client's next request, if it is there as a whole. After an error the client must be disconnected: it
  // broke the protocol or a limit, and nothing of that request was done.
  Result<bool> Answer(ClientId id, std::vector<Reply>* replies);
  // Forgets the client and what it waits for. What it stored stays.
  void Disconnect(ClientId id);

  // It has sent the magic number with which a TCPStore client begins.
  bool Validated(ClientId id) const;
  size_t size() const { return values_.size(); }
  size_t used() const { return used_; }

 private:
  friend struct StoreQueries;
  struct Query;  // a row of the table of query types

  struct Request {
    std::vector<std::string> texts;  // keys and values in order of arrival
    int64_t number = 0;
  };
  struct Client {
    std::string input;
    size_t read = 0;  // bytes of input that were taken
    bool validated = false;
    // The request being read:
    const Query* query = nullptr;
    size_t field = 0;
    uint64_t rounds = 0;  // of the fields that repeat, still to come
    uint64_t bytes = 0;
    Request request;
    std::set<std::string> awaited;  // keys it waits for, empty: it does not wait
  };
  struct Call {  // one request being answered
    ClientId id;
    Client& client;
    Request& request;
    std::vector<Reply>* replies;
  };

  Result<bool> Read(Client& client) const;
  Status Begin(Client& client) const;

  Status Validate(Call& call);
  Status Ping(Call& call);
  Status Set(Call& call);
  Status CompareSet(Call& call);
  Status Get(Call& call);
  Status Add(Call& call);
  Status Check(Call& call);
  Status Wait(Call& call);
  Status CountKeys(Call& call);
  Status DeleteKey(Call& call);
  Status Append(Call& call);
  Status CancelWait(Call& call);
  Status QueuePush(Call& call);
  Status QueuePop(Call& call);
  Status QueueLen(Call& call);
  Status ListKeys(Call& call);
  Status Barrier(Call& call);

  bool Has(const std::string& key) const;
  Status Room(uint64_t more) const;
  Status Keep(const std::string& key, std::string value);
  Status Put(const std::string& key, std::string value, std::vector<Reply>* replies);
  Status Await(Call& call, std::set<std::string> keys);
  void StopWaiting(ClientId id, Client& client);
  void Wake(const std::string& key, bool only_one, std::vector<Reply>* replies);

  const StoreLimits limits_;
  std::map<ClientId, Client> clients_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::deque<std::string>> queues_;  // none is empty
  std::map<std::string, std::vector<ClientId>> waiting_;   // by key, in order of arrival
  uint64_t used_ = 0;
};

}  // namespace lockstep::launch
