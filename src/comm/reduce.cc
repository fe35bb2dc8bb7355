// Loops are plain C++ that compilers vectorise; on x86 each is compiled three times and the processor's best is taken
// at load time (function multiversioning). Sanitizers come up after such choices are made, so they get the plain
// version.
#include "comm/reduce.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LOCKSTEP_SANITIZED 1
#endif
#endif
#if defined(LOCKSTEP_SANITIZED)
#define LOCKSTEP_VECTOR_LOOP
#elif defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#define LOCKSTEP_VECTOR_LOOP _Pragma("GCC ivdep")
#else
#define LOCKSTEP_VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#endif

#if defined(__x86_64__) && defined(__linux__) && !defined(LOCKSTEP_SANITIZED) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define LOCKSTEP_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LOCKSTEP_CLONES
#endif

namespace lockstep::comm {
namespace {

// Elements worked on at a time: a handful of such blocks stay in the first-level cache.
constexpr size_t kBlock = 1024;
// Levels of the tree whose blocks lie on the stack: up to 31 sources.
constexpr int kStackLevels = 5;

inline float FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

inline float FromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(bits & 0x7fffu) << 13;
  // Reading the half's bits as a float's gives the value scaled by 2^-112, subnormals included.
  const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(rest) * 0x1p112f);
  const uint32_t special = rest | 0x7f800000u;
  return std::bit_cast<float>(sign | ((bits & 0x7c00u) == 0x7c00u ? special : finite));
}

inline uint16_t ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Normal halves: move the exponent, round to even by integer addition (an overflow becomes infinity by itself).
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal halves: adding 0.5 leaves the half's bits, rounded by the processor, in the low end of the significand.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t huge = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t half = magnitude >= 0x47800000u ? huge : (magnitude < 0x38800000u ? small : normal);
  return static_cast<uint16_t>(sign | half);
}

template <typename T>
inline T Larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return (a > b || a != a) ? a : b;
  return a > b ? a : b;
}
template <typename T>
inline T Smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return (a < b || a != a) ? a : b;
  return a < b ? a : b;
}
inline float Plus(float a, float b) { return a + b; }
inline double Plus(double a, double b) { return a + b; }
inline int64_t Plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

#define LOCKSTEP_COMBINE(NAME, TYPE, EXPRESSION)                                             \
  LOCKSTEP_CLONES void NAME(const TYPE* a, const TYPE* b, TYPE* out, size_t count) {         \
    LOCKSTEP_VECTOR_LOOP for (size_t i = 0; i < count; ++i) out[i] = EXPRESSION(a[i], b[i]); \
  }
LOCKSTEP_COMBINE(SumF32, float, Plus)
LOCKSTEP_COMBINE(MaxF32, float, Larger)
LOCKSTEP_COMBINE(MinF32, float, Smaller)
LOCKSTEP_COMBINE(SumF64, double, Plus)
LOCKSTEP_COMBINE(MaxF64, double, Larger)
LOCKSTEP_COMBINE(MinF64, double, Smaller)
LOCKSTEP_COMBINE(SumI64, int64_t, Plus)
LOCKSTEP_COMBINE(MaxI64, int64_t, Larger)
LOCKSTEP_COMBINE(MinI64, int64_t, Smaller)
#undef LOCKSTEP_COMBINE

// The case that matters most: two ranks, both outputs, one pass.
LOCKSTEP_CLONES void SumF32Twice(const float* a, const float* b, float* out, float* out2, size_t count) {
  LOCKSTEP_VECTOR_LOOP for (size_t i = 0; i < count; ++i) {
    const float sum = a[i] + b[i];
    out[i] = sum;
    out2[i] = sum;
  }
}
// Four lines at a time, which also keeps the loop from becoming a call of memcpy: the C library copies by `rep movsb`,
// which is less than half as fast into a buffer that is not aligned as its source is.
typedef uint64_t Line __attribute__((vector_size(64), aligned(1), may_alias));
LOCKSTEP_CLONES void CopyLines(const Line* from, Line* to, size_t lines) {
  for (size_t i = 0; i + 4 <= lines; i += 4) {
    const Line a = from[i];
    const Line b = from[i + 1];
    const Line c = from[i + 2];
    const Line d = from[i + 3];
    to[i] = a;
    to[i + 1] = b;
    to[i + 2] = c;
    to[i + 3] = d;
  }
}
LOCKSTEP_CLONES void LoadBf16(const uint16_t* in, float* out, size_t count) {
  LOCKSTEP_VECTOR_LOOP for (size_t i = 0; i < count; ++i) out[i] = FromBf16(in[i]);
}
LOCKSTEP_CLONES void StoreBf16(const float* in, uint16_t* out, size_t count) {
  LOCKSTEP_VECTOR_LOOP for (size_t i = 0; i < count; ++i) out[i] = ToBf16(in[i]);
}
LOCKSTEP_CLONES void LoadF16(const uint16_t* in, float* out, size_t count) {
  LOCKSTEP_VECTOR_LOOP for (size_t i = 0; i < count; ++i) out[i] = FromF16(in[i]);
}
LOCKSTEP_CLONES void StoreF16(const float* in, uint16_t* out, size_t count) {
  LOCKSTEP_VECTOR_LOOP for (size_t i = 0; i < count; ++i) out[i] = ToF16(in[i]);
}

void Combine(const float* a, const float* b, float* out, size_t count, Op op) {
  (op == Op::kSum ? SumF32 : op == Op::kMax ? MaxF32 : MinF32)(a, b, out, count);
}
void Combine(const double* a, const double* b, double* out, size_t count, Op op) {
  (op == Op::kSum ? SumF64 : op == Op::kMax ? MaxF64 : MinF64)(a, b, out, count);
}
void Combine(const int64_t* a, const int64_t* b, int64_t* out, size_t count, Op op) {
  (op == Op::kSum ? SumI64 : op == Op::kMax ? MaxI64 : MinI64)(a, b, out, count);
}

// One block of every source, as accumulators.
template <typename T>
struct Tree {
  const void* const* sources;
  DType in;
  size_t at;
  size_t count;
  Op op;
  T* blocks;  // one per level: what a left subtree made while its right sibling is at work

  // The block of source r: as it lies when it has the accumulator's type, else converted into `space`.
  const T* Leaf(int r, T* space) const {
    const char* source = static_cast<const char*>(sources[r]) + at * SizeOf(in);
    if (in == DType::kBF16) {
      if constexpr (std::is_same_v<T, float>) LoadBf16(reinterpret_cast<const uint16_t*>(source), space, count);
      return space;
    }
    if (in == DType::kF16) {
      if constexpr (std::is_same_v<T, float>) LoadF16(reinterpret_cast<const uint16_t*>(source), space, count);
      return space;
    }
    return reinterpret_cast<const T*>(source);
  }

  // The tree over sources [first, first + n), in `space` or a leaf itself.
  const T* Run(int first, int n, int level, T* space) const {
    if (n == 1) return Leaf(first, space);
    const int left = static_cast<int>(std::bit_floor(static_cast<unsigned>(n - 1)));
    const T* a = Run(first, left, level + 1, space);
    const T* b = Run(first + left, n - left, level + 1, blocks + static_cast<size_t>(level) * kBlock);
    Combine(a, b, space, count, op);
    return space;
  }
};

template <typename T>
void Store(const T* from, DType out, void* to, size_t at, size_t count) {
  char* target = static_cast<char*>(to) + at * SizeOf(out);
  if constexpr (std::is_same_v<T, float>) {
    if (out == DType::kBF16) return StoreBf16(from, reinterpret_cast<uint16_t*>(target), count);
    if (out == DType::kF16) return StoreF16(from, reinterpret_cast<uint16_t*>(target), count);
  }
  if (target != reinterpret_cast<const char*>(from)) std::memcpy(target, from, count * sizeof(T));
}

template <typename T>
void Reduce(const void* const* sources, int n, DType in, void* const* outs, int n_outs, DType out, size_t count,
            Op op) {
  const int levels = std::bit_width(static_cast<unsigned>(n));
  T first[kBlock];
  T blocks[kStackLevels * kBlock];
  std::unique_ptr<T[]> more;
  T* level_blocks = blocks;
  if (levels > kStackLevels) {
    more = std::make_unique<T[]>(static_cast<size_t>(levels) * kBlock);
    level_blocks = more.get();
  }
  for (size_t at = 0; at < count; at += kBlock) {
    Tree<T> tree{sources, in, at, std::min(kBlock, count - at), op, level_blocks};
    const T* result = tree.Run(0, n, 0, first);
    for (int k = 0; k < n_outs; ++k) Store(result, out, outs[k], at, tree.count);
  }
}

}  // namespace

void CopyBytes(void* to, const void* from, size_t bytes) {
  constexpr size_t kLong = 4096;  // below, memcpy's own vector loops are at least as good
  size_t done = 0;
  if (bytes >= kLong) {
    const size_t lines = bytes / sizeof(Line) / 4 * 4;
    CopyLines(static_cast<const Line*>(from), static_cast<Line*>(to), lines);
    done = lines * sizeof(Line);
  }
  if (done < bytes) std::memcpy(static_cast<char*>(to) + done, static_cast<const char*>(from) + done, bytes - done);
}

DType AccumulatorOf(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16 ? DType::kF32 : dtype; }

void ReduceTree(const void* const* sources, int n, DType in, void* const* outs, int n_outs, DType out, size_t count,
                Op op) {
  if (count == 0) return;
  if (n == 1 && in == out) {
    for (int k = 0; k < n_outs; ++k) {
      if (outs[k] != sources[0]) std::memcpy(outs[k], sources[0], count * SizeOf(in));
    }
    return;
  }
  if (n == 2 && in == DType::kF32 && out == DType::kF32 && op == Op::kSum) {
    const auto* a = static_cast<const float*>(sources[0]);
    const auto* b = static_cast<const float*>(sources[1]);
    if (n_outs == 1) return SumF32(a, b, static_cast<float*>(outs[0]), count);
    if (n_outs == 2) return SumF32Twice(a, b, static_cast<float*>(outs[0]), static_cast<float*>(outs[1]), count);
  }
  switch (AccumulatorOf(in)) {
    case DType::kF32:
      return Reduce<float>(sources, n, in, outs, n_outs, out, count, op);
    case DType::kF64:
      return Reduce<double>(sources, n, in, outs, n_outs, out, count, op);
    default:
      return Reduce<int64_t>(sources, n, in, outs, n_outs, out, count, op);
  }
}

}  // namespace lockstep::comm
