// The golden files are what their script computes: nobody edited them, and no release of PyTorch moved under them.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "base/files.h"
#include "base/json.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

int Check(const std::string& data, const std::string& topics) {
  const char* python = getenv("LOCKSTEP_PYTHON");
  std::string program = python != nullptr ? python : LOCKSTEP_SOURCE_DIR "/.venv/bin/python";
  return system(
      fmt::format("'{}' '{}/tests/golden/make.py' --check --data '{}' {}", program, LOCKSTEP_SOURCE_DIR, data, topics)
          .c_str());
}

TEST(GoldenData, IsWhatItsScriptComputes) {
  const char* data = LOCKSTEP_SOURCE_DIR "/tests/golden/data";
  EXPECT_EQ(Check(data, "taehv_tiny schedules optimizers scaler metrics"), 0);
}

TEST(GoldenData, OfTheSmallVariantIsWhatItsScriptComputes) {
  EXPECT_EQ(Check(LOCKSTEP_SOURCE_DIR "/tests/golden/data", "taehv_small"), 0);
}

class GoldenVariants : public testing::TestWithParam<const char*> {};

TEST_P(GoldenVariants, AreWhatTheirScriptComputes) {
  const char* python = getenv("LOCKSTEP_PYTHON");
  std::string program = python != nullptr ? python : LOCKSTEP_SOURCE_DIR "/.venv/bin/python";
  std::string script = LOCKSTEP_SOURCE_DIR "/tests/golden/variants.py";
  EXPECT_EQ(system(fmt::format("'{}' '{}' --check {}", program, script, GetParam()).c_str()), 0);
}

INSTANTIATE_TEST_SUITE_P(OfTaehv, GoldenVariants,
                         testing::Values("taehv taecvx taehv1_5 taew2_2", "taeltx_2 taehv1_5_super taew2_2_super",
                                         "taeh3"),
                         [](const auto& info) {
                           return std::string(info.param).substr(0, std::string(info.param).find(' '));
                         });

TEST(GoldenData, AChangedValueIsNoticed) {
  auto dir = TempDir::Create("lockstep-golden");
  ASSERT_TRUE(dir.ok());
  fs::copy(LOCKSTEP_SOURCE_DIR "/tests/golden/data", dir->path(), fs::copy_options::recursive);
  auto doc = ReadJsonFile(*dir / "schedules.json");
  ASSERT_TRUE(doc.ok()) << doc.status().ToString();
  (*doc)["cases"][3]["factors"][7] = 0.123;
  ASSERT_TRUE(WriteFileAtomic(*dir / "schedules.json", doc->dump()).ok());
  EXPECT_NE(Check(dir->path(), "schedules"), 0);
}

}  // namespace
}  // namespace lockstep
