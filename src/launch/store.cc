#include "launch/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/text.h"

namespace lockstep::launch {
namespace {

constexpr uint32_t kStoreMagic = 0x3C85F7CE;
constexpr uint64_t kEntry = 64;       // what an entry of a map costs beside its bytes
constexpr size_t kSpare = 256 << 10;  // memory a connection may keep for its next request

// Replies of one byte.
constexpr uint8_t kReady = 0, kNotReady = 1;            // to CHECK
constexpr uint8_t kStopWaiting = 0, kWaitCanceled = 1;  // to WAIT, BARRIER; to CANCEL_WAIT

Status Refused(std::string why) { return Status(Code::kRendezvous, std::move(why)); }

// Numbers cross the wire as they lie in the memory of a little-endian machine, the only kind PyTorch's store connects.
template <typename T>
void PutNumber(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
}

void PutText(std::string* bytes, const std::string& text) {
  PutNumber<uint64_t>(bytes, text.size());
  bytes->append(text);
}

template <typename T>
std::string Bytes(T value) {
  std::string bytes;
  PutNumber(&bytes, value);
  return bytes;
}

// A counter is kept as decimal text; read as PyTorch does (std::stoll): blanks and a sign before the digits are fine,
// and what follows them does not matter.
Result<int64_t> Counter(const std::string& key, const std::string& text) {
  errno = 0;
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || errno == ERANGE) {
    return Refused(fmt::format("the value of key '{}' is no number: '{}'", Printable(key, 200), Printable(text, 80)));
  }
  return value;
}

int64_t Sum(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }

}  // namespace

// The number of a query type is its place in the table: torch/csrc/distributed/c10d/TCPStoreBackend.hpp. New ones are
// only ever appended there. Fields: k key, v value (8 bytes of length, then the bytes), i int64, u uint32; after * the
// number of rounds (uint64) comes first.
struct Store::Query {
  const char* name;
  const char* fields;
  Status (Store::*answer)(Call&);
};

struct StoreQueries {
  static constexpr Store::Query kTable[] = {
      {"VALIDATE", "u", &Store::Validate},
      {"SET", "kv", &Store::Set},
      {"COMPARE_SET", "kvv", &Store::CompareSet},
      {"GET", "k", &Store::Get},
      {"ADD", "ki", &Store::Add},
      {"CHECK", "*k", &Store::Check},
      {"WAIT", "*k", &Store::Wait},
      {"GETNUMKEYS", "", &Store::CountKeys},
      {"DELETE_KEY", "k", &Store::DeleteKey},
      {"APPEND", "kv", &Store::Append},
      {"MULTI_GET", "*k", &Store::Get},
      {"MULTI_SET", "*kv", &Store::Set},
      {"CANCEL_WAIT", "", &Store::CancelWait},
      {"PING", "u", &Store::Ping},
      {"QUEUE_PUSH", "kv", &Store::QueuePush},
      {"QUEUE_POP", "k", &Store::QueuePop},
      {"QUEUE_LEN", "k", &Store::QueueLen},
      {"LIST_KEYS", "", &Store::ListKeys},
      {"BARRIER", "ki", &Store::Barrier},
  };
  static constexpr const Store::Query* kValidate = kTable;
};

// ---- reading --------------------------------------------------------------------------------------------------------

void Store::Feed(ClientId id, std::string_view bytes) {
  Client& client = clients_[id];
  client.input.erase(0, client.read);
  client.read = 0;
  if (client.input.empty() && client.input.capacity() > kSpare) client.input = std::string();
  client.input.append(bytes);
}

Status Store::Begin(Client& client) const {
  const auto type = static_cast<uint8_t>(client.input[client.read]);
  const bool known = type < std::size(StoreQueries::kTable);
  const Query* query = known ? &StoreQueries::kTable[type] : nullptr;
  if (!client.validated && query != StoreQueries::kValidate) {
    return Refused(fmt::format("its first byte is {:#04x}: no client of a TCPStore", type));
  }
  if (!known) return Refused(fmt::format("query type {} is not known here: a newer PyTorch?", type));
  if (client.validated && query == StoreQueries::kValidate) return Refused("it sent VALIDATE twice");
  ++client.read;
  client.query = query;
  client.field = 0;
  client.rounds = 1;
  client.bytes = 1;
  client.request = {};
  return {};
}

// Field by field, so that a request that arrives in a thousand pieces is looked through once.
Result<bool> Store::Read(Client& client) const {
  if (client.query == nullptr) {
    if (client.read == client.input.size()) return false;
    LOCKSTEP_RETURN_IF_ERROR(Begin(client));
  }
  const char* fields = client.query->fields;
  while (client.rounds > 0) {
    const char kind = fields[client.field];
    if (kind == '\0') {
      --client.rounds;
      client.field = fields[0] == '*' ? 1 : 0;
      continue;
    }
    const size_t width = kind == 'u' ? sizeof(uint32_t) : sizeof(uint64_t);
    const size_t left = client.input.size() - client.read;
    if (left < width) return false;
    uint64_t number = 0;
    std::memcpy(&number, client.input.data() + client.read, width);
    uint64_t taken = width;
    if (kind == 'k' || kind == 'v') {
      const uint64_t limit = kind == 'k' ? limits_.key : limits_.value;
      if (number > limit) {
        return Refused(fmt::format("{}: a {} of {} bytes, expected at most {}", client.query->name,
                                   kind == 'k' ? "key" : "value", number, limit));
      }
      if (client.bytes + number > limits_.message) {
        return Refused(fmt::format("{}: a request of more than {} bytes", client.query->name, limits_.message));
      }
      if (left - width < number) return false;
      client.request.texts.emplace_back(client.input, client.read + width, number);
      taken += number;
    } else if (kind == '*') {
      if (number > limits_.keys) {
        return Refused(fmt::format("{}: {} keys, expected at most {}", client.query->name, number, limits_.keys));
      }
      client.rounds = number;
    } else {
      client.request.number = static_cast<int64_t>(number);
    }
    client.read += taken;
    client.bytes += taken;
    ++client.field;
  }
  return true;
}

Result<bool> Store::Answer(ClientId id, std::vector<Reply>* replies) {
  auto it = clients_.find(id);
  if (it == clients_.end()) return false;
  Client& client = it->second;
  const Result<bool> whole = Read(client);
  if (!whole.ok() || !*whole) return whole;
  const Query* query = std::exchange(client.query, nullptr);
  Request request = std::move(client.request);
  Call call{id, client, request, replies};
  LOCKSTEP_RETURN_IF_ERROR((this->*query->answer)(call).Context(query->name));
  return true;
}

void Store::Disconnect(ClientId id) {
  auto it = clients_.find(id);
  if (it == clients_.end()) return;
  StopWaiting(id, it->second);
  clients_.erase(it);
}

bool Store::Validated(ClientId id) const {
  auto it = clients_.find(id);
  return it != clients_.end() && it->second.validated;
}

// ---- answering ------------------------------------------------------------------------------------------------------

Status Store::Validate(Call& call) {
  if (static_cast<uint32_t>(call.request.number) != kStoreMagic) {
    return Refused(fmt::format("expected {:#x}, found {:#x}", kStoreMagic, static_cast<uint32_t>(call.request.number)));
  }
  call.client.validated = true;
  return {};
}

Status Store::Ping(Call& call) {
  call.replies->push_back({call.id, Bytes(static_cast<uint32_t>(call.request.number))});
  return {};
}

// SET, and MULTI_SET with its keys and values in turn.
Status Store::Set(Call& call) {
  std::vector<std::string>& texts = call.request.texts;
  // Of several keys all are stored or none, so there must be room for all, as if none existed.
  uint64_t more = 0;
  for (const std::string& text : texts) more += text.size() + kEntry;
  if (texts.size() > 2) LOCKSTEP_RETURN_IF_ERROR(Room(more));
  for (size_t i = 0; i + 1 < texts.size(); i += 2) {
    LOCKSTEP_RETURN_IF_ERROR(Put(texts[i], std::move(texts[i + 1]), call.replies));
  }
  return {};
}

// An empty `expected` also means: there is no such key. Where another value is expected of a key that does not exist,
// PyTorch answers with that value and stores nothing.
Status Store::CompareSet(Call& call) {
  const std::string& key = call.request.texts[0];
  const std::string& expected = call.request.texts[1];
  const auto it = values_.find(key);
  const bool matches = it == values_.end() ? expected.empty() : it->second == expected;
  std::string bytes;
  PutText(&bytes, matches ? call.request.texts[2] : it == values_.end() ? expected : it->second);
  if (matches) LOCKSTEP_RETURN_IF_ERROR(Put(key, call.request.texts[2], call.replies));
  call.replies->push_back({call.id, std::move(bytes)});
  return {};
}

// GET and MULTI_GET; a key that does not exist has an empty value. Clients WAIT for the keys first.
Status Store::Get(Call& call) {
  std::string bytes;
  for (const std::string& key : call.request.texts) {
    const auto it = values_.find(key);
    const uint64_t size = it == values_.end() ? 0 : it->second.size();
    if (bytes.size() + size > limits_.message) {
      return Refused(fmt::format("a reply of more than {} bytes", limits_.message));
    }
    PutNumber<uint64_t>(&bytes, size);
    if (size > 0) bytes += it->second;
  }
  call.replies->push_back({call.id, std::move(bytes)});
  return {};
}

Status Store::Add(Call& call) {
  const std::string& key = call.request.texts[0];
  int64_t sum = call.request.number;
  if (const auto it = values_.find(key); it != values_.end()) {
    const Result<int64_t> old = Counter(key, it->second);
    if (!old.ok()) return old.status();
    sum = Sum(*old, sum);
  }
  LOCKSTEP_RETURN_IF_ERROR(Put(key, std::to_string(sum), call.replies));
  call.replies->push_back({call.id, Bytes(sum)});
  return {};
}

Status Store::Check(Call& call) {
  const auto& keys = call.request.texts;
  const bool all = std::all_of(keys.begin(), keys.end(), [this](const std::string& key) { return Has(key); });
  call.replies->push_back({call.id, Bytes(all ? kReady : kNotReady)});
  return {};
}

Status Store::Wait(Call& call) {
  std::set<std::string> missing;
  for (std::string& key : call.request.texts) {
    if (!Has(key)) missing.insert(std::move(key));
  }
  if (!missing.empty()) return Await(call, std::move(missing));
  call.replies->push_back({call.id, Bytes(kStopWaiting)});
  return {};
}

Status Store::CountKeys(Call& call) {
  call.replies->push_back({call.id, Bytes(static_cast<int64_t>(values_.size()))});
  return {};
}

Status Store::DeleteKey(Call& call) {
  const auto it = values_.find(call.request.texts[0]);
  const bool found = it != values_.end();
  if (found) {
    used_ -= it->first.size() + it->second.size() + kEntry;
    values_.erase(it);
  }
  call.replies->push_back({call.id, Bytes(static_cast<int64_t>(found))});
  return {};
}

Status Store::Append(Call& call) {
  const std::string& key = call.request.texts[0];
  std::string& more = call.request.texts[1];
  const auto it = values_.find(key);
  if (it == values_.end()) return Put(key, std::move(more), call.replies);
  if (it->second.size() + more.size() > limits_.message) {
    return Refused(fmt::format("a value of more than {} bytes", limits_.message));
  }
  LOCKSTEP_RETURN_IF_ERROR(Room(more.size()));
  used_ += more.size();
  it->second += more;
  Wake(key, /*only_one=*/false, call.replies);  // those in a barrier of this name
  return {};
}

// The client also sends it when the answer to its WAIT was on the way: it expects both then.
Status Store::CancelWait(Call& call) {
  StopWaiting(call.id, call.client);
  call.replies->push_back({call.id, Bytes(kWaitCanceled)});
  return {};
}

// A queue has a name like a key but is none: it is not counted, listed or deleted. One push ends one wait.
Status Store::QueuePush(Call& call) {
  const std::string& key = call.request.texts[0];
  std::string& value = call.request.texts[1];
  const uint64_t more = key.size() + value.size() + kEntry;
  LOCKSTEP_RETURN_IF_ERROR(Room(more));
  used_ += more;
  queues_[key].push_back(std::move(value));
  Wake(key, /*only_one=*/true, call.replies);
  return {};
}

// How many there were; then the first, if there was one. A blocking pop of a client is a WAIT before this.
Status Store::QueuePop(Call& call) {
  const std::string& key = call.request.texts[0];
  const auto it = queues_.find(key);
  std::string bytes = Bytes(it == queues_.end() ? int64_t{0} : static_cast<int64_t>(it->second.size()));
  if (it != queues_.end()) {
    PutText(&bytes, it->second.front());
    used_ -= key.size() + it->second.front().size() + kEntry;
    it->second.pop_front();
    if (it->second.empty()) queues_.erase(it);
  }
  call.replies->push_back({call.id, std::move(bytes)});
  return {};
}

Status Store::QueueLen(Call& call) {
  const auto it = queues_.find(call.request.texts[0]);
  call.replies->push_back({call.id, Bytes(it == queues_.end() ? int64_t{0} : static_cast<int64_t>(it->second.size()))});
  return {};
}

Status Store::ListKeys(Call& call) {
  std::string bytes = Bytes(static_cast<int64_t>(values_.size()));
  for (const auto& [key, value] : values_) {
    PutText(&bytes, key);
    if (bytes.size() > limits_.message) return Refused(fmt::format("a reply of more than {} bytes", limits_.message));
  }
  call.replies->push_back({call.id, std::move(bytes)});
  return {};
}

// Counts who comes under the key; who completes the world, or comes later, lets all go.
Status Store::Barrier(Call& call) {
  const std::string& key = call.request.texts[0];
  int64_t count = 1;
  if (const auto it = values_.find(key); it != values_.end()) {
    const Result<int64_t> old = Counter(key, it->second);
    if (!old.ok()) return old.status();
    count = Sum(*old, 1);
  }
  const bool complete = count >= call.request.number;
  if (!complete) LOCKSTEP_RETURN_IF_ERROR(Await(call, {key}));
  LOCKSTEP_RETURN_IF_ERROR(Keep(key, std::to_string(count)));
  if (!complete) return {};
  Wake(key, /*only_one=*/false, call.replies);
  call.replies->push_back({call.id, Bytes(kStopWaiting)});
  return {};
}

// ---- keeping and waiting --------------------------------------------------------------------------------------------

// A queue with something in it counts as a key for who waits or checks.
bool Store::Has(const std::string& key) const { return values_.contains(key) || queues_.contains(key); }

Status Store::Room(uint64_t more) const {
  if (used_ + more <= limits_.total) return {};
  return Refused(fmt::format("the store is full: it holds {} bytes, at most {}", used_, limits_.total));
}

Status Store::Keep(const std::string& key, std::string value) {
  const auto it = values_.find(key);
  const uint64_t old = it == values_.end() ? 0 : key.size() + it->second.size() + kEntry;
  const uint64_t now = key.size() + value.size() + kEntry;
  if (now > old) LOCKSTEP_RETURN_IF_ERROR(Room(now - old));
  used_ = used_ - old + now;
  values_[key] = std::move(value);
  return {};
}

Status Store::Put(const std::string& key, std::string value, std::vector<Reply>* replies) {
  LOCKSTEP_RETURN_IF_ERROR(Keep(key, std::move(value)));
  Wake(key, /*only_one=*/false, replies);
  return {};
}

Status Store::Await(Call& call, std::set<std::string> keys) {
  if (!call.client.awaited.empty()) return Refused("it waits already");
  uint64_t more = 0;
  for (const std::string& key : keys) more += key.size() + kEntry;
  LOCKSTEP_RETURN_IF_ERROR(Room(more));
  used_ += more;
  for (const std::string& key : keys) waiting_[key].push_back(call.id);
  call.client.awaited = std::move(keys);
  return {};
}

void Store::StopWaiting(ClientId id, Client& client) {
  for (const std::string& key : client.awaited) {
    used_ -= key.size() + kEntry;
    const auto it = waiting_.find(key);
    std::erase(it->second, id);
    if (it->second.empty()) waiting_.erase(it);
  }
  client.awaited.clear();
}

// The key has come: those whose last missing key it was are told, all of them or the one who waits longest.
void Store::Wake(const std::string& key, bool only_one, std::vector<Reply>* replies) {
  const auto it = waiting_.find(key);
  if (it == waiting_.end()) return;
  std::vector<ClientId>& ids = it->second;
  size_t seen = 0;
  while (seen < ids.size()) {
    const ClientId id = ids[seen++];
    std::set<std::string>& awaited = clients_.at(id).awaited;
    awaited.erase(key);
    used_ -= key.size() + kEntry;
    if (!awaited.empty()) continue;
    replies->push_back({id, Bytes(kStopWaiting)});
    if (only_one) break;
  }
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(seen));
  if (ids.empty()) waiting_.erase(it);
}

}  // namespace lockstep::launch
