#include "engine/precision.h"

namespace lockstep::engine {
namespace {

struct Row {
  Precision precision;
  const char* name;
};
constexpr Row kNames[] = {
    {Precision::kAuto, "auto"}, {Precision::kFp32, "fp32"}, {Precision::kBf16, "bf16"}, {Precision::kFp16, "fp16"}};
constexpr int kFirstWithBf16 = 8;  // major compute capability

}  // namespace

const char* PrecisionName(Precision precision) {
  for (const Row& row : kNames) {
    if (row.precision == precision) return row.name;
  }
  return "";
}

std::optional<Precision> PrecisionNamed(std::string_view name) {
  for (const Row& row : kNames) {
    if (row.name == name) return row.precision;
  }
  return std::nullopt;
}

Precision AutoPrecision(const std::optional<GpuFacts>& gpu) {
  return gpu && gpu->major >= kFirstWithBf16 ? Precision::kBf16 : Precision::kFp32;
}

}  // namespace lockstep::engine
