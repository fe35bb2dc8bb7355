// Our VRT beside upstream's own code, which is not part of this tree: run by hand, see tests/golden/vrt_upstream.py.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/files.h"
#include "models/vrt_file.h"
#include "models/vrt_golden.h"
#include "paths.h"

namespace lockstep::models {
namespace {

TEST(VrtUpstream, DISABLED_WeightsForwardAndGradientsAgree) {
  const char* code = getenv("LOCKSTEP_UPSTREAM_VRT");
  ASSERT_NE(code, nullptr) << "set it to the models/network_vrt.py of a checkout";
  auto dir = TempDir::Create("lockstep-upstream");
  ASSERT_TRUE(dir.ok());
  const char* python = getenv("LOCKSTEP_PYTHON");
  const std::string command =
      fmt::format("'{}' '{}/tests/golden/vrt_upstream.py' '{}' '{}'",
                  python != nullptr ? python : SourceDir() + "/.venv/bin/python", SourceDir(), code, dir->path());
  ASSERT_EQ(system(command.c_str()), 0);
  for (const char* name : {"deblur", "denoise", "sr4", "sr3", "interpolate"}) {
    auto expected = golden::ReadTensors(*dir / (std::string(name) + ".safetensors"));
    const VrtCase it(name);
    Vrt model(it.config, 99);
    std::string note;
    const Status loaded = LoadVrtFile(model, *dir / (std::string(name) + ".pth"), &note);
    ASSERT_TRUE(loaded.ok()) << loaded.ToString();
    ASSERT_TRUE(WriteVrtFile(model, *dir / (std::string(name) + ".written.pth")).ok());
    model.to(at::kDouble);
    const at::Tensor out = model.Forward(expected.at("clips"));
    it.Loss(out).backward();
    const double forward = golden::Distance(out, expected.at("output"));
    double gradient = 0, largest = 0;
    for (const auto& item : model.named_parameters()) {
      largest = std::max(largest, expected.at("gradient." + item.key()).abs().max().item<double>());
    }
    for (const auto& item : model.named_parameters()) {
      const at::Tensor& truth = expected.at("gradient." + item.key());
      const double scale = std::max(truth.abs().max().item<double>(), 1e-3 * largest);
      gradient = std::max(gradient, (item.value().grad() - truth).abs().max().item<double>() / scale);
    }
    fmt::print("{}: output {:.2g}, gradients {:.2g}\n", name, forward, gradient);
    EXPECT_LT(forward, 1e-11) << name;
    EXPECT_LT(gradient, 1e-8) << name;
  }
  ASSERT_EQ(system((command + " --load").c_str()), 0);
}

}  // namespace
}  // namespace lockstep::models
