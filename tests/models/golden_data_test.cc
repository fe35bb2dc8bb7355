// The golden files are what their script computes: nobody edited them, and no release of PyTorch moved under them.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/files.h"
#include "base/json.h"
#include "base/run_python.h"
#include "paths.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

PythonRun Check(const std::string& data, const std::string& topics) {
  return RunPython("golden/make.py", fmt::format("--check --data '{}' {}", data, topics));
}

TEST(GoldenData, IsWhatItsScriptComputes) {
  const PythonRun run = Check(SourceDir() + "/tests/golden/data", "");
  EXPECT_EQ(run.code, 0) << run.output;
}

TEST(GoldenData, OfTheVariantsIsWhatItsScriptComputes) {
  const PythonRun run = RunPython("golden/variants.py", "--check");
  EXPECT_EQ(run.code, 0) << run.output;
}

TEST(GoldenData, AChangedValueIsNoticed) {
  auto dir = TempDir::Create("lockstep-golden");
  ASSERT_TRUE(dir.ok());
  fs::copy(SourceDir() + "/tests/golden/data", dir->path(), fs::copy_options::recursive);
  auto doc = ReadJsonFile(*dir / "schedules.json");
  ASSERT_TRUE(doc.ok()) << doc.status().ToString();
  (*doc)["cases"][3]["factors"][7] = 0.123;
  ASSERT_TRUE(WriteFileAtomic(*dir / "schedules.json", doc->dump()).ok());
  EXPECT_NE(Check(dir->path(), "schedules").code, 0);
}

}  // namespace
}  // namespace lockstep
