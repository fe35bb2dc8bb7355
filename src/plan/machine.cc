#include "plan/machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace lockstep::plan {
namespace {

constexpr int64_t kOneGiB = int64_t{1} << 30;

template <typename Row>
Result<Row> Find(const std::vector<Row>& rows, const std::string& name, const char* flag) {
  std::vector<std::string> names;
  for (const Row& row : rows) {
    if (row.name == name) return row;
    names.push_back(row.name);
  }
  return Status(Code::kUsage,
                fmt::format("{}: there is no preset '{}'{}", flag, Printable(name), DidYouMean(name, names)),
                "presets: " + Join(names, " "));
}

}  // namespace

// H200: fitted to training steps measured on one (docs/plan.md). The others: peak of the data sheet times the same
// fractions as the H200 reaches of its own (matrix products 0.73 of 989 TFLOP/s, passes 0.64 of 4.8 TB/s, ...).
const std::vector<Gpu>& Gpus() {
  constexpr char kScaled[] = "data sheet times the fractions that an H200 reached";
  static const std::vector<Gpu> rows = {
      {"h200", 139 * kOneGiB, 90, 720e12, 290e12, 394e12, 366e12, 3.05e12, 50e9, 2e-6, 16e-6,
       "training steps measured on one H200"},
      {"h100", 79 * kOneGiB, 90, 720e12, 290e12, 394e12, 330e12, 2.13e12, 50e9, 2e-6, 16e-6, kScaled},
      {"h800", 79 * kOneGiB, 90, 720e12, 290e12, 394e12, 330e12, 2.13e12, 50e9, 2e-6, 16e-6, kScaled},
      {"a100-80", 79 * kOneGiB, 80, 227e12, 120e12, 160e12, 115e12, 1.30e12, 22e9, 2e-6, 16e-6, kScaled},
      {"a100-40", 39 * kOneGiB, 80, 227e12, 120e12, 160e12, 115e12, 0.99e12, 22e9, 2e-6, 16e-6, kScaled},
      {"b200", 178 * kOneGiB, 100, 1640e12, 660e12, 900e12, 830e12, 5.08e12, 50e9, 2e-6, 16e-6, kScaled},
      {"l40s", 44 * kOneGiB, 89, 264e12, 106e12, 145e12, 134e12, 0.55e12, 22e9, 2e-6, 16e-6, kScaled},
      {"rtx4090", 23 * kOneGiB, 89, 120e12, 48e12, 66e12, 61e12, 0.64e12, 22e9, 2e-6, 16e-6, kScaled},
      {"v100", 31 * kOneGiB, 70, 91e12, 36e12, 50e12, 46e12, 0.57e12, 11e9, 2e-6, 16e-6, kScaled},
  };
  return rows;
}

// Bus bandwidths are about 0.8 of a link's rate, which nccl-tests reports for large messages on such machines. Ports of
// a whole node are divided by its GPUs.
const std::vector<Links>& Clusters() {
  static const std::vector<Links> rows = {
      {"h100-ib400", 8, 360e9, 3e-6, 40e9, 8e-6,
       "NVLink 4 (450 GB/s), one 400 Gb/s InfiniBand port a GPU; 0.8 of the rates"},
      {"h200-ib400", 8, 360e9, 3e-6, 40e9, 8e-6,
       "NVLink 4 (450 GB/s), one 400 Gb/s InfiniBand port a GPU; 0.8 of the rates"},
      {"h800-ib200", 8, 160e9, 3e-6, 20e9, 8e-6, "NVLink cut to 200 GB/s, one 200 Gb/s port a GPU; 0.8 of the rates"},
      {"a100-ib200", 8, 240e9, 3e-6, 20e9, 8e-6,
       "NVLink 3 (300 GB/s), one 200 Gb/s InfiniBand port a GPU; 0.8 of the rates"},
      {"b200-ib400", 8, 720e9, 3e-6, 40e9, 8e-6,
       "NVLink 5 (900 GB/s), one 400 Gb/s InfiniBand port a GPU; 0.8 of the rates"},
      {"roce100", 8, 240e9, 3e-6, 2.5e9, 20e-6, "NVLink 3, two 100 Gb/s RoCE ports a node of eight; 0.8 of the rates"},
      {"ethernet25", 8, 20e9, 5e-6, 0.31e9, 50e-6, "PCIe 4 inside, one 25 Gb/s port a node of eight; 0.8 of the rates"},
      {"pcie", 8, 20e9, 5e-6, 10e9, 10e-6, "PCIe 4 x16 inside, one 100 Gb/s port a GPU; 0.8 of the rates"},
      {"cpu", 2, 5e9, 2e-6, 0.5e9, 50e-6, "shared memory between two ranks of a small machine, 10 Gb/s Ethernet"},
  };
  return rows;
}

Result<Gpu> FindGpu(const std::string& name) { return Find(Gpus(), name, "--gpu"); }
Result<Links> FindCluster(const std::string& name) { return Find(Clusters(), name, "--links"); }

const Gpu* GpuNamed(const std::string& drivers_name) {
  std::string lower = drivers_name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const Gpu& gpu : Gpus()) {
    const std::string family = gpu.name.substr(0, gpu.name.find('-'));
    if (lower.find(family) == std::string::npos) continue;
    if (gpu.name == "a100-80" && lower.find("40gb") != std::string::npos) continue;
    return &gpu;
  }
  return nullptr;
}

}  // namespace lockstep::plan
