#include "engine/device_norm.h"

#include <torch/types.h>

#include <algorithm>
#include <vector>

#include "engine/device_kernels.h"

namespace lockstep::engine {
namespace {

constexpr int64_t kBlock = kFlatAlignment;
constexpr int64_t kPiece = int64_t{1} << 28;  // elements at a time: what lies between is a sixteenth of them
constexpr int64_t kDigits = 30;               // of one integer; up to 2^33 blocks are added up in 64 bits

struct Squares {
  at::Tensor blocks;   // float64
  at::Tensor largest;  // of them, [1]
};

Squares Composed(const OwnedParameters& own) {
  std::vector<at::Tensor> pieces;
  for (const auto& [first, flat] : own.GradientParts()) {
    for (int64_t begin = 0; begin < flat.numel(); begin += kPiece) {
      const int64_t n = std::min(kPiece, flat.numel() - begin);
      const at::Tensor norms =
          at::linalg_vector_norm(flat.narrow(0, begin, n).view({-1, kBlock}), 2, {1}, false, at::kDouble);
      pieces.push_back(norms.mul_(norms));
    }
  }
  const at::Tensor blocks = pieces.size() == 1 ? pieces.front() : at::cat(pieces);
  return {blocks, blocks.max().reshape({1})};
}

Squares Fused(const OwnedParameters& own) {
  int64_t count = 0;
  for (const auto& [first, flat] : own.GradientParts()) count += flat.numel() / kBlock;
  const auto options = own.gradients.options().dtype(at::kDouble);
  Squares squares{at::empty({count}, options), at::zeros({1}, options)};
  int64_t begin = 0;
  for (const auto& [first, flat] : own.GradientParts()) {
    const int64_t n = flat.numel() / kBlock;
    device::BlockSquares(flat, squares.blocks.narrow(0, begin, n), squares.largest);
    begin += n;
  }
  return squares;
}

// Sums in units of a fraction of the largest: whole ones, and 2^-kDigits of them.
void AddInUnits(const Squares& squares, const at::Tensor& unit, const at::Tensor& sums) {
  for (const at::Tensor& some : squares.blocks.split(kPiece / kBlock)) {
    const at::Tensor in_units = some.div_(unit);
    const at::Tensor high = in_units.floor();
    const at::Tensor low = in_units.sub_(high).mul_(static_cast<double>(int64_t{1} << kDigits)).floor_();
    sums.add_(at::stack({high.to(at::kLong).sum(), low.to(at::kLong).sum()}));
  }
}

}  // namespace

Result<at::Tensor> GradientNormOnDevice(const OwnedParameters& own, ParallelStrategy* strategy) {
  const at::NoGradGuard no_grad;
  const bool fused = device::Usable(own.gradients.device());
  const Squares squares = fused ? Fused(own) : Composed(own);
  const at::Tensor& largest = squares.largest;
  LOCKSTEP_RETURN_IF_ERROR(strategy->CombineOverRanks(largest, comm::Op::kMax));
  // A power of two above it: dividing by one is exact.
  const at::Tensor exponent = std::get<1>(at::frexp(largest));
  const at::Tensor unit = at::ldexp(at::ones_like(largest), exponent - kDigits);
  const at::Tensor sums = at::zeros({2}, squares.blocks.options().dtype(at::kLong));
  fused ? device::AddBlocks(squares.blocks, largest, sums) : AddInUnits(squares, unit, sums);
  LOCKSTEP_RETURN_IF_ERROR(strategy->CombineOverRanks(sums, comm::Op::kSum));
  const at::Tensor total =
      sums[0].to(at::kDouble) + sums[1].to(at::kDouble) / static_cast<double>(int64_t{1} << kDigits);
  const at::Tensor norm = (total * unit[0]).sqrt();
  // Zero has no exponent; what is not finite has no integer.
  return at::where(largest[0] > 0, at::where(at::isfinite(largest[0]), norm, largest[0] - largest[0]), largest[0]);
}

}  // namespace lockstep::engine
