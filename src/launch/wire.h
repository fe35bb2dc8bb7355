// What crosses the wire between launchers: length-prefixed JSON objects (docs/formats/rendezvous.md). FrameParser turns
// a byte stream from anybody, friend or port scanner, into messages or one error; it never throws, never reads past its
// limit and keeps at most one frame in memory. Owned by one connection, one thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace lockstep::launch {

using Json = nlohmann::json;

inline constexpr int kProtocol = 1;
inline constexpr size_t kHelloLimit = 256 << 10;  // before a peer has proved that it belongs to the job
inline constexpr size_t kFrameLimit = 16 << 20;   // after

// "LKS" + protocol byte + body length (4 bytes, big-endian) + body.
std::string EncodeFrame(const Json& message);

class FrameParser {
 public:
  explicit FrameParser(size_t limit = kHelloLimit) : limit_(limit) {}

  void set_limit(size_t limit) { limit_ = limit; }

  // Takes the next bytes of the stream.
  void Feed(std::string_view bytes) { buffer_.append(bytes); }

  // The next whole message: an object with a string "type". Nothing when more bytes are needed. After an error the
  // stream is unusable and every further call repeats the error.
  Result<std::optional<Json>> Next();

 private:
  size_t limit_;
  std::string buffer_;
  Status broken_;
};

}  // namespace lockstep::launch
