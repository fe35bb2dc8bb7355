// `lockstep-train --version`: this build, the torch it was built on and runs with, and the GPUs it sees. Needs no GPU
// and no driver.
#include "base/version.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "base/arguments.h"
#include "base/text.h"
#include "cli/train/commands.h"
#include "engine/devices.h"

#ifdef LOCKSTEP_CUDA
#include <ATen/detail/CUDAHooksInterface.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/cuda/nccl.h>
#endif

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

#ifdef LOCKSTEP_CUDA

std::string CudaVersion(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

// "-gencode arch=compute_90,code=sm_90 ..." -> sm_90 ...
std::vector<std::string> Architectures(const std::string& torch_flags) {
  std::vector<std::string> found;
  static const std::regex kCode("code=((?:sm|compute)_[0-9]+[a-z]?)");
  for (std::sregex_iterator at(torch_flags.begin(), torch_flags.end(), kCode), end; at != end; ++at) {
    if (std::find(found.begin(), found.end(), (*at)[1].str()) == found.end()) found.push_back((*at)[1]);
  }
  return found;
}

void AddCuda(ordered_json* all) {
  int number = 0;
  (*all)["cuda"] = CudaVersion(CUDART_VERSION);
  (*all)["cuda_runtime"] =
      cudaRuntimeGetVersion(&number) == cudaSuccess ? ordered_json(CudaVersion(number)) : ordered_json(nullptr);
  number = 0;
  // 0: no driver here.
  (*all)["cuda_driver"] = cudaDriverGetVersion(&number) == cudaSuccess && number > 0 ? ordered_json(CudaVersion(number))
                                                                                     : ordered_json(nullptr);
  // Without a driver some of torch's libraries do not answer.
  const auto ask = [](const std::function<ordered_json()>& question) {
    try {
      return question();
    } catch (const std::exception&) {
      return ordered_json(nullptr);
    }
  };
  const auto& hooks = at::detail::getCUDAHooks();
  (*all)["cudnn"] = ask([&] {
    const long cudnn = hooks.versionRuntimeCuDNN();
    return ordered_json(fmt::format("{}.{}.{}", cudnn / 10000, cudnn % 10000 / 100, cudnn % 100));
  });
  (*all)["nccl"] = ask([] {
    const uint64_t nccl = torch::cuda::nccl::version();  // 32, 16 and 16 bits
    return ordered_json(fmt::format("{}.{}.{}", nccl >> 32, (nccl >> 16) & 0xffff, nccl & 0xffff));
  });
  (*all)["architectures"] = ask([&] { return ordered_json(Architectures(hooks.showConfig())); });
}

#endif

ordered_json Collect(const Program& program) {
  ordered_json all = VersionJson(program.name);
  all["torch"] = TORCH_VERSION;
  all["cuda"] = nullptr;
#ifdef LOCKSTEP_CUDA
  AddCuda(&all);
#endif
  all["gpus"] = ordered_json::array();
  for (int i = 0; i < engine::VisibleGpus(); ++i) {
    const auto gpu = engine::DescribeGpu(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(i)));
    all["gpus"].push_back({{"name", gpu->name},
                           {"architecture", fmt::format("sm_{}{}", gpu->major, gpu->minor)},
                           {"memory", gpu->memory}});
  }
  return all;
}

std::string Text(const Program& program, const ordered_json& all) {
  std::string text =
      fmt::format("{}\ntorch           {}\n", VersionText(program.name), all["torch"].get<std::string>());
  if (all["cuda"].is_null()) {
    text += "CUDA            none: built for CPUs (make build GPU=1 builds for GPUs)\n";
  } else {
    const auto word = [&](const char* key, const char* otherwise = "none") {
      return all[key].is_null() ? otherwise : all[key].get<std::string>();
    };
    text += fmt::format("CUDA            {}, runtime {}, driver for CUDA {}\n", word("cuda"), word("cuda_runtime"),
                        word("cuda_driver"));
    constexpr const char* kUnknown = "known only where there is a driver";
    const std::string architectures =
        all["architectures"].is_null() ? kUnknown : Join(all["architectures"].get<std::vector<std::string>>(), " ");
    text += fmt::format("cuDNN           {}\nNCCL            {}\narchitectures   {}\n", word("cudnn", kUnknown),
                        word("nccl", kUnknown), architectures);
  }
  text += fmt::format("GPUs            {}\n", all["gpus"].size());
  for (const ordered_json& gpu : all["gpus"]) {
    text += fmt::format("  {} ({}, {:.1f} GiB)\n", gpu["name"].get<std::string>(),
                        gpu["architecture"].get<std::string>(), gpu["memory"].get<double>() / (1 << 30));
  }
  return text;
}

}  // namespace

int VersionMain(const Program& program, int argc, char** argv) {
  bool json = false;
  Arguments args("Prints this build, its torch and CUDA, and the GPUs it sees.", program.name + " --version");
  args.Flag("--json", &json, "one JSON document");
  if (const auto code = args.Parse(argc, argv)) return *code;
  const ordered_json all = Collect(program);
  fmt::print("{}", json ? all.dump(2) + "\n" : Text(program, all));
  return 0;
}

}  // namespace lockstep::cli
