// Frames: messages between ranks during the rendezvous and after errors. A head of 12 bytes (magic, version, type,
// size; little-endian) and a JSON object. Rare and small; data never travels this way. docs/formats/communicator.md
// lists them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace lockstep::comm {

enum class FrameType : uint16_t {
  kHello = 1,  // rank -> rank 0: who it is and where it listens
  kWelcome,    // rank 0 -> rank: heard, wait for the rest
  kComeAgain,  // rank 0 -> rank: another group holds its rendezvous here
  kTable,      // rank 0 -> all: every rank's node and address
  kLinked,     // rank -> rank 0: memory and connections are in place, or what failed
  kGo,         // rank 0 -> all: begin
  kBroken,     // either way: the communicator is broken, and why
  kLate,       // rank -> rank 0: my deadline passed in this operation
  kWhere,      // rank 0 -> all: where do you stand?
  kHere,       // rank -> rank 0: there
  kLeft,       // either way: a rank closed its communicator after this operation
};

struct Frame {
  FrameType type{};
  nlohmann::json body;
};

std::string Encode(FrameType type, const nlohmann::json& body);
Status SendFrame(int fd, FrameType type, const nlohmann::json& body, TimePoint deadline);
Result<Frame> ReceiveFrame(int fd, TimePoint deadline);

// Parses frames from a stream of bytes. An error means that the peer uses another protocol.
class FrameReader {
 public:
  void Append(const char* data, size_t size) { bytes_.append(data, size); }
  Result<std::optional<Frame>> Next();

 private:
  std::string bytes_;
};

}  // namespace lockstep::comm
