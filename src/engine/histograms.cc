#include "engine/histograms.h"

#include <ATen/ATen.h>

#include <limits>

namespace lockstep::engine {
namespace {

constexpr int64_t kBuckets = 30;
constexpr double kLargest = 1e36;      // the width of 30 buckets must stay a float32
constexpr int64_t kCounted = 1 << 24;  // at::histc counts in float32, which knows no further whole number

// The part of one parameter that this rank owns, values or gradients.
struct OwnPart {
  size_t row = 0;  // of the tables below: two for each parameter
  at::Tensor numbers;
};

std::vector<OwnPart> OwnParts(const FlatParameters& flat) {
  const OwnedParameters& own = flat.owned();
  std::vector<OwnPart> parts;
  for (const Segment& segment : own.segments) {
    const int64_t count = segment.end - segment.begin;
    if (count == 0) continue;
    const auto parameter = static_cast<size_t>(segment.parameter);
    parts.push_back({2 * parameter, own.Values(segment.begin, count, segment.flat)});
    parts.push_back({2 * parameter + 1, own.Gradients(segment.begin, count, segment.flat)});
  }
  return parts;
}

at::Tensor Usable(const at::Tensor& numbers) {
  const at::Tensor wide = numbers.to(at::kFloat);
  return wide.masked_select(wide.abs() <= kLargest);
}

}  // namespace

Result<ParameterHistograms> HistogramsOf(const FlatParameters& flat, double gradient_factor, Ranks* ranks) {
  const at::NoGradGuard no_grad;
  const std::vector<OwnPart> parts = OwnParts(flat);
  const size_t rows = 2 * flat.parameters().size();
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  std::vector<double> ends(2 * rows, kNothing);  // largest value and largest negated value of each row
  for (const OwnPart& part : parts) {
    const at::Tensor usable = Usable(part.numbers);
    if (usable.numel() == 0) continue;
    ends[2 * part.row] = std::max(ends[2 * part.row], usable.max().item<double>());
    ends[2 * part.row + 1] = std::max(ends[2 * part.row + 1], -usable.min().item<double>());
  }
  LOCKSTEP_RETURN_IF_ERROR(ranks->host().AllReduce(ends.data(), ends.size(), comm::DType::kF64, comm::Op::kMax).Wait());
  const auto edge = [&](size_t row, int64_t i) {
    const double high = ends[2 * row], low = -ends[2 * row + 1];
    const double room = high > low ? 0 : std::max(1e-12, 0.5 * std::abs(low));  // all values are alike
    return (low - room) + (high - low + 2 * room) * static_cast<double>(i) / kBuckets;
  };
  std::vector<double> counts(rows * kBuckets, 0);
  for (const OwnPart& part : parts) {
    if (ends[2 * part.row] == kNothing) continue;
    for (const at::Tensor& some : Usable(part.numbers).split(kCounted)) {
      const at::Tensor found = at::histc(some, kBuckets, edge(part.row, 0), edge(part.row, kBuckets));
      const at::Tensor numbers = found.to(at::kCPU, at::kDouble).contiguous();
      const auto* first = static_cast<const double*>(numbers.const_data_ptr());
      for (int64_t i = 0; i < kBuckets; ++i) counts[part.row * kBuckets + static_cast<size_t>(i)] += first[i];
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(ranks->AllReduceSum(&counts));
  ParameterHistograms histograms;
  for (size_t row = 0; row < rows; ++row) {
    if (ends[2 * row] == kNothing) continue;
    const double factor = row % 2 == 0 ? 1 : gradient_factor;
    track::HistogramData data;
    for (int64_t i = 0; i <= kBuckets; ++i) data.edges.push_back(factor * edge(row, i));
    data.counts.assign(counts.begin() + static_cast<std::ptrdiff_t>(row * kBuckets),
                       counts.begin() + static_cast<std::ptrdiff_t>((row + 1) * kBuckets));
    histograms.emplace_back((row % 2 == 0 ? "weights/" : "gradients/") + flat.parameters()[row / 2].name,
                            std::move(data));
  }
  return histograms;
}

}  // namespace lockstep::engine
