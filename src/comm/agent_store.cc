#include "comm/agent_store.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "base/sockets.h"

namespace lockstep::comm {
namespace {

enum Request : uint8_t { kValidate = 0, kSet = 1, kGet = 3, kCheck = 5 };
constexpr uint32_t kValidation = 0x3C85F7CE;
constexpr uint64_t kMaxValue = 1 << 20;

template <typename T>
void Put(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
}
void PutText(std::string* bytes, const std::string& text) {
  Put<uint64_t>(bytes, text.size());
  bytes->append(text);
}

}  // namespace

Result<AgentStore> AgentStore::Connect(const std::string& host, int port, TimePoint deadline) {
  auto fd = lockstep::Connect(host, port, deadline);
  if (!fd.ok()) return fd.status();
  std::string hello;
  Put<uint8_t>(&hello, kValidate);
  Put<uint32_t>(&hello, kValidation);
  LOCKSTEP_RETURN_IF_ERROR(SendAll(fd->get(), hello.data(), hello.size(), deadline));
  return AgentStore(std::move(*fd));
}

Status AgentStore::Set(const std::string& key, const std::string& value, TimePoint deadline) {
  std::string bytes;
  Put<uint8_t>(&bytes, kSet);
  PutText(&bytes, key);
  PutText(&bytes, value);
  return SendAll(fd_.get(), bytes.data(), bytes.size(), deadline).Context("agent's store");
}

Result<std::string> AgentStore::Get(const std::string& key, TimePoint deadline) {
  std::string bytes;
  Put<uint8_t>(&bytes, kCheck);
  Put<uint64_t>(&bytes, 1);
  PutText(&bytes, key);
  LOCKSTEP_RETURN_IF_ERROR(SendAll(fd_.get(), bytes.data(), bytes.size(), deadline).Context("agent's store"));
  uint8_t missing = 1;
  LOCKSTEP_RETURN_IF_ERROR(ReceiveAll(fd_.get(), &missing, 1, deadline).Context("agent's store"));
  if (missing != 0) return std::string();

  bytes.clear();
  Put<uint8_t>(&bytes, kGet);
  PutText(&bytes, key);
  LOCKSTEP_RETURN_IF_ERROR(SendAll(fd_.get(), bytes.data(), bytes.size(), deadline).Context("agent's store"));
  uint64_t size = 0;
  LOCKSTEP_RETURN_IF_ERROR(ReceiveAll(fd_.get(), &size, sizeof size, deadline).Context("agent's store"));
  if (size > kMaxValue) {
    return Status(Code::kRendezvous,
                  fmt::format("agent's store: key '{}' has {} bytes, expected an address", key, size));
  }
  std::string value(size, '\0');
  LOCKSTEP_RETURN_IF_ERROR(ReceiveAll(fd_.get(), value.data(), size, deadline).Context("agent's store"));
  return value;
}

std::string AgentStore::OwnHost() const {
  Address address;
  address.length = sizeof address.storage;
  if (getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) return "";
  return address.IsLoopback() ? "" : address.Host();
}

}  // namespace lockstep::comm
