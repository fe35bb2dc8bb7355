#include "launch/wire.h"

#include <fmt/format.h>

#include <cstring>

namespace lockstep::launch {
namespace {

constexpr size_t kHeader = 8;
constexpr char kWireMagic[4] = {'L', 'K', 'S', static_cast<char>(kProtocol)};

}  // namespace

std::string EncodeFrame(const Json& message) {
  // Logs may hold any bytes; what is not UTF-8 is replaced, never thrown on.
  const std::string body = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string frame(kWireMagic, 4);
  const auto size = static_cast<uint32_t>(body.size());
  for (int shift = 24; shift >= 0; shift -= 8) frame.push_back(static_cast<char>((size >> shift) & 0xff));
  return frame + body;
}

Result<std::optional<Json>> FrameParser::Next() {
  if (!broken_.ok()) return broken_;
  const auto fail = [&](std::string why) {
    broken_ = Status(Code::kRendezvous, std::move(why));
    buffer_.clear();
    buffer_.shrink_to_fit();
    return broken_;
  };
  // A wrong first byte is enough to refuse: a scanner need not be waited for.
  const size_t seen = std::min(buffer_.size(), size_t{3});
  if (std::memcmp(buffer_.data(), kWireMagic, seen) != 0) return fail("not a lockstep peer (wrong first bytes)");
  if (buffer_.size() >= 4 && buffer_[3] != kWireMagic[3]) {
    return fail(
        fmt::format("peer speaks protocol {}, this launcher speaks {}", static_cast<int>(buffer_[3]), kProtocol));
  }
  if (buffer_.size() < kHeader) return std::optional<Json>();
  uint32_t size = 0;
  for (size_t i = 4; i < kHeader; ++i) size = (size << 8) | static_cast<unsigned char>(buffer_[i]);
  if (size > limit_) return fail(fmt::format("frame of {} bytes, at most {} allowed", size, limit_));
  if (buffer_.size() < kHeader + size) return std::optional<Json>();
  Json message = Json::parse(buffer_.begin() + kHeader, buffer_.begin() + kHeader + size, nullptr, false);
  buffer_.erase(0, kHeader + size);
  if (!message.is_object() || !message.contains("type") || !message["type"].is_string()) {
    return fail("frame is not a message (a JSON object with a type)");
  }
  return std::optional<Json>(std::move(message));
}

}  // namespace lockstep::launch
