// What a rank asks for: one record per operation, in the order of calls. Ranks put it where their peers see it (a slot
// in shared memory, the head of a TCP message) and compare before they touch data. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/communicator.h"

namespace lockstep::comm {

enum class Kind : uint8_t {
  kNone,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier,
  kGather,
  kAllocate,
  kSend
};

// No buffer of Communicator::Allocate.
inline constexpr uint32_t kNoBuffer = UINT32_MAX;

// The part that peers compare; also its layout in shared memory and on the wire (little-endian, 56 bytes).
struct Descriptor {
  uint64_t sequence = 0;
  uint64_t count = 0;  // elements (per rank where the operation says so); bytes for broadcast, send and allocate
  Kind kind = Kind::kNone;
  DType dtype = DType::kF32;
  Op op = Op::kSum;
  uint8_t unused = 0;
  int32_t root = 0;  // of a broadcast; the sender
  // Where the data lies, if in a shared buffer: decides between in place and staged, need not be equal.
  uint32_t in_buffer = kNoBuffer;
  uint32_t out_buffer = kNoBuffer;
  uint64_t in_offset = 0;
  uint64_t out_offset = 0;
  int32_t to = 0;  // the receiver
  uint32_t reserved = 0;
};
static_assert(sizeof(Descriptor) == 56);

struct Operation {
  Descriptor what;
  const void* in = nullptr;
  void* out = nullptr;
};

// Whether both are the same operation; buffers are not compared.
bool Same(const Descriptor& a, const Descriptor& b);
// "all_reduce(f32, 1000, sum)", "broadcast(4096 bytes from rank 0)".
std::string Describe(const Descriptor& what);
// "operation 17 all_reduce(...)".
std::string DescribeNumbered(const Descriptor& what);
// The error message for both ranks if they differ.
Status Mismatch(int rank_a, const Descriptor& a, int rank_b, const Descriptor& b);

}  // namespace lockstep::comm
