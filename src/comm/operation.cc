#include "comm/operation.h"

#include <fmt/format.h>

namespace lockstep::comm {

size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kBF16:
      return 2;
    case DType::kF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kF64:
      return 8;
  }
  return 1;
}

const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kI64:
      return "i64";
    case DType::kF64:
      return "f64";
  }
  return "unknown type";
}

const char* Name(Op op) {
  switch (op) {
    case Op::kSum:
      return "sum";
    case Op::kMax:
      return "max";
    case Op::kMin:
      return "min";
  }
  return "unknown op";
}

bool Same(const Descriptor& a, const Descriptor& b) {
  return a.sequence == b.sequence && a.count == b.count && a.kind == b.kind && a.dtype == b.dtype && a.op == b.op &&
         a.root == b.root && a.to == b.to;
}

std::string Describe(const Descriptor& what) {
  switch (what.kind) {
    case Kind::kNone:
      return "nothing";
    case Kind::kAllReduce:
      return fmt::format("all_reduce({}, {}, {})", Name(what.dtype), what.count, Name(what.op));
    case Kind::kReduceScatter:
      return fmt::format("reduce_scatter({}, {} per rank, {})", Name(what.dtype), what.count, Name(what.op));
    case Kind::kAllGather:
      return fmt::format("all_gather({}, {} per rank)", Name(what.dtype), what.count);
    case Kind::kBroadcast:
      return fmt::format("broadcast({} bytes from rank {})", what.count, what.root);
    case Kind::kBarrier:
      return "barrier()";
    case Kind::kGather:
      return fmt::format("gather({} bytes)", what.count);
    case Kind::kSend:
      return fmt::format("send({} bytes from rank {} to rank {})", what.count, what.root, what.to);
    case Kind::kAllocate:
      return fmt::format("allocate({} bytes)", what.count);
  }
  return "an unknown operation";
}

std::string DescribeNumbered(const Descriptor& what) {
  return fmt::format("operation {} {}", what.sequence, Describe(what));
}

Status Mismatch(int rank_a, const Descriptor& a, int rank_b, const Descriptor& b) {
  const std::string number = a.sequence == b.sequence ? "" : fmt::format(" as operation {}", b.sequence);
  return Status(Code::kRankFailed,
                fmt::format("the ranks do not call the same: rank {} called {} as operation {}, rank {} called {}{}",
                            rank_a, Describe(a), a.sequence, rank_b, Describe(b), number),
                "every rank must call the same operations, with the same sizes and types, in the same order");
}

}  // namespace lockstep::comm
