// Protocol-buffer messages, encoded by hand: the few of a TensorBoard event file (docs/formats/metrics.md) and of a W&B
// run (docs/formats/wandb.md). The library would bring generated code many times the size of this. Pure functions, any
// thread.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/text.h"

namespace lockstep::track {

// One message under construction.
class Proto {
 public:
  Proto& Varint(int field, uint64_t value) {
    Key(field, 0);
    Raw(value);
    return *this;
  }
  Proto& Double(int field, double value) {
    Key(field, 1);
    Fixed(std::bit_cast<uint64_t>(value));
    return *this;
  }
  Proto& Bytes(int field, std::string_view value) {
    Key(field, 2);
    Raw(value.size());
    out_.append(value);
    return *this;
  }
  // Of a message with a string that is not UTF-8, readers take nothing, and W&B's uploader stops there.
  Proto& Text(int field, std::string_view value) { return Bytes(field, ValidUtf8(value)); }
  Proto& Message(int field, const Proto& message) { return Bytes(field, message.out_); }
  // The fields of another message after those of this one.
  Proto& Append(const Proto& more) {
    out_.append(more.out_);
    return *this;
  }
  Proto& Float(int field, float value) {
    Key(field, 5);
    Fixed(std::bit_cast<uint32_t>(value));
    return *this;
  }

  const std::string& out() const { return out_; }

 private:
  void Key(int field, int wire_type) { Raw(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type)); }
  void Raw(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>((value & 0x7f) | 0x80));
    out_.push_back(static_cast<char>(value));
  }
  template <typename T>
  void Fixed(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) out_.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  }

  std::string out_;
};

}  // namespace lockstep::track
