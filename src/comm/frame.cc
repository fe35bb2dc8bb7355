#include "comm/frame.h"

#include <fmt/format.h>

#include <cstring>

#include "base/sockets.h"

namespace lockstep::comm {
namespace {

constexpr uint32_t kFrameMagic = 0x4d4f434c;  // "LCOM"
constexpr uint16_t kVersion = 2;
constexpr uint32_t kMaxBody = 64u << 20;

struct Head {
  uint32_t magic;
  uint16_t version;
  uint16_t type;
  uint32_t size;
};
static_assert(sizeof(Head) == 12);

Status Check(const Head& head) {
  if (head.magic != kFrameMagic) {
    return Status(Code::kRendezvous,
                  fmt::format("expected a frame of Lockstep's communicator, found bytes {:08x}", head.magic),
                  "another program answers at this address: choose another MASTER_PORT");
  }
  if (head.version != kVersion) {
    return Status(Code::kRendezvous,
                  fmt::format("the peer's communicator has version {}, expected {}", head.version, kVersion),
                  "run the same program on every rank");
  }
  if (head.size > kMaxBody) return Status(Code::kRendezvous, fmt::format("frame of {} bytes", head.size));
  return {};
}

Result<Frame> Parse(const Head& head, const std::string& body) {
  Frame frame{static_cast<FrameType>(head.type), nlohmann::json::parse(body, nullptr, false)};
  if (!frame.body.is_object()) return Status(Code::kRendezvous, "the body of a frame is not a JSON object");
  return frame;
}

}  // namespace

std::string Encode(FrameType type, const nlohmann::json& body) {
  const std::string text = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const Head head{kFrameMagic, kVersion, static_cast<uint16_t>(type), static_cast<uint32_t>(text.size())};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  return bytes + text;
}

Status SendFrame(int fd, FrameType type, const nlohmann::json& body, TimePoint deadline) {
  const std::string bytes = Encode(type, body);
  return SendAll(fd, bytes.data(), bytes.size(), deadline);
}

Result<Frame> ReceiveFrame(int fd, TimePoint deadline) {
  Head head{};
  LOCKSTEP_RETURN_IF_ERROR(ReceiveAll(fd, &head, sizeof head, deadline));
  LOCKSTEP_RETURN_IF_ERROR(Check(head));
  std::string body(head.size, '\0');
  LOCKSTEP_RETURN_IF_ERROR(ReceiveAll(fd, body.data(), body.size(), deadline));
  return Parse(head, body);
}

Result<std::optional<Frame>> FrameReader::Next() {
  Head head{};
  if (bytes_.size() < sizeof head) return std::optional<Frame>();
  std::memcpy(&head, bytes_.data(), sizeof head);
  LOCKSTEP_RETURN_IF_ERROR(Check(head));
  if (bytes_.size() < sizeof head + head.size) return std::optional<Frame>();
  auto frame = Parse(head, bytes_.substr(sizeof head, head.size));
  bytes_.erase(0, sizeof head + head.size);
  if (!frame.ok()) return frame.status();
  return std::optional<Frame>(std::move(*frame));
}

}  // namespace lockstep::comm
